"""What `ccr.kernels` takes from this tier, like `ccr.kernels.plain.tier`."""

from ccr.kernels.x86.packing import PackedConcepts
from ccr.kernels.x86.phases import logits
from ccr.kernels.x86.score import code_panels, code_rows
from ccr.kernels.x86.training import Training, train
from ccr.kernels.x86.variants import VARIANT as _VARIANT

NAME = "x86"
VARIANT = _VARIANT.name
SCREENS = True
LAST = {"coding": code_panels, "training": train}

__all__ = ["LAST", "NAME", "SCREENS", "VARIANT", "PackedConcepts", "Training", "code_rows", "logits"]
