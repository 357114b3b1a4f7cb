"""Image classifiers whose every prediction is a short, exact sum of named concepts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier
    from ccr.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, TopK
    from ccr.concepts import Concepts
    from ccr.data.store import EmbeddingStore
    from ccr.encoders import load_encoder
    from ccr.knowledge import Knowledge
    from ccr.model import ConceptModel
    from ccr.space import Angular, Symmetric
    from ccr.vocab import embed_concepts, read_concepts

    __version__: str

__all__ = [
    "IPOMP",
    "OMP",
    "Angular",
    "ConceptClassifier",
    "ConceptModel",
    "Concepts",
    "EmbeddingStore",
    "HardThreshold",
    "Knowledge",
    "NonNegativeLasso",
    "Symmetric",
    "TopK",
    "__version__",
    "embed_concepts",
    "load_encoder",
    "read_concepts",
]

_HOMES = {
    "Angular": "ccr.space",
    "ConceptClassifier": "ccr.classifier",
    "ConceptModel": "ccr.model",
    "Concepts": "ccr.concepts",
    "EmbeddingStore": "ccr.data.store",
    "HardThreshold": "ccr.coding",
    "IPOMP": "ccr.coding",
    "Knowledge": "ccr.knowledge",
    "NonNegativeLasso": "ccr.coding",
    "OMP": "ccr.coding",
    "Symmetric": "ccr.space",
    "TopK": "ccr.coding",
    "embed_concepts": "ccr.vocab",
    "load_encoder": "ccr.encoders",
    "read_concepts": "ccr.vocab",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: `ccr --help` and the processes that decode images need no torch.
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ccr' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ccr-xai")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
