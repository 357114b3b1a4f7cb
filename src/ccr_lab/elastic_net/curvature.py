"""The softmax loss of a head and its curvature: what the elastic-net solver knows about a point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccr import kernels
from ccr_lab.elastic_net.design import Design

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


class Point(NamedTuple):
    """Weights (classes, n), intercept (classes,) for centred codes, and the logits (classes, m) they give."""

    coef: np.ndarray
    intercept: np.ndarray
    logits: np.ndarray


class Problem(NamedTuple):
    design: Design
    y: np.ndarray
    classes: int

    def at(self, coef: np.ndarray, intercept: np.ndarray) -> Point:
        return Point(coef, intercept, self.design.logits(coef, intercept))


class Block(NamedTuple):
    """Curvature on some weights: their class numbers and columns, the matrix with the intercepts of the `owners`
    eliminated, the inverse of the intercepts' own curvature, and how they follow the weights (weights, owners)."""

    numbers: np.ndarray
    columns: np.ndarray
    owners: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    follow: np.ndarray


def residuals(problem: Problem, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and the slope of the loss in the logits, both (classes, m)."""
    probabilities = np.exp(logits - logits.max(axis=0))
    probabilities /= probabilities.sum(axis=0)
    share = problem.design.share.astype(logits.dtype)
    residual = probabilities * share
    residual[problem.y, np.arange(len(problem.y))] -= share
    return probabilities, residual


@dataclass
class Model:
    """The quadratic that stands for the loss on the weights in `allowed` (classes, n): `scale` times its curvature,
    that of all classes together if they are few weights, else of each class by itself."""

    problem: Problem
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
        self, start: Point, slopes: np.ndarray, bias_slopes: np.ndarray, penalty: Penalty, tol: float
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Weights and intercept that minimise model + penalty, the model's curvature along that step (d' M d), and
        M times the step of the weights (classes, n), intercept eliminated."""
        coef, intercept, pull = start.coef.copy(), start.intercept.copy(), np.zeros_like(start.coef)
        curvature, sweeps = 0.0, SWEEPS_JOINT if self.joint else SWEEPS
        for numbers, columns, owners, matrix, inverse, follow in self.blocks:
            bias_slope = bias_slopes[owners]
            eliminated = slopes[numbers, columns] - follow @ bias_slope
            before = start.coef[numbers, columns]
            weights, slope = before.copy(), eliminated.copy()
            kernels.descend(matrix, self.scale, penalty.l1, penalty.l2, tol, sweeps, weights, slope)
            step, moved = weights - before, slope - eliminated
            coef[numbers, columns], pull[numbers, columns] = weights, moved
            along = -inverse @ bias_slope / self.scale
            intercept[owners] += along - step @ follow
            curvature += float(step @ moved) - float(along @ bias_slope)
        return coef, intercept, curvature, pull
