"""The numbers behind the figures: the paper's synthetic runs, necessity against eps, the event, the phase diagrams,
also of images that are not isotropic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ccr.explain.terms import PlainResult
from ccr.space import ImageMetric
from ccr.utils.processes import OnProgress, no_progress
from ccr_lab.theory.pursuit import eps_limit, estimator_loss, loss_bound, rotated
from ccr_lab.theory.refinement import best_rate, refine_worlds, spectral_event, spectrum
from ccr_lab.theory.testbed import MappedWorlds, Testbed, Worlds, orthonormal_rows, row_distance


@dataclass(frozen=True, eq=False)
class SyntheticRun:
    """A column of the paper's figure: losses and distances (steps + 1, worlds), also over the first support only."""

    title: str
    testbed: Testbed
    samples: int
    paper_rate: float
    radius: float
    losses: np.ndarray
    distances: np.ndarray
    support_distances: np.ndarray


@dataclass(frozen=True, eq=False)
class NecessityCurve:
    """Losses (eps, worlds) of the rotated dictionary and the theorem's bound (eps,), which covers eps < `limit`."""

    testbed: Testbed
    eps: np.ndarray
    losses: np.ndarray
    bound: np.ndarray
    limit: float


@dataclass(frozen=True)
class EventFrequency(PlainResult):
    """Share of worlds in which the spectral event held, for every number of samples."""

    n: int
    k: int
    worlds: int
    samples: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class PhaseDiagram(PlainResult):
    """Median of last over first |D - D*|_{1,2}, (lengths, radii), where D starts anywhere in the rho-balls."""

    n: int
    samples: int
    worlds: int
    gamma: float
    Gamma: float
    lengths: np.ndarray
    radii: np.ndarray
    remaining: np.ndarray


def paper_runs(*, worlds: int = 10, seed: int = 0, shorten: int = 1) -> tuple[SyntheticRun, ...]:
    """The paper's three synthetic runs, repeated in independent worlds; `shorten` divides their numbers of steps.

    The released code minimises half the squared loss, so the paper's eta is twice the step taken here.
    """
    with threadpool_limits(1):
        return (
            _run("one sample, n = 8 < d", 8, 1, 1e-2, 1000 // shorten, worlds, seed),
            _run("100 samples, n = 8 < d", 8, 100, 1e-1, 2000 // shorten, worlds, seed),
            _run("100 samples, n = d = 10", 10, 100, 1e-1, 2000 // shorten, worlds, seed),
        )


def necessity_curve(*, points: int = 40, worlds: int = 50, seed: int = 0) -> NecessityCurve:
    """Loss of f_D for the rotated dictionary, eps from 1 % of what the theorem covers to four times it (at most 1)."""
    bed = Testbed(32, 48, 8)
    drawn, limit = bed.draw(worlds=worlds, random_state=seed), eps_limit(bed)
    eps = np.geomspace(0.01 * limit, min(4 * limit, 1.0), points)
    losses = np.array([estimator_loss(drawn, rotated(drawn, size)) for size in eps])
    return NecessityCurve(bed, eps, losses, loss_bound(bed, eps), limit)


def event_frequency(n: int, k: int, samples: Sequence[int], *, worlds: int = 100, seed: int = 0) -> EventFrequency:
    """Frequency of the spectral event of the many-sample theorem as the number of samples grows (n = d)."""
    bed, shares = Testbed(n, n, k), []
    with threadpool_limits(1):
        for m in samples:
            drawn = bed.draw(worlds=worlds, samples=m, random_state=np.random.default_rng([seed, n, k, m]))
            shares.append(float(spectral_event(bed, spectrum(drawn)).mean()))
    return EventFrequency(n, k, worlds, tuple(samples), tuple(shares))


def phase_diagram(
    *,
    n: int = 12,
    samples: int = 240,
    worlds: int = 4,
    radii: Sequence[float] | None = None,
    steps: int = 300,
    seed: int = 0,
    tell: OnProgress = no_progress,
) -> PhaseDiagram:
    """Refine from rho-balls far larger than the theorem's, for every k: where is D* still recovered?

    The step is the best constant one for the samples at hand, not the theorem's, which is safe and slow.

    Parameters
    ----------
    n : int
        Concepts and dimensions (n = d); every k from 1 to n is tried.
    samples, worlds : int
        Samples per world, and worlds per point.
    radii : sequence of float or None
        Radii of the start errors and of the balls; None: 14 from 0.02 to 2.
    steps : int
        Iterations at most.
    """
    sizes = np.asarray(radii if radii is not None else np.geomspace(0.02, 2.0, 14))
    lengths, rows = np.arange(1, n + 1), []
    with threadpool_limits(1):
        for k in lengths:
            rows.append(_phase_row(Testbed(n, n, int(k)), samples, worlds, sizes, steps, seed))
            tell(int(k), n, f"k = {k}")
    return PhaseDiagram(n, samples, worlds, 0.5, 1.0, lengths, sizes, np.array(rows))


def _run(title: str, n: int, samples: int, paper_rate: float, steps: int, worlds: int, seed: int) -> SyntheticRun:
    bed, radius = Testbed(n, 10, 5), 0.2
    rng = np.random.default_rng([seed, n, samples])
    drawn = bed.draw(worlds=worlds, samples=samples, random_state=rng)
    inside: list[np.ndarray] = []
    active = drawn.support[:, 0, :, None]

    def watch(step: int, dictionary: np.ndarray, loss: np.ndarray) -> None:
        inside.append(row_distance(dictionary * active, drawn.truth * active))

    start = drawn.start(radius, random_state=rng)
    path = refine_worlds(drawn, start, radius=radius, rate=paper_rate / 2, steps=steps, watch=watch)
    return SyntheticRun(title, bed, samples, paper_rate, radius, path.losses, path.distances, np.array(inside))


def _phase_row(bed: Testbed, samples: int, worlds: int, radii: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """All radii of one k side by side: the same worlds and directions of error, scaled."""
    rng = np.random.default_rng([seed, bed.n, bed.k])
    drawn = bed.draw(worlds=worlds, samples=samples, random_state=rng)
    errors = drawn.start(1.0, random_state=rng) - drawn.truth
    rate, enough = best_rate(drawn, most=steps)
    each = np.repeat(np.arange(worlds), len(radii))
    many, radius = drawn.take(each), np.tile(radii, worlds)
    start = many.truth + radius[:, None, None] * errors[each]
    path = refine_worlds(many, start, radius=radius, rate=rate[each], steps=enough)
    return np.median((path.distances[-1] / path.distances[0]).reshape(worlds, -1), axis=0)


#: Where refinement takes place: the encoder's space (None), or the images' metric at a shrinkage.
METRICS = (None, 0.5, 0.01)


@dataclass(frozen=True, eq=False)
class AnisotropyDiagram(PlainResult):
    """Median of last over first distance to the truth, (conditions, radii), in the metric of this `shrinkage` (None:
    the encoder's space). `conditions` are condition numbers of the images' covariance; distances are those of scores,
    root mean square over images, of the worst concept."""

    testbed: Testbed
    samples: int
    worlds: int
    steps: int
    shrinkage: float | None
    conditions: np.ndarray
    radii: np.ndarray
    remaining: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        fields = super().to_dict()
        bed = fields.pop("testbed")
        return {name: bed[name] for name in ("n", "d", "k")} | fields


def anisotropy_diagrams(
    *,
    testbed: Testbed | None = None,
    samples: int = 240,
    worlds: int = 3,
    conditions: Sequence[float] | None = None,
    radii: Sequence[float] | None = None,
    metrics: Sequence[float | None] = METRICS,
    steps: int = 300,
    seed: int = 0,
    tell: OnProgress = no_progress,
) -> list[AnisotropyDiagram]:
    """Refine the same worlds from the same starts in every one of the `metrics`: how much of the error is left?

    Samples of a testbed are stretched until their covariance has a given condition number, and concepts so that
    their scores stay what they were. Starts err alike in all directions of the encoder's space. The balls are as
    large as the start's error in the metric at hand, and hold the truth; the step is half of the longest with which
    the distance there never grows (claim *any start*): the longest only turns the widest direction around.

    Parameters
    ----------
    testbed : Testbed or None
        With n = d; None: n = d = 12, k = 5.
    samples, worlds : int
        Samples per world, and worlds per point.
    conditions, radii : sequence of float or None
        Condition numbers, at least 1, and distances of the starts; None: 9 from 1 to 10,000 and 8 from 0.02 to 2.
    metrics : sequence of float or None
        Shrinkages of the images' metric, in (0, 1]; None: the encoder's space.
    steps : int
        Iterations.
    """
    bed = testbed or Testbed(12, 12, 5)
    stretches = np.asarray(conditions if conditions is not None else np.geomspace(1.0, 1e4, 9))
    sizes = np.asarray(radii if radii is not None else np.geomspace(0.02, 2.0, 8))
    rows: list[list[np.ndarray]] = [[] for _ in metrics]
    with threadpool_limits(1):
        for done, condition in enumerate(stretches, start=1):
            scene = _stretched(bed, samples, worlds, float(condition), seed)
            for row, shrinkage in zip(rows, metrics, strict=True):
                row.append(_remaining(*scene, sizes, shrinkage, steps))
            tell(done, len(stretches), f"condition number {condition:.0f}")
    return [
        AnisotropyDiagram(bed, samples, worlds, steps, shrinkage, stretches, sizes, np.array(row))
        for shrinkage, row in zip(metrics, rows, strict=True)
    ]


def _stretched(
    bed: Testbed, samples: int, worlds: int, condition: float, seed: int
) -> tuple[MappedWorlds, np.ndarray, np.ndarray]:
    """Stretched worlds, unit errors (in scores, worst row) of their starts, and the stretch (worlds, d, d)."""
    rng = np.random.default_rng([seed, bed.n, bed.k])
    drawn = bed.draw(worlds=worlds, samples=samples, random_state=rng)
    turn = orthonormal_rows(bed.d, bed.d, worlds=worlds, random_state=rng)
    stretch, inverse = (
        np.swapaxes(turn, 1, 2) * np.geomspace(1.0, condition ** (sign / 2), bed.d) @ turn for sign in (1, -1)
    )
    errors = drawn.start(1.0, random_state=rng) - drawn.truth
    worst = row_distance(errors @ stretch, np.zeros_like(errors))
    return MappedWorlds.of(drawn, stretch, inverse), errors / worst[:, None, None], stretch


def _remaining(
    worlds: MappedWorlds,
    errors: np.ndarray,
    stretch: np.ndarray,
    radii: np.ndarray,
    shrinkage: float | None,
    steps: int,
) -> np.ndarray:
    """Last over first distance of scores (radii,), the median over worlds, after refinement in one metric."""
    seen: Worlds = worlds
    back = np.broadcast_to(np.eye(worlds.testbed.d), stretch.shape)
    if shrinkage is not None:
        metrics = [ImageMetric.fit(x.T @ x / len(x), shrinkage) for x in worlds.X]
        back, color = (np.stack([metric[side] for metric in metrics]).astype(float) for side in (0, 1))
        seen, errors = MappedWorlds.of(worlds, back, color), errors @ color
    rate = 0.5 / np.linalg.eigvalsh(np.swapaxes(seen.X, 1, 2) @ seen.X / seen.X.shape[1])[:, -1]
    each, size = np.repeat(np.arange(len(worlds)), len(radii)), np.tile(radii, len(worlds))
    many, start_errors = seen.take(each), size[:, None, None] * errors[each]
    reach = row_distance(start_errors, np.zeros_like(start_errors))
    path = refine_worlds(many, many.truth + start_errors, radius=reach, rate=rate[each], steps=steps)
    left = (path.dictionary - many.truth) @ (back @ stretch)[each]
    return np.median((row_distance(left, np.zeros_like(left)) / size).reshape(len(worlds), -1), axis=0)
