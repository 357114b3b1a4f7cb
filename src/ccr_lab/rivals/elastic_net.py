"""The elastic-net path of the softmax head: few weights per class, for one strength of the penalty after the other.

Each problem is solved by an accelerated proximal method in the metric of its own curvature. Around a point y the loss
is replaced by its gradient and `scale` times its curvature on the weights that may be active:
Z' (diag(p) - p p') Z if they are few, which makes it Newton's method, else Z' diag(p (1 - p)) Z for each class by
itself, where Var_p(v) <= 2 sum_c p_c (1 - p_c) v_c^2 makes scale 2 enough. That quadratic with the penalty is solved by
coordinate descent, the intercept eliminated. Each step checks that the loss is below its model, enlarges the scale if
not, and then takes the curvature anew where it arrived. Steps are extrapolated as in FISTA, and the momentum is dropped
where it points uphill. Logits are linear in the weights, so that those of y cost no product with the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.heads import LinearHead
from ccr_lab.rivals.curvature import Design, HeadPoint, HeadProblem, Penalty, Quadratic, residuals

#: Share of rows that a class without rows is taken to have, so that its intercept is finite.
LEAST_SHARE = 1e-12
#: The model is enlarged by this factor where the loss is above it.
ENLARGE = 1.4
#: Curvature is taken anew after a step that needed a larger scale.
LARGEST_SCALE = 2.5
#: A step that is so short is taken as it is: what is left is rounding.
GIVE_UP = 1e4
#: Steps without a gain after which rounding is all that is left.
STALLED = 100
#: The inner problem is solved to this part of the present violation.
INNER = 0.05


class ElasticNetPath(NamedTuple):
    """Heads for decreasing `alphas`, and their `violations` of the optimality conditions (`optimality_violation`)."""

    alphas: np.ndarray
    heads: tuple[LinearHead, ...]
    violations: np.ndarray


def elastic_net_path(
    codes: np.ndarray,
    y: np.ndarray,
    *,
    classes: int,
    l1_ratio: float = 0.99,
    alphas: Sequence[float] | np.ndarray | None = None,
    n_alphas: int = 50,
    alpha_ratio: float = 1e-3,
    permitted: np.ndarray | None = None,
    start: LinearHead | None = None,
    max_iter: int = 500,
    tol: float = 1e-3,
    stop: Callable[[LinearHead], bool] | None = None,
) -> ElasticNetPath:
    """The heads that minimise for each alpha, on fixed codes (m, n), the mean cross-entropy plus

        alpha * (l1_ratio |coef|_1 + (1 - l1_ratio)/2 |coef|^2),

    the intercept free. `y` holds class numbers below `classes`. Without `alphas`, the grid starts where all weights are
    zero (`largest_alpha`) and falls geometrically to `alpha_ratio` times that in `n_alphas` steps. Every alpha starts
    from the solution before, the first one from `start`, and ends when `optimality_violation` is at most `tol`, or
    after `max_iter` passes over the codes. Weights that are not `permitted` (classes, n) stay zero. The path ends early
    after a head for which `stop(head)` is true.
    """
    if not 0 < l1_ratio <= 1:
        raise CCRError(f"l1_ratio must be in (0, 1], got {l1_ratio}: 0 would make no weight zero; try 0.99")
    problem = HeadProblem(Design(codes), y.astype(np.int64), classes, permitted)
    point = _empty(problem)
    top = _largest(problem, point, l1_ratio)
    # Codes that say nothing give zero weights for every alpha.
    grid = np.array(alphas, np.float64) if alphas is not None else (top or 1.0) * np.geomspace(1, alpha_ratio, n_alphas)
    before = max(top, grid[0])
    if start is not None:
        point, before = _from_head(problem, start), 1.2 * grid[0]
    heads: list[LinearHead] = []
    violations: list[float] = []
    for alpha in grid:
        search = _Search(problem, Penalty(alpha, l1_ratio), point, before, tol)
        (point, worst), before = search.run(max_iter), alpha
        heads.append(LinearHead(point.coef, point.intercept - point.coef @ problem.design.center))
        violations.append(worst)
        if stop is not None and stop(heads[-1]):
            break
    return ElasticNetPath(grid[: len(heads)], tuple(heads), np.array(violations))


def optimality_violation(
    head: LinearHead, codes: np.ndarray, y: np.ndarray, *, alpha: float, l1_ratio: float = 0.99
) -> float:
    """How far a head is from optimal for its alpha; 0 at the optimum.

    The largest distance of 0 from the subgradients of a weight, as a share of alpha, or of an intercept (the
    difference between the predicted and the true share of a class), whichever is larger. Gradients of weights are taken
    with codes measured from their mean, so that they do not depend on where codes are zero.
    """
    problem = HeadProblem(Design(codes), y.astype(np.int64), len(head.intercept))
    point = _from_head(problem, head)
    residual = residuals(problem, point.logits)[1]
    gradient = problem.gradient(residual, np.arange(problem.design.shape[1]))
    return _violation(point.coef, gradient, residual.sum(axis=1, dtype=np.float64), Penalty(alpha, l1_ratio))


def largest_alpha(codes: np.ndarray, y: np.ndarray, *, classes: int, l1_ratio: float = 0.99) -> float:
    """The smallest alpha for which all weights are zero: the largest gradient at zero weights, divided by l1_ratio."""
    problem = HeadProblem(Design(codes), y.astype(np.int64), classes)
    return _largest(problem, _empty(problem), l1_ratio)


def _empty(problem: HeadProblem) -> HeadPoint:
    """Zero weights, and the intercept that is best for them: the logarithm of each class's share."""
    share = np.bincount(problem.y, problem.design.share, minlength=problem.classes)
    intercept = np.log(np.maximum(share, LEAST_SHARE))
    return problem.at(np.zeros((problem.classes, problem.design.shape[1])), intercept)


def _from_head(problem: HeadProblem, head: LinearHead) -> HeadPoint:
    coef = head.coef.astype(np.float64)
    return problem.at(coef, head.intercept + coef @ problem.design.center)


def _largest(problem: HeadProblem, empty: HeadPoint, l1_ratio: float) -> float:
    gradient = problem.gradient(residuals(problem, empty.logits)[1], np.arange(problem.design.shape[1]))
    return float(np.abs(gradient).max()) / l1_ratio


def _violation(coef: np.ndarray, gradient: np.ndarray, bias_gradient: np.ndarray, penalty: Penalty) -> float:
    """Largest distance of 0 from the subgradients: of weights as a share of alpha, of intercepts as it is."""
    return max(float(np.abs(bias_gradient).max()), float(_misses(coef, gradient, penalty).max(initial=0.0)))


def _misses(coef: np.ndarray, gradient: np.ndarray, penalty: Penalty) -> np.ndarray:
    active = np.abs(gradient + penalty.l2 * coef + penalty.l1 * np.sign(coef))
    return np.where(coef != 0, active, np.maximum(np.abs(gradient) - penalty.l1, 0.0)) / penalty.alpha


def best_shift(weights: np.ndarray, penalty: Penalty) -> np.ndarray:
    """For each column of the weights (classes, n), the number t that makes the penalty of weights + t least.

    A median of -weights, drawn toward minus their mean by the quadratic part.
    """
    classes = len(weights)
    kinks = np.sort(-weights, axis=0)
    pull = penalty.l2 * (weights.sum(axis=0) + classes * kinks)
    rank = np.arange(classes)[:, None]
    right = penalty.l1 * (2 * (rank + 1) - classes) + pull
    first = (right >= 0).argmax(axis=0)
    column = np.arange(weights.shape[1])
    shift = kinks[first, column]
    if penalty.l2 == 0:
        return shift
    left = right[first, column] - 2 * penalty.l1
    between = -(penalty.l1 * (2 * first - classes) / penalty.l2 + weights.sum(axis=0)) / classes
    return np.where(left > 0, between, shift)


class _Search:
    """The iteration for one alpha: the point, the one before, and the model around them. `before` is the alpha for
    which the start is optimal, or so."""

    def __init__(self, problem: HeadProblem, penalty: Penalty, start: HeadPoint, before: float, tol: float) -> None:
        self.problem, self.penalty, self.tol = problem, penalty, tol
        self.last = self.point = start
        self.momentum, self.age = 1.0, 0
        self.every = np.arange(problem.design.shape[1])
        self.gradient = problem.gradient(residuals(problem, start.logits)[1], self.every)
        # The strong rule: gradients rarely grow by more than the penalty falls.
        bar = max(2 * penalty.alpha - before, penalty.alpha / 2) * penalty.l1_ratio
        self.model = Quadratic(problem, (start.coef != 0) | (np.abs(self.gradient) >= bar))
        self._look_at_columns()
        self.model.build(start.logits)

    def run(self, max_iter: int) -> tuple[HeadPoint, float]:
        """The head that is optimal to the tolerance, or the best one that was reached, and its violation."""
        best, miss, since = self.point, np.inf, 0
        for number in range(1, max_iter + 1):
            near, following = self._extrapolated()
            probabilities, residual = residuals(self.problem, near.logits)
            gradient, bias_gradient = self._gradient(residual, near.coef), residual.sum(axis=1, dtype=np.float64)
            worst = _violation(near.coef, gradient, bias_gradient, self.penalty)
            if worst <= self.tol and len(self.columns) < len(self.every):
                gradient = self.problem.gradient(residual, self.every)
                worst = _violation(near.coef, gradient, bias_gradient, self.penalty)
            if worst < miss:
                best, miss, since = near, worst, number
            if worst <= self.tol:
                return near, worst
            if number - since >= STALLED:
                break
            self._admit(near, gradient)
            self._advance(near, following, probabilities, gradient, bias_gradient)
        residual = residuals(self.problem, best.logits)[1]
        gradient, bias_gradient = self.problem.gradient(residual, self.every), residual.sum(axis=1, dtype=np.float64)
        return best, _violation(best.coef, gradient, bias_gradient, self.penalty)

    def _extrapolated(self) -> tuple[HeadPoint, float]:
        following = (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        beta = (self.momentum - 1) / following
        if beta == 0:
            return self.point, following
        return HeadPoint(
            *(now + now.dtype.type(beta) * (now - old) for now, old in zip(self.point, self.last, strict=True))
        ), following

    def _gradient(self, residual: np.ndarray, coef: np.ndarray) -> np.ndarray:
        if len(self.columns) == len(self.every):
            return self.problem.gradient(residual, self.every)
        gradient = np.zeros_like(coef)  # elsewhere weights are zero, and gradients are looked at in the end
        gradient[:, self.columns] = self.problem.gradient(residual, self.columns)
        return gradient

    def _look_at_columns(self) -> None:
        columns = np.flatnonzero(self.model.allowed.any(axis=0))
        self.columns = columns if 2 * len(columns) < len(self.every) else self.every

    def _admit(self, near: HeadPoint, gradient: np.ndarray) -> None:
        """Let weights move whose gradient is too large for them to stay zero."""
        wanted = ~self.model.allowed & (np.abs(gradient) > self.penalty.l1)
        if wanted.any():
            self.model.allowed |= wanted
            self._look_at_columns()
            self.model.build(near.logits, wanted.any(axis=1))

    def _advance(
        self,
        near: HeadPoint,
        following: float,
        probabilities: np.ndarray,
        gradient: np.ndarray,
        bias_gradient: np.ndarray,
    ) -> None:
        """One step from `near`, with a model that is not below the loss there."""
        miss = float(_misses(near.coef, gradient, self.penalty).max())
        tol = INNER * self.penalty.alpha * min(max(miss, self.tol / 2), 1.0)
        while True:
            coef, intercept, curvature, pull = self.model.minimise(near, gradient, bias_gradient, self.penalty, tol)
            self._balance(coef)
            new = self.problem.at(coef, intercept)
            rounding = float(np.finfo(new.logits.dtype).eps)
            if self._above(near, new, probabilities) <= curvature / 2 + rounding or self.model.scale > GIVE_UP:
                break
            self.model.scale *= ENLARGE
        # Downhill from `near` leads to `new`: momentum that leads elsewhere is dropped.
        uphill = -float((pull * (new.coef - self.point.coef)).sum()) > 0
        self.momentum = 1.0 if uphill else following
        self.last, self.point = self.point, new
        self.age += 1
        if self.age >= self.model.longest_age or self.model.scale > LARGEST_SCALE:
            self._renew()

    def _renew(self) -> None:
        """Take the curvature where we are now, and start anew from here."""
        if self.model.scale > LARGEST_SCALE:
            self.model.scale = self.model.first_scale
        self.model.build(self.point.logits)
        self.age, self.momentum = 0, 1.0

    def _balance(self, coef: np.ndarray) -> None:
        """Shift a concept's weights for all classes alike to where the penalty is least: the loss does not see it, so
        that steps along it would be slow."""
        columns = np.flatnonzero(self.model.allowed.all(axis=0))
        if len(columns):
            coef[:, columns] += best_shift(coef[:, columns], self.penalty)

    def _above(self, near: HeadPoint, new: HeadPoint, probabilities: np.ndarray) -> float:
        """How far the loss at `new` is above its tangent at `near`, without the cancellation of a plain difference."""
        change = new.logits - near.logits
        change -= (probabilities * change).sum(axis=0)
        rise = (probabilities * (np.exp(change) - 1 - change)).sum(axis=0)
        return float(self.problem.design.share @ np.log1p(rise))
