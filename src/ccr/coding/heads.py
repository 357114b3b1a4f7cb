"""The linear head: logits of codes, and its convex fit, softmax regression with a ridge penalty by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr import kernels
from ccr.coding import Entries, code_size
from ccr.errors import CCRError
from ccr.utils.arrays import LazyModule, is_sparse, softmax

if TYPE_CHECKING:
    import scipy
    from scipy import sparse, special
else:
    scipy = LazyModule("scipy")
    sparse = LazyModule("scipy.sparse")
    special = LazyModule("scipy.special")


# The linear head: logits = codes @ coef.T + intercept.
def entry_logits(codes: Entries, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Codes (b, n) times weights (n, C), plus bias (C,): logits (b, C), all float32."""
    out = np.empty((len(codes.pointers) - 1, len(bias)), np.float32)
    kernels.logits(codes.pointers, codes.indices, codes.data, weights, bias, out)
    return out


def few_logits(codes: Entries, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same for a few rows, with NumPy alone. Concept by concept from the bias on, as the kernels add up, so that
    classes with the same weights get the same logit."""
    spans = pairwise(codes.pointers.tolist())
    terms = [codes.data[start:stop, None] * weights[codes.indices[start:stop]] for start, stop in spans]
    return np.array([np.concatenate([bias[None], some]).sum(axis=0) for some in terms])


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Weights `coef` (classes, concepts) and `intercept` (classes,)."""

    coef: np.ndarray
    intercept: np.ndarray

    def logits(self, codes: Any) -> np.ndarray:
        """Logits (m, classes) of codes (m, concepts), CSR or dense."""
        weights, bias = self.transposed()
        if is_sparse(codes) and codes.format == "csr" and codes.dtype == weights.dtype == np.float32:
            # As a model computes them in predictions, to the bit.
            entries = Entries(*(np.asarray(part) for part in (codes.indptr, codes.indices, codes.data)))
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


def lbfgs(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    least: np.ndarray | None = None,
) -> np.ndarray:
    """The minimum of a smooth function, given as value and gradient, from `start` on, of entries that are at least
    `least`, if that is given.

    Ends when no entry of the gradient exceeds `tol`, or after `max_iter` iterations.
    """
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20}
    bounds = None if least is None else scipy.optimize.Bounds(least)
    solution = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(solution.x)


def softmax_objective(
    head: LinearHead, codes: Any, y: np.ndarray, *, alpha: float, weight: np.ndarray
) -> tuple[float, LinearHead]:
    """Weighted mean cross-entropy + alpha/2 |coef|^2, and its gradient in the head's shape."""
    logits = head.logits(codes)
    rows = np.arange(len(y))
    share = weight / weight.sum()
    loss = -float(share @ special.log_softmax(logits, axis=1)[rows, y]) + alpha / 2 * float((head.coef**2).sum())
    grad = softmax(logits, axis=1)
    grad[rows, y] -= 1.0
    grad *= share[:, None]
    return loss, LinearHead(np.asarray(codes.T @ grad).T + alpha * head.coef, grad.sum(axis=0))


def fit_softmax(
    codes: Any,
    y: np.ndarray,
    *,
    classes: int,
    alpha: float = 0.0,
    sample_weight: np.ndarray | None = None,
    start: LinearHead | None = None,
    fixed: np.ndarray | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> LinearHead:
    """The head that minimises weighted mean cross-entropy + alpha/2 |coef|^2 on fixed codes, by L-BFGS.

    Parameters
    ----------
    codes : (m, n), sparse or dense.
    y : class numbers (m,) below `classes`.
    alpha : strength of the penalty, >= 0.
    sample_weight : one number >= 0 per code.
    start : where to begin; zeros if None.
    fixed : (classes, n) booleans: weights that stay as they are in `start`.
    tol : no entry of the gradient exceeds it in the end, for codes scaled to size 1.
    """
    if alpha < 0:
        raise CCRError(f"alpha must not be negative, got {alpha}: it is the strength of the penalty on weights")
    codes = sparse.csr_matrix(codes, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    shape = (classes, codes.shape[1])
    free = np.ones(shape, bool) if fixed is None else ~fixed
    begin = LinearHead(np.zeros(shape), np.zeros(classes)) if start is None else start.astype(np.float64)
    # Codes are about 0.1 in size; on codes of size 1 the problem is far better conditioned.
    scale = code_size(codes)
    scaled = codes / scale

    def unpack(flat: np.ndarray) -> LinearHead:
        coef = begin.coef * scale
        coef[free] = flat[classes:]
        return LinearHead(coef, flat[:classes])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, grad = softmax_objective(unpack(flat), scaled, y, alpha=alpha / scale**2, weight=weight)
        return loss, np.concatenate([grad.intercept, grad.coef[free]])

    flat = np.concatenate([begin.intercept, (begin.coef * scale)[free]])
    head = unpack(lbfgs(objective, flat, tol=tol, max_iter=max_iter))
    return LinearHead(np.where(free, head.coef / scale, begin.coef), head.intercept)
