"""The softmax loss of a head on centred codes, its curvature, and coordinate descent on that quadratic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ccr.kernels.compiling import compiled

#: Up to this many products (rows times weights squared) and weights, the curvature of all classes is taken together.
JOINT_WORK, JOINT_WEIGHTS = 3e9, 1000
#: Steps after which curvature is taken anew.
LONGEST_AGE, LONGEST_AGE_JOINT = 60, 4
#: Sweeps of coordinate descent over the quadratic.
SWEEPS, SWEEPS_JOINT = 300, 3000
#: Curvature below this is taken to be this.
LEAST_CURVATURE = 1e-15


class Penalty(NamedTuple):
    alpha: float
    l1_ratio: float

    @property
    def l1(self) -> float:
        return self.alpha * self.l1_ratio

    @property
    def l2(self) -> float:
        return self.alpha * (1 - self.l1_ratio)


class HeadPoint(NamedTuple):
    """Weights (classes, n), intercept (classes,) for centred codes, and the logits (classes, m) they give."""

    coef: np.ndarray
    intercept: np.ndarray
    logits: np.ndarray


class HeadProblem(NamedTuple):
    """A problem of the elastic net: codes, class numbers, and which weights (classes, n) may differ from zero (None:
    all)."""

    design: Design
    y: np.ndarray
    classes: int
    permitted: np.ndarray | None = None

    def at(self, coef: np.ndarray, intercept: np.ndarray) -> HeadPoint:
        return HeadPoint(coef, intercept, self.design.logits(coef, intercept))

    def gradient(self, residual: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The gradient of the loss in the weights of these columns; 0 for weights that are not permitted, so that they
        never leave zero."""
        gradient = self.design.gradient(residual, columns)
        if self.permitted is not None:
            gradient *= self.permitted[:, columns]
        return gradient


class Block(NamedTuple):
    """Curvature on some weights: their class numbers and columns, the matrix with the intercepts of the `owners`
    eliminated, the inverse of the intercepts' own curvature, and how they follow the weights (weights, owners)."""

    numbers: np.ndarray
    columns: np.ndarray
    owners: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    follow: np.ndarray


def residuals(problem: HeadProblem, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and the gradient of the loss in the logits, both (classes, m)."""
    probabilities = np.exp(logits - logits.max(axis=0))
    probabilities /= probabilities.sum(axis=0)
    share = problem.design.share.astype(logits.dtype)
    residual = probabilities * share
    residual[problem.y, np.arange(len(problem.y))] -= share
    return probabilities, residual


@dataclass
class Quadratic:
    """The quadratic that stands for the loss on the weights in `allowed` (classes, n): `scale` times its curvature,
    that of all classes together if they are few weights, else of each class by itself."""

    problem: HeadProblem
    allowed: np.ndarray
    scale: float = 0.0

    def __post_init__(self) -> None:
        self.blocks: list[Block] = []
        self.joint = False

    @property
    def first_scale(self) -> float:
        classes = self.problem.classes
        return 1.0 if self.joint or classes == 1 else classes / (classes - 1)

    @property
    def longest_age(self) -> int:
        return LONGEST_AGE_JOINT if self.joint else LONGEST_AGE

    def build(self, logits: np.ndarray, changed: np.ndarray | None = None) -> None:
        """Take the curvature at these logits, for all classes or those that `changed`."""
        before, size = self.joint, int(self.allowed.sum())
        self.joint = size <= JOINT_WEIGHTS and self.problem.design.shape[0] * size**2 <= JOINT_WORK
        probabilities = residuals(self.problem, logits)[0]
        if self.joint:
            self.blocks = [self._together(probabilities)]
        elif changed is None or before:
            self.blocks = [self._alone(probabilities, number) for number in range(self.problem.classes)]
        else:
            for number in np.flatnonzero(changed):
                self.blocks[number] = self._alone(probabilities, int(number))
        if before != self.joint or self.scale == 0:
            self.scale = self.first_scale

    def _alone(self, probabilities: np.ndarray, number: int) -> Block:
        columns, share = np.flatnonzero(self.allowed[number]), self.problem.design.share.astype(probabilities.dtype)
        weight = share * (probabilities[number] * (1 - probabilities[number]))
        total, first, second = self.problem.design.moments(weight, columns)
        total = max(total, LEAST_CURVATURE)
        matrix, follow = second - np.outer(first, first) / total, first[:, None] / total
        return Block(
            np.full(len(columns), number), columns, np.array([number]), matrix, np.array([[1 / total]]), follow
        )

    def _together(self, probabilities: np.ndarray) -> Block:
        """Z' (diag(p) - p p') Z over all classes, intercepts first."""
        numbers, columns = np.nonzero(self.allowed)
        classes, owners = self.problem.classes, np.arange(self.problem.classes)
        whole = -self.problem.design.products(probabilities, numbers, columns)
        whole[owners, owners] += probabilities @ self.problem.design.share
        for number in owners:
            own = np.flatnonzero(numbers == number)
            weight = self.problem.design.share.astype(probabilities.dtype) * probabilities[number]
            _, first, second = self.problem.design.moments(weight, columns[own])
            whole[np.ix_(classes + own, classes + own)] += second
            whole[classes + own, number] += first
            whole[number, classes + own] += first
        inverse = np.linalg.pinv(whole[:classes, :classes], rcond=1e-10, hermitian=True)
        follow = whole[classes:, :classes] @ inverse
        matrix = whole[classes:, classes:] - follow @ whole[:classes, classes:]
        return Block(numbers, columns, owners, (matrix + matrix.T) / 2, inverse, follow)

    def minimise(
        self, start: HeadPoint, gradient: np.ndarray, bias_gradient: np.ndarray, penalty: Penalty, tol: float
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Weights and intercept that minimise model + penalty, the model's curvature along that step (d' M d), and
        M times the step of the weights (classes, n), intercept eliminated."""
        coef, intercept, pull = start.coef.copy(), start.intercept.copy(), np.zeros_like(start.coef)
        curvature, sweeps = 0.0, SWEEPS_JOINT if self.joint else SWEEPS
        for numbers, columns, owners, matrix, inverse, follow in self.blocks:
            own_bias = bias_gradient[owners]
            eliminated = gradient[numbers, columns] - follow @ own_bias
            before = start.coef[numbers, columns]
            weights, updated = before.copy(), eliminated.copy()
            descend(matrix, self.scale, penalty.l1, penalty.l2, tol, sweeps, weights, updated)
            step, moved = weights - before, updated - eliminated
            coef[numbers, columns], pull[numbers, columns] = weights, moved
            along = -inverse @ own_bias / self.scale
            intercept[owners] += along - step @ follow
            curvature += float(step @ moved) - float(along @ own_bias)
        return coef, intercept, curvature, pull


#: Up to this many entries dense codes are worked on in float64.
SMALL = 2_000_000
#: Entries of a piece of dense codes.
PIECE = 1 << 19


class ColumnMoments(NamedTuple):
    """Weighted sums over the rows: `total` of the weights, `first` (a,) of w z, `second` (a, a) of w z z'."""

    total: float
    first: np.ndarray
    second: np.ndarray


class Design:
    """Dense codes (m, n) from which the mean of each column is subtracted in every product.

    Sums over rows are taken in float64, also where the codes are float32. Where a mean is large beside the spread,
    the codes are copied, so that no digits are lost; otherwise dense float32 codes stay where they are.
    """

    def __init__(self, codes: np.ndarray) -> None:
        self.codes = np.ascontiguousarray(codes, np.float64 if codes.size <= SMALL else np.float32)
        self.share = np.full(len(codes), 1 / len(codes))
        self.offset = np.zeros(self.shape[1])
        self.mean, spread = self._mean_and_spread()
        if (np.abs(self.mean) > 0.3 * spread).any():
            shift = self.mean.astype(self.dtype)
            self.codes = self.codes - shift
            self.offset, self.mean = shift.astype(np.float64), self._mean_and_spread()[0]

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])

    @property
    def dtype(self) -> Any:
        return self.codes.dtype

    @property
    def center(self) -> np.ndarray:
        """The mean that is subtracted from the codes as they were given (n,)."""
        return self.offset + self.mean

    def logits(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """coef (classes, n) times the codes, plus the intercept: (classes, m)."""
        columns = np.flatnonzero(coef.any(axis=0))
        if 4 * len(columns) > self.shape[1]:  # copying columns costs more than multiplying by zeros
            columns = np.arange(self.shape[1])
        weights = coef[:, columns].astype(self.dtype)
        out = np.empty((len(coef), self.shape[0]), self.dtype)
        for rows in self._pieces():
            np.matmul(weights, self._columns(rows, columns).T, out=out[:, rows])
        out += (intercept - coef[:, columns] @ self.mean[columns]).astype(self.dtype)[:, None]
        return out

    def gradient(self, residual: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """residual (classes, m) times these columns: (classes, len(columns)), float64."""
        total = np.zeros((len(residual), len(columns)))
        for rows in self._pieces():
            total += residual[:, rows] @ self._columns(rows, columns)
        return total - np.outer(residual.sum(axis=1, dtype=np.float64), self.mean[columns])

    def moments(self, weight: np.ndarray, columns: np.ndarray) -> ColumnMoments:
        """Sums over the rows with weights `weight` (m,) >= 0, of these columns measured from their mean."""
        total = float(weight.sum(dtype=np.float64))
        raw, second = np.zeros(len(columns)), np.zeros((len(columns), len(columns)))
        for rows in self._pieces():
            part = self._columns(rows, columns)
            weighted = part * weight[rows, None]
            raw += weighted.sum(axis=0, dtype=np.float64)
            second += weighted.T @ part
        mean = self.mean[columns]
        cross = np.outer(raw, mean)
        return ColumnMoments(total, raw - total * mean, second - cross - cross.T + total * np.outer(mean, mean))

    def products(self, factors: np.ndarray, numbers: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Sums over the rows, by share, of v v', where v holds the factors (classes, m) of a row and then, for each
        pair of `numbers` and `columns`, the factor times the column measured from its mean. float64."""
        classes = len(factors)
        total = np.zeros((classes + len(columns), classes + len(columns)))
        step = max(64, PIECE // len(total))
        for start in range(0, self.shape[0], step):
            rows = slice(start, start + step)
            part = self.codes[rows][:, columns].astype(np.float64) - self.mean[columns]
            factor = factors[:, rows].T.astype(np.float64)
            both = np.hstack([factor, part * factor[:, numbers]]) * np.sqrt(self.share[rows])[:, None]
            total += both.T @ both
        return total

    def _mean_and_spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and root mean square of each column."""
        mean, square = np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for rows in self._pieces():
            part, share = self.codes[rows], self.share[rows].astype(self.dtype)
            mean += share @ part
            square += share @ (part * part)
        return mean, np.sqrt(square)

    def _pieces(self) -> list[slice]:
        size = max(256, PIECE // self.shape[1])
        return [slice(start, start + size) for start in range(0, self.shape[0], size)]

    def _columns(self, rows: slice, columns: np.ndarray) -> np.ndarray:
        part = self.codes[rows]
        return part if len(columns) == self.shape[1] else part.take(columns, axis=1)


@compiled
def _sweep(gram, scale, l1, l2, everywhere, x, gradient):  # type: ignore[no-untyped-def]
    """Minimise over each entry in turn, all of them or those that are not zero; the largest change of a gradient."""
    largest = 0.0
    for j in range(len(x)):
        before = x[j]
        if not everywhere and before == 0.0:
            continue
        curvature = scale * gram[j, j]
        if curvature + l2 <= 0.0:
            continue
        aim = curvature * before - gradient[j]
        size = abs(aim) - l1
        after = 0.0
        if size > 0.0:
            after = size / (curvature + l2)
            if aim < 0.0:
                after = -after
        step = after - before
        if step != 0.0:
            x[j] = after
            scaled, line = scale * step, gram[j]
            for i in range(len(x)):
                gradient[i] += scaled * line[i]
            largest = max(largest, abs(step) * (curvature + l2))
    return largest


@compiled
def descend(gram, scale, l1, l2, tol, sweeps, x, gradient):  # type: ignore[no-untyped-def]
    """Minimise <gradient, d> + scale/2 d' gram d + l1 |x + d|_1 + l2/2 |x + d|^2; x becomes x + d, and the gradient is
    updated with it.

    `gram` (n, n) float64, symmetric. Ends when a sweep over all entries changes no entry of the gradient by more than
    `tol`, or after `sweeps` sweeps; between two of those it works on the entries that are not zero. Returns the sweeps
    made.
    """
    made = 0
    while made < sweeps:
        made += 1
        if _sweep(gram, scale, l1, l2, True, x, gradient) <= tol:
            break
        while made < sweeps:
            made += 1
            if _sweep(gram, scale, l1, l2, False, x, gradient) <= tol:
                break
    return made


def warm_up() -> None:
    """Compile the coordinate descent now, or load it, so that a clock that starts afterwards does not see it."""
    descend(np.ones((1, 1)), 1.0, 0.5, 0.1, 1e-6, 10, np.ones(1), np.ones(1))
