"""The head alone, fitted again to the codes of an edited model."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from ccr.core.heads import LinearHead, fit_softmax, softmax_objective


def refit_head(
    codes: sparse.csr_matrix,
    y: np.ndarray,
    start: LinearHead,
    *,
    alpha: float,
    weight: np.ndarray | None,
    fixed: Collection[tuple[int, int]] = (),
) -> LinearHead:
    """The head of least mean cross-entropy + alpha/2 |coef|^2, for codes scaled to size 1.

    Weights at the `fixed` (class, concept) places stay as they are in `start`.
    """
    size = float(np.sqrt(np.mean(codes.data.astype(np.float64) ** 2))) if codes.nnz else 1.0
    alpha *= size**2
    start = LinearHead(start.coef.astype(np.float64), start.intercept.astype(np.float64))
    if not fixed:
        # No start: the minimum is unique, and reached from zero it does not depend on what was edited before.
        return fit_softmax(codes, y, classes=len(start.intercept), alpha=alpha, sample_weight=weight)
    return _fit_free(codes, y, start, alpha=alpha, weight=weight, size=size, fixed=fixed)


def _fit_free(
    codes: sparse.csr_matrix,
    y: np.ndarray,
    start: LinearHead,
    *,
    alpha: float,
    weight: np.ndarray | None,
    size: float,
    fixed: Collection[tuple[int, int]],
) -> LinearHead:
    """`fit_softmax` over the weights that are not fixed."""
    scaled = sparse.csr_matrix(codes, dtype=np.float64) / size
    shares = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    free = np.ones(start.coef.shape, bool)
    free[tuple(zip(*fixed, strict=True))] = False
    classes = len(start.intercept)

    def unpack(flat: np.ndarray) -> LinearHead:
        coef = start.coef * size
        coef[free] = flat[classes:]
        return LinearHead(coef, flat[:classes])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = softmax_objective(unpack(flat), scaled, y, alpha=alpha / size**2, weight=shares)
        return loss, np.concatenate([slope.intercept, slope.coef[free]])

    flat = np.concatenate([start.intercept, (start.coef * size)[free]])
    options = {"maxiter": 1000, "maxfun": 2000, "gtol": 1e-6, "ftol": 0.0, "maxcor": 20}
    found = unpack(minimize(objective, flat, jac=True, method="L-BFGS-B", options=options).x)
    return LinearHead(np.where(free, found.coef / size, start.coef), found.intercept)
