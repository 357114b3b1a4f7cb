"""The linear head: logits = codes @ coef.T + intercept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax

from ccr.core import kernels
from ccr.core.coding import ActiveEntries


def entry_logits(codes: ActiveEntries, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Codes (b, n) times weights (n, C), plus bias (C,): logits (b, C), all float32."""
    out = np.empty((len(codes.pointers) - 1, len(bias)), np.float32)
    kernels.logits(codes.pointers, codes.indices, codes.data, weights, bias, out)
    return out


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Weights `coef` (classes, concepts) and `intercept` (classes,)."""

    coef: np.ndarray
    intercept: np.ndarray

    def logits(self, codes: Any) -> np.ndarray:
        """Logits (m, classes) of codes (m, concepts), CSR or dense."""
        weights, bias = self.transposed()
        if sparse.issparse(codes) and codes.format == "csr" and codes.dtype == weights.dtype == np.float32:
            # As a model computes them in predictions, to the bit.
            entries = ActiveEntries(*(np.asarray(part) for part in (codes.indptr, codes.indices, codes.data)))
            return entry_logits(entries, weights, bias.astype(np.float32))
        return np.asarray(codes @ weights) + bias

    def probabilities(self, codes: Any) -> np.ndarray:
        """Probabilities (m, classes) of codes (m, concepts)."""
        return softmax(self.logits(codes).astype(np.float64), axis=1)

    def transposed(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (concepts, classes) and intercept, as `entry_logits` takes them."""
        return np.array(self.coef.T, order="C"), np.array(self.intercept)

    def astype(self, dtype: Any) -> LinearHead:
        """The same head in another floating type."""
        return LinearHead(self.coef.astype(dtype), self.intercept.astype(dtype))
