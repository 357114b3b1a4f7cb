"""The linear head: logits = codes @ coef.T + intercept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax

from ccr.core.coding import ActiveEntries, logits_of


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Weights `coef` (classes, concepts) and `intercept` (classes,)."""

    coef: np.ndarray
    intercept: np.ndarray

    def logits(self, codes: Any) -> np.ndarray:
        """One row of class scores for each row of the codes."""
        weights = np.array(self.coef.T, order="C")
        if sparse.issparse(codes) and codes.format == "csr" and codes.dtype == weights.dtype == np.float32:
            # As `predict` computes them, to the bit.
            entries = ActiveEntries(*(np.asarray(part) for part in (codes.indptr, codes.indices, codes.data)))
            return logits_of(entries, weights, np.array(self.intercept, np.float32))
        return np.asarray(codes @ weights) + self.intercept

    def probabilities(self, codes: Any) -> np.ndarray:
        return softmax(self.logits(codes).astype(np.float64), axis=1)
