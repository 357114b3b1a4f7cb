"""Algorithm 1 (docs/method.md): the surrogate's squared loss on the testbed, refined inside Euclidean balls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccr.core.geometry import project_to_ball
from ccr.errors import CCRError


class LossAndGradient(NamedTuple):
    loss: float
    gradient: np.ndarray


@dataclass(frozen=True, eq=False)
class SquaredRefinement:
    """The last dictionary (n, d) and the losses before each step and after the last (steps + 1)."""

    dictionary: np.ndarray
    losses: np.ndarray


def squared_loss(dictionary: np.ndarray, X: np.ndarray, beta: np.ndarray, *, length: int) -> LossAndGradient:
    """Mean over samples of `sum_{i in S} (<d_i, x> - beta_i)^2 + sum_{i not in S} beta_i^2`, S the top `length` of
    |<d_i, x>|, with its gradient (n, d).

    X (m, d) holds `x = sum_i beta_i d*_i`, `beta` (m, n) the true coefficients. It is the expected squared
    error of the surrogate that reads coefficients off D and is answered by the true features.
    """
    scores = X @ dictionary.T
    selected = _top(np.abs(scores), length)
    error = np.where(selected, scores - beta, 0.0)
    missed = np.where(selected, 0.0, beta)
    loss = float((error**2).sum() + (missed**2).sum()) / len(X)
    return LossAndGradient(loss, 2.0 / len(X) * error.T @ X)


def refine_squared(
    dictionary: np.ndarray,
    X: np.ndarray,
    beta: np.ndarray,
    *,
    length: int,
    radius: float,
    rate: float,
    steps: int,
    watch: Callable[[int, np.ndarray], None] | None = None,
) -> SquaredRefinement:
    """Projected gradient descent on `squared_loss`, every row within `radius` of where it started (Algorithm 1).

    Unit norm is not enforced. `watch(step, dictionary)` sees every iterate, the start (step 0) included.
    """
    if rate < 0 or steps < 0:
        raise CCRError(f"rate and steps must not be negative, got rate={rate} and steps={steps}")
    start = np.array(dictionary, dtype=np.float64)
    current, losses = start, []
    for step in range(steps):
        if watch is not None:
            watch(step, current)
        loss, slope = squared_loss(current, X, beta, length=length)
        losses.append(loss)
        current = project_to_ball(current - rate * slope, start, radius)
    if watch is not None:
        watch(steps, current)
    losses.append(squared_loss(current, X, beta, length=length).loss)
    return SquaredRefinement(current, np.array(losses))


def _top(values: np.ndarray, length: int) -> np.ndarray:
    """True at the `length` largest entries of each row."""
    best = np.argpartition(values, -length, axis=1)[:, -length:]
    chosen = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(chosen, best, True, axis=1)
    return chosen
