"""Constrained concept refinement: the loop of Algorithm 2, its engines, and the squared-loss form of Algorithm 1
(docs/method.md)."""

from ccr.core.refine.loop import Callback, Refinement, refine
from ccr.core.refine.options import Training
from ccr.core.refine.progress import Checkpoint, Epoch, Saved
from ccr.core.refine.squared import SquaredRefinement, refine_squared, squared_loss

__all__ = [
    "Callback",
    "Checkpoint",
    "Epoch",
    "Refinement",
    "Saved",
    "SquaredRefinement",
    "Training",
    "refine",
    "refine_squared",
    "squared_loss",
]
