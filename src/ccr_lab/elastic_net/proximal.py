"""One elastic-net problem of the softmax head, by an accelerated proximal method in the metric of its own curvature.

Around a point y the loss is replaced by its slope and `scale` times its curvature on the weights that may be active:
Z' (diag(p) - p p') Z if they are few, which makes it Newton's method, else Z' diag(p (1 - p)) Z for each class by
itself, where Var_p(v) <= 2 sum_c p_c (1 - p_c) v_c^2 makes scale 2 enough. That quadratic with the penalty is solved by
coordinate descent, the intercept eliminated. Each step checks that the loss is below its model, enlarges the scale if
not, and then takes the curvature anew where it arrived. Steps are extrapolated as in FISTA, and the momentum is dropped
where it points uphill. Logits are linear in the weights, so that those of y cost no product with the codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccr_lab.elastic_net.curvature import Model, Penalty, Point, Problem, residuals

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


class Solution(NamedTuple):
    point: Point
    violation: float
    n_iter: int


def violation(coef: np.ndarray, slopes: np.ndarray, bias_slopes: np.ndarray, penalty: Penalty) -> float:
    """Largest distance of 0 from the subgradients: of weights as a share of alpha, of intercepts as it is."""
    return max(float(np.abs(bias_slopes).max()), float(_misses(coef, slopes, penalty).max(initial=0.0)))


def _misses(coef: np.ndarray, slopes: np.ndarray, penalty: Penalty) -> np.ndarray:
    active = np.abs(slopes + penalty.l2 * coef + penalty.l1 * np.sign(coef))
    return np.where(coef != 0, active, np.maximum(np.abs(slopes) - penalty.l1, 0.0)) / penalty.alpha


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


def solve(problem: Problem, penalty: Penalty, start: Point, *, before: float, tol: float, max_iter: int) -> Solution:
    """The head that is optimal to `tol`, from a start that is optimal for a penalty of strength `before` or so."""
    return _Search(problem, penalty, start, before, tol).run(max_iter)


class _Search:
    """The iteration for one alpha: the point, the one before, and the model around them."""

    def __init__(self, problem: Problem, penalty: Penalty, start: Point, before: float, tol: float) -> None:
        self.problem, self.penalty, self.tol = problem, penalty, tol
        self.last = self.point = start
        self.momentum, self.age = 1.0, 0
        self.every = np.arange(problem.design.shape[1])
        self.slopes = problem.design.slopes(residuals(problem, start.logits)[1], self.every)
        # The strong rule: slopes rarely grow by more than the penalty falls.
        bar = max(2 * penalty.alpha - before, penalty.alpha / 2) * penalty.l1_ratio
        self.model = Model(problem, (start.coef != 0) | (np.abs(self.slopes) >= bar))
        self._look_at_columns()
        self.model.build(start.logits)

    def run(self, max_iter: int) -> Solution:
        best, miss, since = self.point, np.inf, 0
        for number in range(1, max_iter + 1):
            near, following = self._extrapolated()
            probabilities, residual = residuals(self.problem, near.logits)
            slopes, bias_slopes = self._slopes(residual, near.coef), residual.sum(axis=1, dtype=np.float64)
            worst = violation(near.coef, slopes, bias_slopes, self.penalty)
            if worst <= self.tol and len(self.columns) < len(self.every):
                slopes = self.problem.design.slopes(residual, self.every)
                worst = violation(near.coef, slopes, bias_slopes, self.penalty)
            if worst < miss:
                best, miss, since = near, worst, number
            if worst <= self.tol:
                return Solution(near, worst, number)
            if number - since >= STALLED:
                break
            self._admit(near, slopes)
            self._advance(near, following, probabilities, slopes, bias_slopes)
        residual = residuals(self.problem, best.logits)[1]
        slopes, bias_slopes = self.problem.design.slopes(residual, self.every), residual.sum(axis=1, dtype=np.float64)
        return Solution(best, violation(best.coef, slopes, bias_slopes, self.penalty), number)

    def _extrapolated(self) -> tuple[Point, float]:
        following = (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        beta = (self.momentum - 1) / following
        if beta == 0:
            return self.point, following
        return Point(
            *(now + now.dtype.type(beta) * (now - old) for now, old in zip(self.point, self.last, strict=True))
        ), following

    def _slopes(self, residual: np.ndarray, coef: np.ndarray) -> np.ndarray:
        if len(self.columns) == len(self.every):
            return self.problem.design.slopes(residual, self.every)
        slopes = np.zeros_like(coef)  # elsewhere weights are zero, and slopes are looked at in the end
        slopes[:, self.columns] = self.problem.design.slopes(residual, self.columns)
        return slopes

    def _look_at_columns(self) -> None:
        columns = np.flatnonzero(self.model.allowed.any(axis=0))
        self.columns = columns if 2 * len(columns) < len(self.every) else self.every

    def _admit(self, near: Point, slopes: np.ndarray) -> None:
        """Let weights move whose slope is too large for them to stay zero."""
        wanted = ~self.model.allowed & (np.abs(slopes) > self.penalty.l1)
        if wanted.any():
            self.model.allowed |= wanted
            self._look_at_columns()
            self.model.build(near.logits, wanted.any(axis=1))

    def _advance(
        self, near: Point, following: float, probabilities: np.ndarray, slopes: np.ndarray, bias_slopes: np.ndarray
    ) -> None:
        """One step from `near`, with a model that is not below the loss there."""
        miss = float(_misses(near.coef, slopes, self.penalty).max())
        tol = INNER * self.penalty.alpha * min(max(miss, self.tol / 2), 1.0)
        while True:
            coef, intercept, curvature, pull = self.model.minimise(near, slopes, bias_slopes, self.penalty, tol)
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

    def _above(self, near: Point, new: Point, probabilities: np.ndarray) -> float:
        """How far the loss at `new` is above its tangent at `near`, without the cancellation of a plain difference."""
        change = new.logits - near.logits
        change -= (probabilities * change).sum(axis=0)
        rise = (probabilities * (np.exp(change) - 1 - change)).sum(axis=0)
        return float(self.problem.design.share @ np.log1p(rise))
