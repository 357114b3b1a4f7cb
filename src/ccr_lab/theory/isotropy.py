"""How nearly embeddings meet the isotropy that the theorems assume, before and after whitening, on held-out halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.errors import CCRError
from ccr.geometry import fidelity_radius, project_to_cap, unit_rows
from ccr.metrics import finite
from ccr.space import ImageMetric, Space
from ccr_lab.theory.observe_metric import cap_departures, correlations
from ccr_lab.theory.testbed import Testbed

#: Random directions along which the spread of images is compared.
DIRECTIONS = 1000
#: Most images that are looked at.
IMAGES = 20_000
#: Correlation, in the metric, of the concepts whose plain correlation is looked at.
BOUND = 0.9
#: Shrinkages of the table, beside the classifier's own.
SHRINKAGES = (0.9, 0.1, 0.01)
#: Two halves, and a spread in each of them.
FEWEST = 4
#: Part of the dimensions that images fill which half of them must be able to fill, too, to stand for all.
ENOUGH = 0.9


@dataclass(frozen=True)
class Isotropy:
    """How images spread. `shrinkage`: of the metric that whitened them, None: as they are.

    `dimensions` is the effective number, (sum of eigenvalues)^2 / (sum of their squares), of `of`; `condition` the
    largest eigenvalue of the covariance over the one that a tenth are below, of those in the span of the images;
    `along_random` the 95th over the 5th percentile of the variance along random directions; all are NaN where images do
    not differ. An isotropic cloud has dimensions = of, and 1 for both ratios. Of random concepts, moved to where the
    metric's correlation is `BOUND`, one in twenty has a plain correlation on these images below `fidelity`.
    """

    shrinkage: float | None
    of: int
    dimensions: float
    condition: float
    along_random: float
    fidelity: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {name: value if value is None else finite(value) for name, value in asdict(self).items()}


def isotropy(
    rows: np.ndarray, rng: np.random.Generator, *, shrinkage: float | None = None, fidelity: float | None = None
) -> Isotropy:
    """Of images (m, d), at least two; what is known of their metric is passed on."""
    d = rows.shape[1]
    covariance = np.cov(rows, rowvar=False).reshape(d, d)
    values = spanned(covariance)
    if not len(values):
        return Isotropy(shrinkage, d, math.nan, math.nan, math.nan, fidelity)
    directions = unit_rows(rng.standard_normal((DIRECTIONS, d)))
    low, high = np.percentile(((directions @ covariance) * directions).sum(axis=1), (5, 95))
    dimensions = values.sum() ** 2 / (values**2).sum()
    ratios = float(values[-1] / np.percentile(values, 10)), float(high / low)
    return Isotropy(shrinkage, d, float(dimensions), *ratios, fidelity)


def spanned(covariance: np.ndarray) -> np.ndarray:
    """The eigenvalues of a covariance (d, d) that are more than rounding, smallest first."""
    values = np.linalg.eigvalsh(covariance)
    return np.asarray(values[values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)])


def halves_span(rows: np.ndarray) -> bool:
    """Whether half of the rows (m, d) can fill nearly all dimensions that all of them fill."""
    filled = len(spanned(np.cov(rows, rowvar=False).reshape(rows.shape[1], rows.shape[1])))
    return 0 < ENOUGH * filled <= len(rows) // 2 - 1


def default_shrinkage() -> float:
    return ConceptClassifier().shrinkage


def isotropy_table(X: Any, *, seed: int = 0, shrinkages: Sequence[float] | None = None) -> list[Isotropy]:
    """Images X (m, d) as they are (centred unit rows), then whitened: the metric is fitted on a random half of them,
    the other half is measured."""
    rows = centred_rows(X)
    chosen = sorted({default_shrinkage(), *SHRINKAGES} if shrinkages is None else set(shrinkages), reverse=True)
    return halves(rows, np.random.default_rng(seed), chosen)


def halves(rows: np.ndarray, rng: np.random.Generator, shrinkages: Sequence[float]) -> list[Isotropy]:
    """Isotropy of a random half of the rows as they are and, for each shrinkage, whitened by the other half."""
    order = rng.permutation(len(rows))
    fitted, measured = rows[order[::2]], rows[order[1::2]]
    covariance = fitted.T @ fitted / len(fitted)
    table = [isotropy(measured, rng)]
    for shrinkage in shrinkages:
        metric = ImageMetric.fit(covariance, shrinkage)
        fidelity = float(np.percentile(plain_fidelities(measured, metric, rng), 5))
        table.append(isotropy(unit_rows(measured @ metric.whiten), rng, shrinkage=shrinkage, fidelity=fidelity))
    return table


def plain_fidelities(rows: np.ndarray, metric: ImageMetric, rng: np.random.Generator) -> np.ndarray:
    """Plain correlations over images, of random concepts with themselves moved to the rim of the cap of `BOUND`."""
    start, away = (unit_rows(rng.standard_normal((DIRECTIONS, rows.shape[1])) @ metric.color) for _ in range(2))
    moved = project_to_cap(away, start, fidelity_radius(BOUND))
    return correlations(rows, moved @ metric.whiten, start @ metric.whiten)


def centred_rows(X: Any) -> np.ndarray:
    """Embeddings X (m, d), m >= 4, as the classifier sees them without a metric: unit rows from their mean, float64."""
    if len(X) < FEWEST:
        raise CCRError(
            f"how images spread is measured on halves of at least two, so at least {FEWEST} images are needed, got "
            f"{len(X)}: embed more"
        )
    rows = Space.of_images(X, center="data").images(X).sample(IMAGES)
    found = rows.take(np.arange(len(rows))).numpy().astype(np.float64)
    if (found == found[0]).all():
        raise CCRError(
            f"how images spread is measured on images that differ, but all {len(X)} are the same: embed others"
        )
    return found


def observe_embeddings(rows: np.ndarray, bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """On real images, with random shrinkages and concepts: departures of the cap, effective dimensions before over
    after whitening, and condition numbers after over before. The testbed is not used."""
    observed = []
    for _ in range(count):
        before, after = halves(rows, rng, [default_shrinkage()])
        ratios = (before.dimensions / after.dimensions, after.condition / before.condition)
        observed.append((*cap_departures(rows, rng)[:2], *ratios))
    return np.array(observed).T
