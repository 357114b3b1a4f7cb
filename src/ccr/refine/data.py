"""Labelled rows and the order in which training reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.utils.threads import Workers

#: Rows are shuffled in runs of so many neighbours, which a disk reads as fast as it can, and then singly among at least
#: so many. Files are often sorted by class: short runs keep batches mixed.
RUN, WINDOW = 8, 16_384


class Window(NamedTuple):
    """Rows in the order of training: row i is x[rows[i]], of class y[i], and counts weight[i] times; no row is there
    twice. `lasting`: x is the same for every window."""

    x: torch.Tensor
    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    lasting: bool = False

    def batches(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Rows, classes and weights, `size` at a time."""
        for start in range(0, len(self.rows), size):
            part = slice(start, start + size)
            rows, y, weight = (torch.from_numpy(array[part]) for array in (self.rows, self.y, self.weight))
            yield self.x.index_select(0, rows), y, weight


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

    def shuffled(self, rng: np.random.Generator, size: int, workers: Workers | None = None) -> Iterator[Window]:
        """All rows once, in an order that does not depend on where X is: random runs of rows fill a window of whole
        batches of `size`, in which rows are random. Of rows not prepared, one window at a time is in memory, read by
        the threads of `workers`."""
        for chosen in _windows(rng, len(self.rows), size * math.ceil(WINDOW / size)):
            chosen = rng.permutation(chosen)
            x, rows = self.X.prepared, self.rows[chosen]
            lasting = x is not None
            if x is None:
                wanted, rows = np.unique(rows, return_inverse=True)  # read in the file's order
                x = self.X.take(wanted, workers)
            yield Window(x, rows, self.y[chosen], self.weight[chosen], lasting)


def _windows(rng: np.random.Generator, m: int, size: int) -> Iterator[np.ndarray]:
    """The numbers below m in windows of `size`, each made of random runs of neighbours."""
    runs = rng.permutation(math.ceil(m / RUN))
    order = (runs[:, None] * RUN + np.arange(RUN)).ravel()
    if m % RUN:
        order = order[order < m]
    for start in range(0, m, size):
        yield order[start : start + size]


def split(
    X: Embeddings,
    y: np.ndarray,
    weight: np.ndarray | None,
    validation: np.ndarray | tuple[Any, Any] | None,
    left_out: np.ndarray | None = None,
) -> tuple[Labelled, Labelled | None]:
    """What is trained on and what is held out: rows of X, another (X, y), or nothing; rows left out are in neither."""
    if len(y) != len(X):
        raise CCRError(f"there must be one label for each row of X, got {len(y)} labels and {len(X)} rows")
    weights = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
    everything = np.arange(len(y)) if left_out is None else np.setdiff1d(np.arange(len(y)), left_out)
    if isinstance(validation, tuple):
        other, labels = validation
        other = other if isinstance(other, Embeddings) else Embeddings(other, mean=X.mean)
        ones = np.ones(len(labels), np.float32)
        train = Labelled(X, everything, y[everything], weights[everything])
        return train, Labelled(other, np.arange(len(labels)), np.asarray(labels), ones)
    if validation is None or len(validation) == 0:
        return Labelled(X, everything, y[everything], weights[everything]), None
    rest = np.setdiff1d(everything, validation)
    return Labelled(X, rest, y[rest], weights[rest]), Labelled(X, validation, y[validation], weights[validation])
