"""What `ccr.kernels` takes from this tier."""

from ccr.kernels.plain.select import PackedConcepts, code_rows, select_active
from ccr.kernels.plain.training import Training, logits, move_concepts

NAME = VARIANT = "plain"
#: Whether scores can be computed in bytes first.
SCREENS = False
#: The kernel of each group that is compiled last.
LAST = {"coding": select_active, "training": move_concepts}

__all__ = ["LAST", "NAME", "SCREENS", "VARIANT", "PackedConcepts", "Training", "code_rows", "logits"]
