"""The head's convex fit on fixed codes, with a ridge penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from ccr.core.heads.linear import LinearHead
from ccr.errors import CCRError


def softmax_objective(
    head: LinearHead, codes: Any, y: np.ndarray, *, alpha: float, weight: np.ndarray
) -> tuple[float, LinearHead]:
    """Weighted mean cross-entropy + alpha/2 |coef|^2, and its gradient in the head's shape."""
    logits = head.logits(codes)
    rows = np.arange(len(y))
    share = weight / weight.sum()
    loss = -float(share @ log_softmax(logits, axis=1)[rows, y]) + alpha / 2 * float((head.coef**2).sum())
    slope = softmax(logits, axis=1)
    slope[rows, y] -= 1.0
    slope *= share[:, None]
    return loss, LinearHead(np.asarray(codes.T @ slope).T + alpha * head.coef, slope.sum(axis=0))


def fit_softmax(
    codes: Any,
    y: np.ndarray,
    *,
    classes: int,
    alpha: float = 0.0,
    sample_weight: np.ndarray | None = None,
    start: LinearHead | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> LinearHead:
    """The head that minimises mean cross-entropy + alpha/2 |coef|^2 on fixed codes (m, n), by L-BFGS.

    `y` holds class numbers below `classes`. Stops when no entry of the gradient exceeds `tol`.
    """
    if alpha < 0:
        raise CCRError(f"alpha must not be negative, got {alpha}: it is the strength of the penalty on weights")
    codes = sparse.csr_matrix(codes, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    shape = (classes, codes.shape[1])
    # Codes are about 0.1 in size; on codes of size 1 the problem is far better conditioned.
    scale = _rms(codes)
    scaled = codes / scale

    def unpack(flat: np.ndarray) -> LinearHead:
        return LinearHead(flat[classes:].reshape(shape), flat[:classes])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = softmax_objective(unpack(flat), scaled, y, alpha=alpha / scale**2, weight=weight)
        return loss, np.concatenate([slope.intercept, slope.coef.ravel()])

    flat = np.zeros(classes + classes * codes.shape[1])
    if start is not None:
        flat = np.concatenate([start.intercept, (start.coef * scale).ravel()]).astype(np.float64)
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20}
    result = minimize(objective, flat, jac=True, method="L-BFGS-B", options=options)
    head = unpack(result.x)
    return LinearHead(head.coef / scale, head.intercept)


def _rms(codes: sparse.csr_matrix) -> float:
    """Root mean square of the active entries; 1 when there are none."""
    return float(np.sqrt(np.mean(codes.data**2))) or 1.0 if codes.nnz else 1.0
