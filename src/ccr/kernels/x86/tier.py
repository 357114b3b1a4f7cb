"""Exports of the x86 tier, the names that `ccr.kernels` imports; the same as those of `ccr.kernels.plain.tier`."""

from ccr.kernels.x86.phases import logits
from ccr.kernels.x86.rounding import DictionaryInPanels
from ccr.kernels.x86.score import code_panels, code_rows
from ccr.kernels.x86.training import X86Steps, train
from ccr.kernels.x86.variants import VARIANT as _VARIANT

NAME = "x86"
VARIANT = _VARIANT.name
SCREENS = True
LAST = {"coding": code_panels, "training": train}

#: Classes of the tier, under the names that `ccr.kernels` uses.
PackedConcepts, StepKernels = DictionaryInPanels, X86Steps

__all__ = ["LAST", "NAME", "SCREENS", "VARIANT", "PackedConcepts", "StepKernels", "code_rows", "logits"]
