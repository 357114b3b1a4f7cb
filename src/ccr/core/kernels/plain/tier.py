"""What `ccr.core.kernels` takes from this tier."""

from ccr.core.kernels.plain.scoring import PackedConcepts, code_rows
from ccr.core.kernels.plain.select import select_active
from ccr.core.kernels.plain.step import logits, move_concepts
from ccr.core.kernels.plain.training import Training

NAME = VARIANT = "plain"
#: Whether scores can be computed in bytes first.
SCREENS = False
#: The kernel of each group that is compiled last.
LAST = {"coding": select_active, "training": move_concepts}

__all__ = ["LAST", "NAME", "SCREENS", "VARIANT", "PackedConcepts", "Training", "code_rows", "logits"]
