"""Algorithm 1 (docs/method.md): projected gradient descent in many worlds at once, and the quantities its theorems
speak of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ccr.errors import CCRError
from ccr_lab.theory.losses import surrogate
from ccr_lab.theory.testbed import Testbed, Worlds, per_world, row_distance

#: Sees every iterate: step, dictionary (worlds, n, d), loss (worlds,).
Watch = Callable[[int, np.ndarray, np.ndarray], None]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What each iterate was worth, the start included: arrays are (steps + 1, worlds)."""

    dictionary: np.ndarray
    losses: np.ndarray
    distances: np.ndarray


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Extreme eigenvalues over all concepts i of (1/m) sum_{h in Q_i} x x^T: each (worlds,)."""

    lowest: np.ndarray
    highest: np.ndarray


def refine_worlds(
    worlds: Worlds,
    dictionary: np.ndarray,
    *,
    radius: float | np.ndarray,
    rate: float | np.ndarray,
    steps: int,
    watch: Watch | None = None,
) -> Trajectory:
    """Algorithm 1 on the surrogate's loss, in all worlds at once.

    Parameters
    ----------
    dictionary : array (worlds, n, d)
        Where refinement starts, and the centres of its balls.
    radius, rate : float or array (worlds,)
        Radius of the balls and length of the step, not negative: one number, or one per world.
    watch : callable or None
        Sees every iterate, the start included.
    """
    _check(radius, rate, steps)
    X, start, radii, rates = worlds.X, np.array(dictionary, dtype=float), per_world(radius), per_world(rate)
    losses, distances, current = [], [], start
    for step in range(steps + 1):
        loss, slope, _ = surrogate(current, X, worlds.beta, length=worlds.testbed.k)
        losses.append(loss)
        distances.append(row_distance(current, worlds.truth))
        if watch is not None:
            watch(step, current, loss)
        if step < steps:
            current = start + into_ball(current - rates * slope - start, radii)
    return Trajectory(current, np.array(losses), np.array(distances))


def into_ball(moves: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Nearest moves of norm at most `radius`; shorter ones are returned unchanged."""
    norm = np.linalg.norm(moves, axis=-1, keepdims=True)
    shrink = radius / np.maximum(norm, np.finfo(float).tiny)
    return moves * np.minimum(1.0, shrink)


def one_sample_limit(worlds: Worlds, dictionary: np.ndarray) -> np.ndarray:
    """Where one sample takes each row: d_i + (beta_i - <x, d_i>) x / |x|^2 on the support, d_i elsewhere."""
    x = worlds.X[:, 0]
    gap = np.where(worlds.support[:, 0], worlds.beta[:, 0] - (dictionary @ x[:, :, None])[:, :, 0], 0.0)
    return dictionary + gap[:, :, None] * (x / (x**2).sum(axis=1, keepdims=True))[:, None, :]


def spectrum(worlds: Worlds) -> Spectrum:
    """The eigenvalues on which the many-sample theorem rests, taken inside the span of the truth.

    With n = d that is the whole space; the coefficients stand for the samples, since an orthonormal change of
    basis keeps eigenvalues.
    """
    beta = worlds.beta
    n, m = worlds.testbed.n, beta.shape[1]
    lowest, highest = np.full(len(worlds), np.inf), np.zeros(len(worlds))
    for world, codes in enumerate(beta):
        present = codes != 0
        moments = np.stack([codes[present[:, i]].T @ codes[present[:, i]] for i in range(n)]) / m
        values = np.linalg.eigvalsh(moments)
        lowest[world], highest[world] = values[:, 0].min(), values[:, -1].max()
    return Spectrum(lowest, highest)


def spectral_event(testbed: Testbed, values: Spectrum) -> np.ndarray:
    """Where lambda_min >= k(k-1) sigma^2 / (4 n^2) and lambda_max <= 4 k sigma^2 / n for every concept (worlds,)."""
    n, k, variance = testbed.n, testbed.k, testbed.variance
    enough = values.lowest >= k * (k - 1) * variance / (4 * n**2)
    return enough & (values.highest <= 4 * k * variance / n)


def rate_limit(testbed: Testbed) -> float:
    """Steps below (k-1) / (128 k sigma^2) are covered by the many-sample theorem (k >= 2)."""
    return (testbed.k - 1) / (128 * testbed.k * testbed.variance)


def contraction(testbed: Testbed, rate: np.ndarray) -> np.ndarray:
    """tau = sqrt(1 - k(k-1) sigma^2 eta / (2 n^2))."""
    k, n = testbed.k, testbed.n
    return np.sqrt(1 - k * (k - 1) * testbed.variance * rate / (2 * n**2))


def _check(radius: float | np.ndarray, rate: float | np.ndarray, steps: int) -> None:
    if np.any(np.asarray(radius) < 0) or np.any(np.asarray(rate) < 0) or steps < 0:
        raise CCRError(f"radius, rate and steps must not be negative, got {radius}, {rate} and {steps}")
