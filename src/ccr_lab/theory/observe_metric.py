"""Measurements behind the claims about refinement in the images' own metric (The images' metric, docs/method.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.geometry import fidelity_radius, project_to_cap, unit_rows
from ccr.refine.region import METRIC_STRIDE
from ccr.space import ImageMetric
from ccr_lab.theory.testbed import Testbed

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
    """How far the correlation of scores is below c for concepts that keep a cosine of c in the encoder's space, moved
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
    """How far the plain correlation can be from the shrunk one: 2 e / (1 - e), where e is the largest part of a
    concept's shrunk variance that shrinkage has added. It vanishes with the shrinkage if images span the space."""
    values = np.linalg.eigvalsh(covariance)
    added, least = shrinkage * values.mean(), (1 - shrinkage) * max(values[0], 0.0)
    return float(2 * added / least) if least > 0 else np.inf
