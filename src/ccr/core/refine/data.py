"""Labelled rows and the order in which training reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ccr.core.inputs import Embeddings
from ccr.errors import CCRError

#: Rows are shuffled in runs of so many neighbours, which a disk reads as fast as it can, and then singly among at least
#: so many. Files are often sorted by class: short runs keep batches mixed.
RUN, WINDOW = 8, 16_384

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Labelled(NamedTuple):
    """These `rows` of X with class numbers `y` and weights, all of the same length."""

    X: Embeddings
    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def sample(self, most: int) -> Embeddings:
        """At most this many of the rows, evenly spaced, prepared and in memory."""
        spaced = np.linspace(0, len(self.rows) - 1, min(most, len(self.rows))).astype(np.int64)
        return Embeddings.ready(self.X.take(self.rows[spaced]))

    def shuffled(self, rng: np.random.Generator, size: int) -> Iterator[Batch]:
        """All rows once, in batches of `size`, in an order that does not depend on where X is: random runs of rows
        fill a window, in which rows are random. Of a file, one window at a time is in memory."""
        for chosen in _windows(rng, len(self.rows), size * math.ceil(WINDOW / size)):
            part = self if self.X.in_memory else self._loaded(chosen)
            order = rng.permutation(len(chosen))
            yield from part._batches(order if part is not self else chosen[order], size)

    def _loaded(self, chosen: np.ndarray) -> Labelled:
        """These of the rows, read in the file's order."""
        rows, place = np.unique(self.rows[chosen], return_inverse=True)
        return Labelled(Embeddings.ready(self.X.take(rows)), place, self.y[chosen], self.weight[chosen])

    def _batches(self, order: np.ndarray, size: int) -> Iterator[Batch]:
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            y, weight = torch.from_numpy(self.y[chosen]), torch.from_numpy(self.weight[chosen])
            yield self.X.take(self.rows[chosen]), y, weight


def _windows(rng: np.random.Generator, m: int, size: int) -> Iterator[np.ndarray]:
    """The numbers below m in windows of `size`, each made of random runs of neighbours."""
    runs = rng.permutation(math.ceil(m / RUN))
    order = (runs[:, None] * RUN + np.arange(RUN)).ravel()
    order = order[order < m]
    for start in range(0, m, size):
        yield order[start : start + size]


def split(
    X: Embeddings, y: np.ndarray, weight: np.ndarray | None, validation: np.ndarray | tuple[Any, Any] | None
) -> tuple[Labelled, Labelled | None]:
    """What is trained on and what is held out: rows of X, another (X, y), or nothing."""
    if len(y) != len(X):
        raise CCRError(f"there must be one label for each row of X, got {len(y)} labels and {len(X)} rows")
    weights = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
    everything = np.arange(len(y))
    if isinstance(validation, tuple):
        other, labels = validation
        other = other if isinstance(other, Embeddings) else Embeddings(other, mean=X.mean)
        ones = np.ones(len(labels), np.float32)
        return Labelled(X, everything, y, weights), Labelled(other, np.arange(len(labels)), np.asarray(labels), ones)
    if validation is None or len(validation) == 0:
        return Labelled(X, everything, y, weights), None
    rest = np.setdiff1d(everything, validation)
    return Labelled(X, rest, y[rest], weights[rest]), Labelled(X, validation, y[validation], weights[validation])
