"""The numbers behind the figures: the paper's synthetic runs, necessity against eps, the event, the phase diagram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ccr.utils.progress import Tell, no_progress
from ccr_lab.theory.losses import estimator_loss
from ccr_lab.theory.necessity import eps_limit, loss_bound, rotated
from ccr_lab.theory.observe_refinement import best_rate
from ccr_lab.theory.refinement import refine_worlds, spectral_event, spectrum
from ccr_lab.theory.testbed import Testbed, row_distance


@dataclass(frozen=True, eq=False)
class Run:
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
class EventFrequency:
    """In which share of worlds the spectral event held, for every number of samples."""

    n: int
    k: int
    worlds: int
    samples: tuple[int, ...]
    shares: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Median of last over first |D - D*|_{1,2}, (lengths, radii), where D starts anywhere in the rho-balls."""

    n: int
    samples: int
    worlds: int
    gamma: float
    Gamma: float
    lengths: np.ndarray
    radii: np.ndarray
    remaining: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}


def paper_runs(*, worlds: int = 10, seed: int = 0, shorten: int = 1) -> tuple[Run, ...]:
    """The paper's three synthetic runs, repeated in independent worlds; `shorten` divides their numbers of steps.

    The released code minimises half the squared loss, so the paper's eta is twice the step taken here.
    """
    with threadpool_limits(1):
        return (
            _run("one sample, n = 8 < d", 8, 1, 1e-2, 1000 // shorten, worlds, seed),
            _run("100 samples, n = 8 < d", 8, 100, 1e-1, 2000 // shorten, worlds, seed),
            _run("100 samples, n = d = 10", 10, 100, 1e-1, 2000 // shorten, worlds, seed),
        )


def necessity_curve(
    testbed: Testbed | None = None, *, points: int = 40, worlds: int = 50, seed: int = 0
) -> NecessityCurve:
    """Loss of f_D for the rotated dictionary, eps from 1 % of what the theorem covers to four times it (at most 1)."""
    bed = testbed or Testbed(32, 48, 8)
    drawn, limit = bed.draw(worlds=worlds, random_state=seed), eps_limit(bed)
    eps = np.geomspace(0.01 * limit, min(4 * limit, 1.0), points)
    losses = np.array([estimator_loss(drawn, rotated(drawn, size)) for size in eps])
    return NecessityCurve(bed, eps, losses, loss_bound(bed, eps), limit)


def event_frequency(n: int, k: int, samples: Sequence[int], *, worlds: int = 100, seed: int = 0) -> EventFrequency:
    """How often the spectral event of the many-sample theorem holds as the number of samples grows (n = d)."""
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
    tell: Tell = no_progress,
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


def _run(title: str, n: int, samples: int, paper_rate: float, steps: int, worlds: int, seed: int) -> Run:
    bed, radius = Testbed(n, 10, 5), 0.2
    rng = np.random.default_rng([seed, n, samples])
    drawn = bed.draw(worlds=worlds, samples=samples, random_state=rng)
    inside: list[np.ndarray] = []
    active = drawn.support[:, 0, :, None]

    def watch(step: int, dictionary: np.ndarray, loss: np.ndarray) -> None:
        inside.append(row_distance(dictionary * active, drawn.truth * active))

    start = drawn.start(radius, random_state=rng)
    path = refine_worlds(drawn, start, radius=radius, rate=paper_rate / 2, steps=steps, watch=watch)
    return Run(title, bed, samples, paper_rate, radius, path.losses, path.distances, np.array(inside))


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
