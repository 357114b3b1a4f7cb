"""The recovery theorem's phase diagram where images are not isotropic: Algorithm 1 in the encoder's space and in the
images' own metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ccr.space import ImageMetric
from ccr.utils.progress import Tell, no_progress
from ccr_lab.theory.refinement import refine_worlds
from ccr_lab.theory.testbed import MappedWorlds, Testbed, Worlds, orthonormal_rows, row_distance

#: Where refinement takes place: the encoder's space (None), or the images' metric at a shrinkage.
METRICS = (None, 0.5, 0.01)


@dataclass(frozen=True, eq=False)
class AnisotropyDiagram:
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
        bed = {name: getattr(self.testbed, name) for name in ("n", "d", "k")}
        rest = {name: value for name, value in vars(self).items() if name != "testbed"}
        return bed | {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in rest.items()}


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
    tell: Tell = no_progress,
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
