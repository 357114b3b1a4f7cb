"""The elastic-net path of the softmax head: few weights per class, for one strength of the penalty after the other.

A weight is the difference of two numbers >= 0, whose sum is its absolute value where one of them is 0, as it is at the
optimum. So the penalty is smooth on a box, and SciPy's L-BFGS-B finds the optimum, zeros included. The strong rule
(Tibshirani et al. 2012) says which weights are worth looking at; the others are looked at in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from ccr.coding.heads import LinearHead, lbfgs
from ccr.errors import CCRError

#: Share of rows that a class without rows is taken to have, so that its intercept is finite.
LEAST_SHARE = 1e-12
#: Times that weights which the strong rule missed are let in, or that a search that stalled begins anew.
ROUNDS = 20
#: Multiplications of a gradient from which several threads are worth waking.
WORTH_THREADS = 10_000_000


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
    max_iter: int = 5000,
    tol: float = 1e-3,
    stop: Callable[[LinearHead], bool] | None = None,
) -> ElasticNetPath:
    """The heads that minimise for each alpha, on fixed codes (m, n), the mean cross-entropy plus

        alpha * (l1_ratio |coef|_1 + (1 - l1_ratio)/2 |coef|^2),

    the intercept free. `y` holds class numbers below `classes`. Without `alphas`, the grid starts where all weights are
    zero (`largest_alpha`) and falls geometrically to `alpha_ratio` times that in `n_alphas` steps. Every alpha starts
    from the solution before, the first one from `start`, and ends when `optimality_violation` is at most `tol`, or
    after `max_iter` iterations. Weights that are not `permitted` (classes, n) stay zero. The path ends early after a
    head for which `stop(head)` is true.
    """
    if not 0 < l1_ratio <= 1:
        raise CCRError(f"l1_ratio must be in (0, 1], got {l1_ratio}: 0 would make no weight zero; try 0.99")
    problem = _Problem.of(codes, y, classes, permitted)
    head = problem.empty()
    top = problem.largest(l1_ratio)
    # Codes that say nothing give zero weights for every alpha.
    grid = np.array(alphas, np.float64) if alphas is not None else (top or 1.0) * np.geomspace(1, alpha_ratio, n_alphas)
    before = max(top, grid[0])
    if start is not None:
        head, before = problem.centred(start), 1.2 * grid[0]
    heads: list[LinearHead] = []
    violations: list[float] = []
    for alpha in grid.tolist():
        # Small products are over before a second thread of the BLAS has woken up; on a busy machine they wait for it.
        with threadpool_limits(1 if codes.size * classes < WORTH_THREADS else None):
            head, worst = problem.solve(head, alpha, l1_ratio, before=before, tol=tol, max_iter=max_iter)
        before = alpha
        heads.append(LinearHead(head.coef, head.intercept - head.coef @ problem.center))
        violations.append(worst)
        if stop is not None and stop(heads[-1]):
            break
    return ElasticNetPath(grid[: len(heads)], tuple(heads), np.array(violations))


def optimality_violation(
    head: LinearHead, codes: np.ndarray, y: np.ndarray, *, alpha: float, l1_ratio: float = 0.99
) -> float:
    """Violation of optimality by a head for its alpha; 0 at the optimum.

    The largest distance of 0 from the subgradients of a weight, as a share of alpha, or of an intercept (the
    difference between the predicted and the true share of a class), whichever is larger. Gradients of weights are taken
    with codes measured from their mean, so that they do not depend on where codes are zero.
    """
    problem = _Problem.of(codes, y, len(head.intercept))
    return problem.violation(problem.centred(head), alpha, l1_ratio)[0]


def largest_alpha(codes: np.ndarray, y: np.ndarray, *, classes: int, l1_ratio: float = 0.99) -> float:
    """The smallest alpha for which all weights are zero: the largest gradient at zero weights, divided by l1_ratio."""
    return _Problem.of(codes, y, classes).largest(l1_ratio)


class _Problem(NamedTuple):
    """Codes measured from their mean, the `center`, class numbers, and which weights (classes, n) may differ from 0."""

    codes: np.ndarray
    center: np.ndarray
    y: np.ndarray
    permitted: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, y: np.ndarray, classes: int, permitted: np.ndarray | None = None) -> _Problem:
        center = codes.mean(axis=0, dtype=np.float64)
        mask = np.ones((classes, codes.shape[1]), bool) if permitted is None else permitted
        return cls(codes - center, center, y.astype(np.int64), mask)

    def centred(self, head: LinearHead) -> LinearHead:
        """A head on codes as they were given, as one on the centred codes."""
        coef = head.coef.astype(np.float64)
        return LinearHead(coef, head.intercept + coef @ self.center)

    def empty(self) -> LinearHead:
        """Zero weights, and the intercept that is best for them: the logarithm of each class's share."""
        share = np.bincount(self.y, minlength=len(self.permitted)) / len(self.y)
        return LinearHead(np.zeros(self.permitted.shape), np.log(np.maximum(share, LEAST_SHARE)))

    def largest(self, l1_ratio: float) -> float:
        return float(np.abs(self.gradient(self.empty()).coef).max()) / l1_ratio

    def loss(self, codes: np.ndarray, head: LinearHead) -> tuple[float, np.ndarray]:
        """Mean cross-entropy of a head on some columns of the codes, and its gradient in the logits (m, classes)."""
        rows, log_p = np.arange(len(self.y)), log_softmax(codes @ head.coef.T + head.intercept, axis=1)
        residual = np.exp(log_p)
        residual[rows, self.y] -= 1.0
        return -float(log_p[rows, self.y].mean()), residual / len(rows)

    def gradient(self, head: LinearHead) -> LinearHead:
        """The gradient of the loss, 0 for weights that are not permitted."""
        _, residual = self.loss(self.codes, head)
        return LinearHead((residual.T @ self.codes) * self.permitted, residual.sum(axis=0))

    def violation(self, head: LinearHead, alpha: float, l1_ratio: float) -> tuple[float, np.ndarray]:
        """The `optimality_violation`, and the gradient of the weights (classes, n)."""
        coef, gradient = head.coef, self.gradient(head)
        l1, l2 = alpha * l1_ratio, alpha * (1 - l1_ratio)
        active = np.abs(gradient.coef + l2 * coef + l1 * np.sign(coef))
        misses = np.where(coef != 0, active, np.maximum(np.abs(gradient.coef) - l1, 0.0)) / alpha
        return max(float(np.abs(gradient.intercept).max()), float(misses.max(initial=0.0))), gradient.coef

    def solve(
        self, head: LinearHead, alpha: float, l1_ratio: float, *, before: float, tol: float, max_iter: int
    ) -> tuple[LinearHead, float]:
        """The best head for one alpha, and its violation. `head` is best for the alpha `before`, or so."""
        worst, gradient = self.violation(head, alpha, l1_ratio)
        # The strong rule: gradients rarely grow by more than the penalty falls.
        bar = l1_ratio * max(2 * alpha - before, alpha / 2)
        for number in range(ROUNDS):
            if worst <= tol:
                break
            allowed = (head.coef != 0) | (self.permitted & (np.abs(gradient) >= bar))
            # Searched a little further each time: what ends a search is near to what is measured, but not the same.
            head = self._searched(head, allowed, alpha, l1_ratio, tol=0.7**number * tol * alpha / 2, max_iter=max_iter)
            worst, gradient = self.violation(head, alpha, l1_ratio)
            bar = l1_ratio * alpha
        return head, worst

    def _searched(
        self, start: LinearHead, allowed: np.ndarray, alpha: float, l1_ratio: float, *, tol: float, max_iter: int
    ) -> LinearHead:
        """The best head whose weights are 0 but for the `allowed` ones (classes, n)."""
        l1, l2 = alpha * l1_ratio, alpha * (1 - l1_ratio)
        columns = np.flatnonzero(allowed.any(axis=0))
        codes, mine = self.codes[:, columns], allowed[:, columns]
        classes, count = len(mine), int(mine.sum())

        def unpacked(flat: np.ndarray) -> LinearHead:
            coef = np.zeros(mine.shape)
            coef[mine] = flat[classes : classes + count] - flat[classes + count :]
            return LinearHead(coef, flat[:classes])

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            head = unpacked(flat)
            loss, residual = self.loss(codes, head)
            weights = head.coef[mine]
            slope = (residual.T @ codes)[mine] + l2 * weights
            value = loss + l1 * float(flat[classes:].sum()) + l2 / 2 * float(weights @ weights)
            return value, np.concatenate([residual.sum(axis=0), slope + l1, l1 - slope])

        weights = start.coef[allowed]
        flat = np.concatenate([start.intercept, np.maximum(weights, 0.0), np.maximum(-weights, 0.0)])
        least = np.concatenate([np.full(classes, -np.inf), np.zeros(2 * count)])
        found = unpacked(lbfgs(objective, flat, tol=tol, max_iter=max_iter, least=least))
        coef = np.zeros(allowed.shape)
        coef[:, columns] = found.coef
        return LinearHead(coef, found.intercept)
