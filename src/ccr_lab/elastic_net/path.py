"""The elastic-net path of the softmax head: few weights per class, for one strength of the penalty after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr import kernels
from ccr.errors import CCRError
from ccr.heads import LinearHead
from ccr_lab.elastic_net.curvature import Penalty, Point, Problem, residuals
from ccr_lab.elastic_net.design import Design
from ccr_lab.elastic_net.proximal import solve, violation

log = logging.getLogger("ccr")

#: Share of rows that a class without rows is taken to have, so that its intercept is finite.
LEAST_SHARE = 1e-12


@dataclass(frozen=True, eq=False)
class ElasticNetPath:
    """Heads for decreasing `alphas`: of each the mean number of nonzero weights per class (`nonzeros`), its
    `violations` of the optimality conditions (see `optimality_violation`), the iterations it took (`n_iter`), and
    whether it met the tolerance (`converged`)."""

    alphas: np.ndarray
    heads: tuple[LinearHead, ...]
    nonzeros: np.ndarray
    violations: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray

    def __len__(self) -> int:
        return len(self.heads)


def elastic_net_path(
    codes: Any,
    y: np.ndarray,
    *,
    classes: int,
    l1_ratio: float = 0.99,
    alphas: Sequence[float] | np.ndarray | None = None,
    n_alphas: int = 50,
    alpha_ratio: float = 1e-3,
    sample_weight: np.ndarray | None = None,
    start: LinearHead | None = None,
    max_iter: int = 500,
    tol: float = 1e-3,
    stop: Callable[[LinearHead], bool] | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> ElasticNetPath:
    """The heads that minimise for each alpha, on fixed codes (m, n), dense or CSR, the weighted mean cross-entropy plus

        alpha * (l1_ratio |coef|_1 + (1 - l1_ratio)/2 |coef|^2),

    the intercept free. `y` holds class numbers below `classes`. Without `alphas`, the grid starts where all weights are
    zero (`largest_alpha`) and falls geometrically to `alpha_ratio` times that in `n_alphas` steps. Every alpha starts
    from the solution before, the first one from `start`, and ends when `optimality_violation` is at most `tol`, or
    after `max_iter` passes over the codes. The path ends early after a head for which `stop(head)` is true.
    `callback(done, of)` follows it.
    """
    _check_options(l1_ratio, n_alphas, alpha_ratio, max_iter, tol)
    kernels.warm_up(log.info, group="elastic")
    problem = _problem(codes, y, classes, sample_weight)
    point = _empty(problem)
    top = _largest(problem, point, l1_ratio)
    grid = _grid(top, n_alphas, alpha_ratio) if alphas is None else _checked_alphas(alphas)
    before = max(top, grid[0])
    if start is not None:
        point, before = _from_head(problem, start), 1.2 * grid[0]
    heads, solved = [], []
    for number, alpha in enumerate(grid):
        solution = solve(problem, Penalty(alpha, l1_ratio), point, before=before, tol=tol, max_iter=max_iter)
        point, before = solution.point, alpha
        heads.append(_head(problem, point))
        solved.append((solution.violation, solution.n_iter))
        if callback is not None:
            callback(number + 1, len(grid))
        if stop is not None and stop(heads[-1]):
            break
    violations = np.array([item[0] for item in solved])
    return ElasticNetPath(
        alphas=grid[: len(heads)],
        heads=tuple(heads),
        nonzeros=np.array([np.count_nonzero(head.coef) / classes for head in heads]),
        violations=violations,
        n_iter=np.array([item[1] for item in solved]),
        converged=violations <= tol,
    )


def optimality_violation(
    head: LinearHead,
    codes: Any,
    y: np.ndarray,
    *,
    alpha: float,
    l1_ratio: float = 0.99,
    sample_weight: np.ndarray | None = None,
) -> float:
    """How far a head is from optimal for its alpha; 0 at the optimum.

    The largest distance of 0 from the subgradients of a weight, as a share of alpha, or of an intercept (the
    difference between the predicted and the true share of a class), whichever is larger. Slopes of weights are taken
    with codes measured from their mean, so that they do not depend on where codes are zero.
    """
    problem = _problem(codes, y, len(head.intercept), sample_weight)
    point = _from_head(problem, head)
    residual = residuals(problem, point.logits)[1]
    slopes = problem.design.slopes(residual, np.arange(problem.design.shape[1]))
    return violation(point.coef, slopes, residual.sum(axis=1, dtype=np.float64), Penalty(alpha, l1_ratio))


def largest_alpha(
    codes: Any, y: np.ndarray, *, classes: int, l1_ratio: float = 0.99, sample_weight: np.ndarray | None = None
) -> float:
    """The smallest alpha for which all weights are zero: the largest slope at zero weights, divided by l1_ratio."""
    _check_options(l1_ratio)
    problem = _problem(codes, y, classes, sample_weight)
    return _largest(problem, _empty(problem), l1_ratio)


def _problem(codes: Any, y: Any, classes: int, sample_weight: Any) -> Problem:
    y = np.asarray(y)
    if y.shape != (codes.shape[0],):
        raise CCRError(f"there must be one class number for each code, got shape {y.shape} for {codes.shape[0]} codes")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= classes:
        raise CCRError(f"y must hold class numbers below classes={classes}, got {y.dtype} from {y.min()} to {y.max()}")
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if weight.shape != y.shape or not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() <= 0:
        raise CCRError(f"sample_weight must be {len(y)} finite numbers >= 0, not all 0, got shape {weight.shape}")
    return Problem(Design(codes, weight / weight.sum()), y.astype(np.int64), classes)


def _empty(problem: Problem) -> Point:
    """Zero weights, and the intercept that is best for them: the logarithm of each class's share."""
    share = np.bincount(problem.y, problem.design.share, minlength=problem.classes)
    intercept = np.log(np.maximum(share, LEAST_SHARE))
    return problem.at(np.zeros((problem.classes, problem.design.shape[1])), intercept)


def _from_head(problem: Problem, head: LinearHead) -> Point:
    shape = (problem.classes, problem.design.shape[1])
    if head.coef.shape != shape or head.intercept.shape != shape[:1]:
        raise CCRError(f"the head must be (classes, concepts) = {shape}, got {head.coef.shape}")
    coef = head.coef.astype(np.float64)
    return problem.at(coef, head.intercept + coef @ problem.design.center)


def _head(problem: Problem, point: Point) -> LinearHead:
    return LinearHead(point.coef, point.intercept - point.coef @ problem.design.center)


def _largest(problem: Problem, empty: Point, l1_ratio: float) -> float:
    slopes = problem.design.slopes(residuals(problem, empty.logits)[1], np.arange(problem.design.shape[1]))
    return float(np.abs(slopes).max()) / l1_ratio


def _grid(top: float, n_alphas: int, alpha_ratio: float) -> np.ndarray:
    # Codes that say nothing give zero weights for every alpha.
    return (top or 1.0) * np.geomspace(1.0, alpha_ratio, n_alphas)


def _checked_alphas(alphas: Any) -> np.ndarray:
    grid = np.array(alphas, np.float64)
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all() or grid.min() <= 0 or (np.diff(grid) > 0).any():
        raise CCRError(f"alphas must be positive numbers from large to small, got {np.array2string(grid, threshold=5)}")
    return grid


def _check_options(
    l1_ratio: float, n_alphas: int = 1, alpha_ratio: float = 0.1, max_iter: int = 1, tol: float = 1.0
) -> None:
    if not 0 < l1_ratio <= 1:
        raise CCRError(f"l1_ratio must be in (0, 1], got {l1_ratio}: 0 would make no weight zero; try 0.99")
    if n_alphas < 1:
        raise CCRError(f"n_alphas must be at least 1, got {n_alphas}: it is the number of heads of the path")
    if not 0 < alpha_ratio < 1:
        raise CCRError(f"alpha_ratio must be in (0, 1), got {alpha_ratio}: the last alpha as a share of the first")
    if max_iter < 1 or tol <= 0:
        raise CCRError(f"max_iter must be at least 1 and tol positive, got {max_iter} and {tol}")
