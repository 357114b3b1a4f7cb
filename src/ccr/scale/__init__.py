"""The same embed, fit, predict and studies on a Ray cluster (docs/scale.md). Needs the extra `scale`."""

from typing import Any

_HOME = {
    "embed": "embedding",
    "fit": "fitting",
    "predict": "prediction",
    "predict_store": "prediction",
    "RayPool": "cluster",
    "connected": "cluster",
}
__all__ = ["RayPool", "connected", "embed", "fit", "predict", "predict_store"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ccr.scale.{_HOME[name]}"), name)
