"""What is enough to know of images to judge any number of concepts: means of classes, and covariances.

A score is linear in the image, so that a concept's mean and variance over the images of a class follow from the
moments of the images: candidates cost nothing per image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings

#: More concepts than this are not compared with each other: it takes the square of their number, four bytes each.
MOST_COMPARED = 30_000


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Moments of unit rows measured from their mean: `mean` (d,), `means` of the `classes` (C, d), their `counts` (C,),
    and the covariances (d, d) of all rows and within classes."""

    classes: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    means: np.ndarray
    covariance: np.ndarray
    within: np.ndarray


@dataclass(frozen=True, eq=False)
class ScoreStatistics:
    """Scores of n concepts in standard deviations over all images: `means` of classes (C, n), `within` (n,) their
    standard deviation inside classes, `spread` (n,) how far raw scores spread over images, `correlation` (n, n) of
    float32."""

    means: np.ndarray
    within: np.ndarray
    spread: np.ndarray
    correlation: np.ndarray


def class_statistics(X: Any, y: np.ndarray) -> ClassStatistics:
    """Of images X (m, d) and their labels y (m,), read in chunks: memory for C d + d^2 numbers."""
    embeddings = Embeddings(X)
    classes, numbers = np.unique(np.asarray(y), return_inverse=True)
    d = embeddings.shape[1]
    sums, square, start = np.zeros((len(classes), d)), np.zeros((d, d)), 0
    for chunk in embeddings.chunks():
        rows = chunk.numpy()
        np.add.at(sums, numbers[start : start + len(rows)], rows)
        square += rows.T @ rows
        start += len(rows)
    counts = np.bincount(numbers, minlength=len(classes))
    mean, means = sums.sum(axis=0) / start, sums / counts[:, None]
    covariance = square / start - np.outer(mean, mean)
    apart = (means - mean) * np.sqrt(counts / start)[:, None]
    return ClassStatistics(classes, counts, mean, means, covariance, covariance - apart.T @ apart)


def score_statistics(found: ClassStatistics, texts: np.ndarray) -> ScoreStatistics:
    """Of concepts with these text embeddings (n, d), centred among themselves as a model centres them."""
    check_number(len(texts))
    rows = _centred(texts)
    spread = spreads(found, texts)
    within = np.sqrt(np.maximum(np.einsum("nd,nd->n", rows @ found.within, rows), 1e-12)) / spread
    means = (found.means - found.mean) @ rows.T / spread
    scaled = rows / spread[:, None]
    correlation = (scaled @ found.covariance).astype(np.float32) @ scaled.T.astype(np.float32)
    return ScoreStatistics(means, within, spread, correlation)


def check_number(n: int) -> None:
    """Refuse more concepts than can be compared with each other."""
    if n > MOST_COMPARED:
        raise CCRError(
            f"at most {MOST_COMPARED:,} concepts are compared with each other at a time, got {n:,}: divide the list, "
            "or shorten it"
        )


def spreads(found: ClassStatistics, texts: np.ndarray) -> np.ndarray:
    """How far the raw scores of concepts with these text embeddings (n, d) spread over images (n,)."""
    rows = _centred(texts)
    return np.sqrt(np.maximum(np.einsum("nd,nd->n", rows @ found.covariance, rows), 1e-12))


def _centred(texts: np.ndarray) -> np.ndarray:
    """Unit rows, measured from their mean if there are several."""
    rows = unit_rows(np.asarray(texts, dtype=np.float64))
    return unit_rows(rows - rows.mean(axis=0)) if len(rows) > 1 else rows
