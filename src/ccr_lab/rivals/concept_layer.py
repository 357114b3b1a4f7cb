"""The concept layer of a label-free concept bottleneck: directions of the backbone's features that behave like scores.

Each concept's output over the images is compared with its target, the encoder's score of that concept, by the cosine
of their cubes: both centred, so that only the images that show the concept most, or least, count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ccr.errors import CCRError
from ccr.inputs import Embeddings

#: Strengths of the ridge regression that are tried, as shares of the features' mean variance.
RIDGES = (1e-4, 1e-2, 1.0)
#: Steps between two looks at the validation similarity, and looks without a gain after which training ends.
EVERY, PATIENCE = 25, 4
#: A gain of the mean similarity that counts.
GAIN = 1e-4
RATE = 1e-3
#: A spread below this part of the size is rounding.
FLAT = 1e-5

#: From weights (n, f) to the similarity (n,) of every concept on validation data.
Judge = Callable[[torch.Tensor], torch.Tensor]


def cubed_similarity(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cosine of the cubed columns of outputs and targets (m, n), centred over the rows; 0 where one is constant."""
    return (_cubes(outputs) * _cubes(targets)).sum(dim=0)


def _cubes(columns: torch.Tensor) -> torch.Tensor:
    centered = columns - columns.mean(dim=0)
    spread = centered.square().mean(dim=0).sqrt()
    flat = spread <= FLAT * columns.abs().amax(dim=0)
    # Divided before cubing: cubes of small numbers lose their digits.
    cubes = torch.where(flat, 0.0, centered / torch.where(flat, 1.0, spread)) ** 3
    return cubes / cubes.norm(dim=0).clamp_min(1e-12)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Features (m, f) and embeddings (m, d) of the same images; targets are the embeddings' scores on the concepts."""

    features: Embeddings
    embeddings: Embeddings
    dictionary: torch.Tensor

    def __post_init__(self) -> None:
        if len(self.features) != len(self.embeddings):
            raise CCRError(
                f"there must be features for each row of X, got {len(self.features)} for {len(self.embeddings)} rows"
            )

    def take(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and targets of these rows."""
        return self.features.take(rows), self.embeddings.take(rows) @ self.dictionary.T

    def parts(self, rows: np.ndarray, size: int = 4096) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Features and embeddings of these rows, some at a time."""
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield self.features.take(part), self.embeddings.take(part)


@dataclass(frozen=True, eq=False)
class ConceptLayer:
    """Weights (n, f), and the similarity (n,) that each concept reached on validation data."""

    weights: np.ndarray
    similarities: np.ndarray
    n_iter: int


@dataclass(frozen=True, eq=False)
class _Moments:
    mean: torch.Tensor
    scale: torch.Tensor
    covariance: torch.Tensor
    cross: torch.Tensor


def fit_concept_layer(
    training: Pairs,
    rows: np.ndarray,
    judge: Judge,
    *,
    max_iter: int,
    batch_size: int,
    seed: int,
) -> ConceptLayer:
    """Weights that maximise the mean similarity on the training `rows`, by Adam on random batches.

    `judge(weights)` gives the validation similarities; training ends when their mean no longer rises, and the best
    weights are kept. It starts from the ridge regression of the targets on the features, which is near: a linear map
    that predicts the scores well has outputs that agree with them.
    """
    moments = _moments(training, rows)
    best = max((_ridge(moments, strength) for strength in RIDGES), key=lambda start: float(judge(start).mean()))
    reached = float(judge(best).mean())
    # In units of each feature's spread and of each concept's size, which the similarity does not see.
    scaled = best * moments.scale
    weights = (scaled / scaled.norm(dim=1, keepdim=True).clamp_min(1e-12)).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=RATE)
    rng, waited, step = np.random.default_rng([seed, 0xCB]), 0, 0
    while step < max_iter and waited < PATIENCE:
        chosen = rows if len(rows) <= batch_size else np.sort(rng.choice(rows, batch_size, replace=False))
        features, targets = training.take(chosen)
        loss = -cubed_similarity(((features - moments.mean) / moments.scale) @ weights.T, targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0 or step == max_iter:
            now = (weights / moments.scale).detach()
            similarity = float(judge(now).mean())
            waited = 0 if similarity > reached + GAIN else waited + 1
            if similarity > reached:
                best, reached = now.clone(), similarity
    return ConceptLayer(best.numpy(), judge(best).numpy(), step)


def _moments(training: Pairs, rows: np.ndarray) -> _Moments:
    """Mean and spread of the features, their covariance, and that with the targets, in units of the spread."""
    width, dimension = training.features.shape[1], training.embeddings.shape[1]
    total, square = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
    cross, other = torch.zeros(width, dimension, dtype=torch.float64), torch.zeros(dimension, dtype=torch.float64)
    first = training.features.take(rows[:1])[0]  # measured from one row: no digits lost to a large mean
    for features, embeddings in training.parts(rows):
        moved = features - first
        total, other = total + moved.sum(dim=0), other + embeddings.sum(dim=0)
        square, cross = square + moved.T @ moved, cross + moved.T @ embeddings
    m = len(rows)
    mean, other = total / m, other / m
    covariance = square / m - torch.outer(mean, mean)
    spread = covariance.diagonal().clamp_min(0).sqrt()
    flat = spread <= FLAT * (first.double() + mean).abs()
    scale = torch.where(flat | (spread == 0), 1.0, spread)
    unit = torch.where(flat, 0.0, 1 / scale)
    targets = (cross / m - torch.outer(mean, other)) @ training.dictionary.T.double()
    return _Moments(
        mean=(first + mean).float(),
        scale=scale.float(),
        covariance=covariance * torch.outer(unit, unit),
        cross=targets * unit[:, None],
    )


def _ridge(moments: _Moments, strength: float) -> torch.Tensor:
    """Weights (n, f) of the ridge regression of the targets on the features."""
    matrix = moments.covariance.clone()
    matrix.diagonal().add_(strength)
    return (torch.linalg.solve(matrix, moments.cross).T / moments.scale).float()


def validation_judge(pairs: Pairs, rows: np.ndarray) -> Judge:
    """A function from weights to the similarity of every concept on these rows."""
    features, targets = pairs.take(rows)
    targets = _cubes(targets)

    def judge(weights: torch.Tensor) -> torch.Tensor:
        return (_cubes(features @ weights.T) * targets).sum(dim=0)

    return judge
