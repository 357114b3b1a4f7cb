"""Linear heads on codes, and their convex fit: ridge by L-BFGS on sparse codes."""

from ccr.core.heads.linear import LinearHead, entry_logits
from ccr.core.heads.softmax import fit_softmax, softmax_objective

__all__ = ["LinearHead", "entry_logits", "fit_softmax", "softmax_objective"]
