"""Libraries imported when they are first used: torch, numba and SciPy take seconds, and reading a model needs none."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module until one of its names is asked for: `torch = LazyModule("torch")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        if not name.startswith("__"):
            setattr(self, name, found)  # the next use is that of a plain attribute
        return found
