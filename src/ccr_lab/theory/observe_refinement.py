"""Measurements behind the claims about refinement (Algorithm 1, docs/method.md)."""

from __future__ import annotations

import numpy as np

from ccr_lab.theory.refinement import (
    contraction,
    one_sample_limit,
    rate_limit,
    refine_worlds,
    spectral_event,
    spectrum,
)
from ccr_lab.theory.testbed import Testbed, Worlds, row_distance

#: Redraws before giving up on the spectral event.
PATIENCE = 20
#: Recovery is run until exact arithmetic would have left this part of the start error.
RECOVERED = 1e-3


def one_sample(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Loss(t+1) over its bound; departure from equality; movement outside the support; departure from the limit.

    Steps are in (0, 1/2) / |x|^2, as in the theorem; the radius is the start's own error.
    """
    worlds, start, radius, power = _one_sample_start(bed, count, rng)
    share = rng.uniform(0.02, 0.48, count)
    path = refine_worlds(worlds, start, radius=radius, rate=share / power, steps=10)
    bound = (1 - 2 * share) ** 2 * path.losses[:-1]
    equality = np.abs(path.losses[1:] - bound).max(axis=0) / path.losses[0]
    outside = np.where(worlds.support[:, 0, :, None], 0.0, path.dictionary - start)
    final = refine_worlds(worlds, start, radius=radius, rate=0.4 / power, steps=25).dictionary
    missing = row_distance(final, one_sample_limit(worlds, start)) / radius
    return np.stack([_loss_ratio(path.losses, bound, power), equality, np.abs(outside).max(axis=(1, 2)), missing])


def overshooting(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Loss(t+1) over (1 - 2 eta |x|^2)^2 loss(t) for eta in (1/2, 1) / |x|^2, half the rows erring along x.

    Only here does the ball bind: below 1/2 the iterates walk straight to a point inside it.
    """
    worlds, start, radius, power = _one_sample_start(bed, count, rng)
    along = worlds.X / np.sqrt(power)[:, None, None] * rng.choice((-1.0, 1.0), (count, bed.n, 1))
    start = np.where(rng.random((count, bed.n, 1)) < 0.5, worlds.truth + radius[:, None, None] * along, start)
    radius = row_distance(start, worlds.truth)
    share = rng.uniform(0.5, 1.0, count)
    path = refine_worlds(worlds, start, radius=radius, rate=share / power, steps=6)
    return _loss_ratio(path.losses, (1 - 2 * share) ** 2 * path.losses[:-1], power)[None]


def too_long_a_step(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Loss after over loss before one step of (1.05 to 2) / |x|^2, in a ball with room for it.

    In a tight ball the projection would catch some of these steps.
    """
    worlds = bed.draw(worlds=count, random_state=rng)
    start = worlds.start(bed.theorem_radius / 4, random_state=rng)
    rate = rng.uniform(1.05, 2.0, count) / (worlds.beta[:, 0] ** 2).sum(axis=1)
    path = refine_worlds(worlds, start, radius=bed.theorem_radius, rate=rate, steps=1)
    return (path.losses[1] / path.losses[0])[None]


def _one_sample_start(
    bed: Testbed, count: int, rng: np.random.Generator
) -> tuple[Worlds, np.ndarray, np.ndarray, np.ndarray]:
    """Worlds with one sample, a start within the theorem's radius, its actual error, and |x|^2."""
    worlds = bed.draw(worlds=count, random_state=rng)
    start = worlds.start(rng.uniform(0.05, 1.0, count) * bed.theorem_radius, random_state=rng)
    return worlds, start, row_distance(start, worlds.truth), (worlds.beta[:, 0] ** 2).sum(axis=1)


def _loss_ratio(losses: np.ndarray, bound: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Largest loss(t+1) / bound(t), less the rounding of <d_i, x> - beta_i, which goes with |x|, not with the loss."""
    rounding = 1e3 * np.finfo(float).eps * np.sqrt(power)
    return (np.maximum(np.sqrt(losses[1:]) - rounding, 0) ** 2 / np.maximum(bound, rounding**2)).max(axis=0)


def many_samples(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Distance(t+1) over tau distance(t), and loss over its bound, in worlds where the spectral event holds."""
    worlds = with_event(bed, count, rng)
    if not len(worlds):
        return np.empty((2, 0))
    rate = rng.uniform(0.1, 0.999, len(worlds)) * rate_limit(bed)
    start = worlds.start(rng.uniform(0.05, 1.0, len(worlds)) * bed.theorem_radius, random_state=rng)
    path = refine_worlds(worlds, start, radius=row_distance(start, worlds.truth), rate=rate, steps=4)
    power = (worlds.beta**2).sum(axis=2).mean(axis=1)
    accuracy = path.losses / (bed.k * power * path.distances**2)
    return np.stack([_worst_contraction(bed, path.distances, rate), accuracy.max(axis=0)])


def too_few_samples(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Distance(t+1) over tau distance(t) with so few samples that some concept is in none of them (k < n)."""
    worlds = bed.draw(worlds=count, samples=(bed.n - 1) // bed.k, random_state=rng)
    rate = rng.uniform(0.1, 0.999, count) * rate_limit(bed)
    start = worlds.start(bed.theorem_radius, random_state=rng, where="sphere")
    path = refine_worlds(worlds, start, radius=bed.theorem_radius, rate=rate, steps=4)
    return _worst_contraction(bed, path.distances, rate)[None]


def recovery(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Last over first distance to the truth, after enough steps."""
    return span_recovery(bed, count, rng)[:1]


def span_recovery(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Last over first distance to the truth, and how far anything moved outside the truth's span."""
    worlds = with_event(bed, count, rng)
    if not len(worlds):
        return np.empty((2, 0))
    start = worlds.start(bed.theorem_radius, random_state=rng)
    rate, steps = best_rate(worlds)
    path = refine_worlds(worlds, start, radius=bed.theorem_radius, rate=rate, steps=steps)
    moved = path.dictionary - start
    outside = moved - moved @ np.swapaxes(worlds.truth, 1, 2) @ worlds.truth
    return np.stack([path.distances[-1] / path.distances[0], np.abs(outside).max(axis=(1, 2))])


def any_start(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Largest growth of the distance in a step, over the first distance, from starts up to 3 away.

    beta_i = <d*_i, x> inside and outside the support, so every selected sample pulls a row towards its truth.
    """
    worlds = bed.draw(worlds=count, samples=int(rng.integers(1, 21)), random_state=rng)
    start = worlds.start(rng.uniform(0.1, 3.0, count), random_state=rng)
    moments = np.swapaxes(worlds.beta, 1, 2) @ worlds.beta / worlds.beta.shape[1]
    rate = rng.uniform(0.1, 1.0, count) / np.linalg.eigvalsh(moments)[:, -1]
    path = refine_worlds(worlds, start, radius=row_distance(start, worlds.truth), rate=rate, steps=6)
    return (np.diff(path.distances, axis=0).max(axis=0) / path.distances[0])[None]


def best_rate(worlds: Worlds, *, most: int = 2000) -> tuple[np.ndarray, int]:
    """The best constant step for these samples, and enough steps to leave `RECOVERED` of any error in the span.

    Such steps are far longer than the theorem's, which would need thousands.
    """
    values = spectrum(worlds)
    total = values.highest + values.lowest
    slowest = max(((values.highest - values.lowest) / total).max(), np.finfo(float).eps)
    needed = np.log(RECOVERED / 10) / np.log(slowest) if slowest < 1 else np.inf
    return 1 / total, int(np.ceil(min(most, needed)))


def with_event(bed: Testbed, count: int, rng: np.random.Generator) -> Worlds:
    """`count` worlds in which the spectral event holds; fewer if it stays rare."""
    kept, have = [], 0
    for _ in range(PATIENCE):
        worlds = bed.draw(worlds=count - have, samples=enough_samples(bed), random_state=rng)
        kept.append(worlds.take(spectral_event(bed, spectrum(worlds))))
        have += len(kept[-1])
        if have == count:
            break
    return Worlds(bed, np.concatenate([w.truth for w in kept]), np.concatenate([w.beta for w in kept]))


def enough_samples(bed: Testbed) -> int:
    """Samples with which the event is likely, by trying: every pair 32 times together, each concept 8 n times."""
    n, k = bed.n, bed.k
    return int(np.ceil(max(32 * n * (n - 1) / (k * (k - 1)), 8 * n * n / k)))


def _worst_contraction(bed: Testbed, distances: np.ndarray, rate: np.ndarray) -> np.ndarray:
    return (distances[1:] / (contraction(bed, rate) * distances[:-1])).max(axis=0)
