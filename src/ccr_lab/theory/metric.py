"""Claims about refinement in the images' own metric (The images' metric, docs/method.md) with their measurements, on
made-up images and on embeddings that a user brings; and how nearly those are isotropic, before and after whitening, on
held-out halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain.terms import PlainResult
from ccr.geometry import fidelity_radius, project_to_cap, unit_rows
from ccr.refine.region import METRIC_STRIDE
from ccr.space import ImageMetric, Space
from ccr_lab.theory.judging import ClaimGroup, ClaimResult, any_size, check_group, claim_group
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
class Isotropy(PlainResult):
    """Spread of the images. `shrinkage`: of the metric that whitened them, None: as they are.

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


def isotropy(
    rows: np.ndarray, rng: np.random.Generator, *, shrinkage: float | None = None, fidelity: float | None = None
) -> Isotropy:
    """Measure images (m, d), at least two; a metric that is known already is passed on."""
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


#: Concepts per world.
CONCEPTS = 12


def cap(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """`cap_departures` of stretched images, in `count` worlds."""
    return np.array([cap_departures(stretched_images(bed.d, rng), rng) for _ in range(count)]).T


def cap_departures(images: np.ndarray, rng: np.random.Generator) -> tuple[float, float, float]:
    """For concepts on and inside a cap of the images' metric, at a random shrinkage and bound:

    how far the shrunk correlation of scores is from the inner product, how far it is below the bound, and how far the
    plain correlation is from the inner product, over what `plain_limit` allows.
    """
    shrinkage, least = float(np.exp(rng.uniform(np.log(1e-4), 0.0))), rng.uniform(0.3, 0.999)
    x = images - images.mean(axis=0)
    covariance = x.T @ x / len(x)
    metric = ImageMetric.fit(covariance, shrinkage)
    start = unit_rows(rng.standard_normal((CONCEPTS, x.shape[1])) @ metric.color)
    moves = unit_rows(rng.standard_normal(start.shape)) * 10 ** rng.uniform(-2, 1, (CONCEPTS, 1))
    moved = project_to_cap(start + moves, start, fidelity_radius(least))
    inner, seen, texts = (moved * start).sum(axis=1), moved @ metric.whiten, start @ metric.whiten
    shrunk = correlations(shrunk_images(x, shrinkage), seen, texts)
    apart = np.abs(correlations(x, seen, texts) - inner).max() / plain_limit(covariance, shrinkage)
    return float(np.abs(shrunk - inner).max()), float((least - shrunk).max()), float(apart)


def encoder_cap(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Shortfall of the correlation of scores below c for concepts that keep a cosine of c in the encoder's space, moved
    along the direction in which images vary most."""
    return np.array([[_below_in_the_encoders_cap(stretched_images(bed.d, rng), rng) for _ in range(count)]])


def _below_in_the_encoders_cap(images: np.ndarray, rng: np.random.Generator) -> float:
    least = rng.uniform(0.3, 0.999)
    x = images - images.mean(axis=0)
    widest = np.linalg.eigh(x.T @ x)[1][:, -1]
    start = unit_rows(rng.standard_normal((CONCEPTS, x.shape[1])))
    away = -10 * np.sign(start @ widest)[:, None] * widest
    moved = project_to_cap(start + away, start, fidelity_radius(least))
    return float((least - correlations(x, moved, start)).max())


def same_fit(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Largest difference of a refined concept, and of a logit, between a fit with a fidelity and a fit with a radius on
    transformed images and concepts; and of a logit when nothing is transformed. Logits in units of the largest."""
    return np.array([_fit_differences(bed.d, rng) for _ in range(count)]).T


def _fit_differences(d: int, rng: np.random.Generator) -> tuple[float, ...]:
    X, least = stretched_images(d, rng).astype(np.float32), float(rng.uniform(0.5, 0.99))
    y = (X @ rng.standard_normal((d, 3))).argmax(axis=1)
    y[:30] = np.arange(30) % 3  # every class is there, whatever was drawn
    texts = Concepts([f"concept {row}" for row in range(CONCEPTS)], rng.standard_normal((CONCEPTS, d)))
    shared: dict[str, Any] = {"coder": HardThreshold(length=CONCEPTS, sign="both"), "weights_per_class": None}
    shared |= {"dispersion": None, "engine": "dense", "device": "cpu"}
    shared |= {"max_iter": 3, "batch_size": 64, "random_state": int(rng.integers(2**31))}
    model = ConceptClassifier(texts, fidelity=least, **shared).fit(X, y)
    radius = fidelity_radius(least)
    shared |= {"radius": radius, "center": None, "dictionary_rate": METRIC_STRIDE * radius}
    images = model.space_.images(X).take(np.arange(len(X))).numpy()
    twin = ConceptClassifier(model.initial_concepts_, **shared).fit(images, y)
    plain = ConceptClassifier(texts, **shared).fit(X - X.mean(axis=0), y)
    logits = model.model_.logits(X)
    apart = [np.abs(other - logits).max() for other in (twin.model_.logits(images), plain.model_.logits(X))]
    moved = np.abs(twin.concepts_.embeddings - model.concepts_.embeddings).max()
    return float(moved), *(float(value / np.abs(logits).max()) for value in apart)


def stretched_images(d: int, rng: np.random.Generator) -> np.ndarray:
    """Images (m, d) whose covariance has a condition number from 10 to 1,000, in random directions, off the origin."""
    spread = np.geomspace(1.0, 10 ** rng.uniform(-1.5, -0.5), d)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((4 * d + 150, d)) * spread @ turn + 0.3 * rng.standard_normal(d)


def shrunk_images(x: np.ndarray, shrinkage: float) -> np.ndarray:
    """Centred images (m, d), and d pairs of opposite made-up ones along the axes, whose covariance is in proportion to
    the shrunk covariance of x: a shrunk correlation is a plain one over these."""
    d = x.shape[1]
    size = np.sqrt(shrinkage * (x**2).sum() / (2 * d))
    return np.concatenate([np.sqrt(1 - shrinkage) * x, size * np.eye(d), -size * np.eye(d)])


def correlations(images: np.ndarray, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Pearson correlation (n,) over images of the scores that rows of `one` and `two` (n, d) give."""
    scores = [images @ np.asarray(rows, np.float64).T for rows in (one, two)]
    first, second = (unit_rows((s - s.mean(axis=0)).T) for s in scores)
    return (first * second).sum(axis=1)


def plain_limit(covariance: np.ndarray, shrinkage: float) -> float:
    """Largest difference of the plain correlation from the shrunk one: 2 e / (1 - e), where e is the largest part of a
    concept's shrunk variance that shrinkage has added. It vanishes with the shrinkage if images span the space."""
    values = np.linalg.eigvalsh(covariance)
    added, least = shrinkage * values.mean(), (1 - shrinkage) * max(values[0], 0.0)
    return float(2 * added / least) if least > 0 else np.inf


SECTION = "The images' metric"
#: Differences of float32 numbers that were computed in two ways.
FLOAT32 = 1e-5
#: Claims on embeddings whose halves are compared.
OF_HALVES = ("real dimensions", "real condition")

_LOGITS = "difference / largest logit"

# fmt: off
METRIC_GROUPS: tuple[ClaimGroup, ...] = (
    claim_group(cap, any_size(least_k=2),
        ("cap", "on and in the cap, the shrunk correlation is <w, w0>", SECTION, "difference", FLOAT32),
        ("fidelity", "so the cap of √(2(1-c)) is fidelity ≥ c", SECTION, "c - fidelity", FLOAT32),
        ("plain correlation", "shrinkage a → 0: the plain correlation is <w, w0>, to 2ε/(1-ε)", SECTION,
         "observed / allowed", 1.0)),
    claim_group(encoder_cap, any_size(least_k=2),
        ("encoder's cap", "the cap of √(2(1-c)) is fidelity ≥ c", SECTION, "c - fidelity", FLOAT32,
         "cap in the encoder's space")),
    claim_group(same_fit, any_size(least_k=2, widest=24),
        ("same concepts", "a fit with fidelity c is CCR on transformed data", SECTION, "difference", 1e-4),
        ("same logits", "it predicts the same", SECTION, _LOGITS, 1e-4),
        ("other logits", "a fit with fidelity c is CCR", SECTION, _LOGITS, 1e-4, "data not transformed"),
        most=10),  # every one is three fits
)
# fmt: on


def check_embeddings(X: Any, instances: int = 10, seed: int = 0) -> tuple[ClaimResult, ...]:
    """The claims on embeddings X (m, d), at least four rows, with random concepts, bounds, shrinkages and halves.

    How images spread cannot be told where half of them do not fill the dimensions that all of them fill.
    """
    rows = centred_rows(X)
    group = claim_group(
        partial(observe_embeddings, rows),
        any_size(),
        ("real cap", "real images: the shrunk correlation is <w, w0>", SECTION, "difference", FLOAT32),
        ("real fidelity", "real images: the cap is fidelity ≥ c", SECTION, "c - fidelity", FLOAT32),
        ("real dimensions", "held-out images fill more dimensions", SECTION, "before / after", 1.0),
        ("real condition", "their eigenvalues are less spread", SECTION, "after / before", 1.0),
    )
    results = check_group(group, instances, seed)
    if halves_span(rows):
        return results
    return tuple(replace(result, complete=False) if result.key in OF_HALVES else result for result in results)
