"""Constrained concept refinement: the loop of METHOD 3, its engines, and the squared-loss form of METHOD 2."""

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
