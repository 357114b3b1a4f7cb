"""Constrained concept refinement: its engines, and the loop of Algorithm 2 (docs/method.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ccr.refine.options import Epoch, Training

if TYPE_CHECKING:
    from ccr.refine.loop import Callback, Refinement, refine
    from ccr.refine.measure import Checkpoint

__all__ = [
    "Callback",
    "Checkpoint",
    "Epoch",
    "Refinement",
    "Training",
    "refine",
]

_HOMES = {"Callback": "loop", "Checkpoint": "measure", "Refinement": "loop", "refine": "loop"}


def __getattr__(name: str) -> Any:
    # Imported when first used: reading a model needs its history, not what trains.
    if name in _HOMES:
        return getattr(import_module(f"ccr.refine.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ccr.refine' has no attribute {name!r}")
