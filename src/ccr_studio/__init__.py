"""The studio: look, ask, correct and refit in the browser. `ccr studio` runs it; `show` puts it into a notebook.

`ccr_studio.service` is a fitted model behind a typed JSON API: what `ccr serve` runs, and what the studio is built on.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ccr.errors import MissingExtraError

if TYPE_CHECKING:
    from ccr_studio.serving import Running, serve, show

__all__ = ["Running", "serve", "show"]


def __getattr__(name: str) -> Any:
    # Imported when first used: the commands are loaded by every `ccr --help`, also where the extra is not installed.
    if name not in (*__all__, "serving"):
        raise AttributeError(f"module 'ccr_studio' has no attribute {name!r}")
    missing = [
        package for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client") if find_spec(package) is None
    ]
    if missing:
        raise MissingExtraError(f'the studio needs {", ".join(missing)}: pip install "ccr-xai[studio]"')
    serving = import_module("ccr_studio.serving")
    return serving if name == "serving" else getattr(serving, name)
