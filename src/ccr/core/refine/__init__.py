"""Constrained concept refinement: its engines, and the loop of Algorithm 2 (docs/method.md)."""

from ccr.core.refine.loop import Callback, Refinement, refine
from ccr.core.refine.options import Training
from ccr.core.refine.progress import Checkpoint, Epoch, Saved

__all__ = [
    "Callback",
    "Checkpoint",
    "Epoch",
    "Refinement",
    "Saved",
    "Training",
    "refine",
]
