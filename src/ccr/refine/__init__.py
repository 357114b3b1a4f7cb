"""Constrained concept refinement: its engines, and the loop of Algorithm 2 (docs/method.md)."""

from ccr.refine.loop import Callback, Refinement, refine
from ccr.refine.measure import Checkpoint, Epoch, Saved
from ccr.refine.options import Training

__all__ = [
    "Callback",
    "Checkpoint",
    "Epoch",
    "Refinement",
    "Saved",
    "Training",
    "refine",
]
