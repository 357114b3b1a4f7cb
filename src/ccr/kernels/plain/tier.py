"""Exports of the plain tier, the names that `ccr.kernels` imports."""

from ccr.kernels.plain.select import DictionaryInFloats, code_rows, select_active
from ccr.kernels.plain.training import PlainSteps, logits, move_concepts

NAME = VARIANT = "plain"
#: Whether scores can be computed in bytes first.
SCREENS = False
#: The kernel of each group that is compiled last.
LAST = {"coding": select_active, "training": move_concepts}

#: Classes of the tier, under the names that `ccr.kernels` uses.
PackedConcepts, StepKernels = DictionaryInFloats, PlainSteps

__all__ = ["LAST", "NAME", "SCREENS", "VARIANT", "PackedConcepts", "StepKernels", "code_rows", "logits"]
