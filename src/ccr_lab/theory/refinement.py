"""Algorithm 1 (docs/method.md): projected gradient descent in many worlds at once, the quantities of its theorems, and
the measurements behind the claims on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ccr.errors import CCRError
from ccr_lab.theory.pursuit import surrogate
from ccr_lab.theory.testbed import Testbed, Worlds, per_world, row_distance

#: Sees every iterate: step, dictionary (worlds, n, d), loss (worlds,).
Watch = Callable[[int, np.ndarray, np.ndarray], None]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Losses and distances of each iterate, the start included: arrays are (steps + 1, worlds)."""

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
    """Limit to which one sample takes each row: d_i + (beta_i - <x, d_i>) x / |x|^2 on the support, d_i elsewhere."""
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
    """Mask of the worlds in which lambda_min >= k(k-1) sigma^2 / (4 n^2) and lambda_max <= 4 k sigma^2 / n for every
    concept (worlds,)."""
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
