"""Labelled rows, the order in which training reads them, and the concepts that may speak for their classes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.knowledge.grounding import Groups
from ccr.refine.options import Training
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
                sorted_rows, rows = np.unique(rows, return_inverse=True)  # read in the file's order
                x = self.X.take(sorted_rows, workers)
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
    """Training and validation data: `validation` is rows of X, another (X, y) or None; `left_out` is in neither."""
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


# Candidates: concepts that may have a weight for a class, by its images and by knowledge (Candidates and Knowledge,
# docs/method.md).

#: Largest number of images of a class that are used, and of images that standardise scores.
OF_A_CLASS, IN_ALL = 256, 4096
#: Rows that are read at once.
AT_ONCE = 8192


class Permitted(NamedTuple):
    """Masks (n, C) of the weights that knowledge permits and of those that it confirms; the others stay zero in every
    step. `preference` (n, C), if given, multiplies a weight's worth where a class chooses its few weights."""

    allowed: np.ndarray
    confirmed: np.ndarray
    preference: np.ndarray | None = None

    def of(self, rows: np.ndarray) -> Permitted:
        """Restriction to the concepts of these rows."""
        return Permitted(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The `count` concepts of largest evidence (n, C) are the candidates of a class; those that are `confirmed` (n, C),
    if knowledge says which, come first, and those that are not permitted last, whatever the sign of their evidence."""

    evidence: np.ndarray
    count: int
    permitted: Permitted | None = None

    def of(self, rows: np.ndarray) -> Candidates:
        """Restriction to the concepts of these rows."""
        known = None if self.permitted is None else self.permitted.of(rows)
        return Candidates(self.evidence[rows], self.count, known)

    def mask(self, *, one_sided: bool) -> np.ndarray:
        """Mask (n, C) of the candidates of each class. Codes that are not one-sided also say what images lack:
        of these, evidence of either sign counts."""
        worth = self.evidence if one_sided else np.abs(self.evidence)
        if self.permitted is None:
            return largest(worth, self.count)
        allowed, confirmed, _ = self.permitted
        first = np.where(confirmed, worth - worth.min() + worth.max() + 1.0, worth)
        return largest(np.where(allowed, first, worth.min() - 1.0), self.count) | confirmed


def largest(worth: np.ndarray, count: int) -> np.ndarray:
    """Mask (n, C) of the `count` largest entries of each column; of equal ones, the first are."""
    order = np.argsort(-worth, axis=0, kind="stable")[:count]
    chosen = np.zeros(worth.shape, bool)
    np.put_along_axis(chosen, order, True, axis=0)
    return chosen


def candidates_for(
    dictionary: np.ndarray,
    data: Labelled,
    classes: int,
    training: Training,
    workers: Workers | None = None,
    permitted: Permitted | None = None,
) -> Candidates | None:
    """The candidates that training asks for, by the evidence of the rows of this dictionary; None: all concepts. Where
    knowledge permits some weights, forbidden ones are never candidates and confirmed ones always are."""
    count = training.candidates_per_class(known=permitted is not None)
    if count is None or count >= len(dictionary):
        return None
    return Candidates(evidence(dictionary, data, classes, workers), count, permitted)


def evidence(dictionary: np.ndarray, data: Labelled, classes: int, workers: Workers | None = None) -> np.ndarray:
    """How many standard deviations above the mean of all images the images of a class score on a concept, on average:
    (n, C), float32, for the scores of the rows of this dictionary (n, d). Zero where all images score alike, and for a
    class without images."""
    moments = data.sample(IN_ALL).moments()
    groups = class_groups(data, classes, workers)
    means = np.where(groups.counts[:, None] > 0, groups.means, moments.mean) - moments.mean
    rows = dictionary.astype(np.float64)
    spread = np.sqrt(np.maximum(np.einsum("nd,nd->n", rows @ moments.covariance, rows), 0.0))
    distances = rows @ means.T
    deviations = np.divide(distances, spread[:, None], out=np.zeros_like(distances), where=spread[:, None] > 1e-12)
    return deviations.astype(np.float32)


def class_groups(data: Labelled, classes: int, workers: Workers | None = None) -> Groups:
    """The weighted mean of some images of each class (C, d), zero for a class without any, and how many images the
    class has."""
    chosen = _some_of_each(data.y, classes)
    chosen = chosen[np.argsort(data.rows[chosen], kind="stable")]  # read in the file's order
    sums = np.zeros((classes, data.X.shape[1] + 1))
    for start in range(0, len(chosen), AT_ONCE):
        part = chosen[start : start + AT_ONCE]
        member = sparse.csr_matrix(
            (data.weight[part].astype(np.float64), (data.y[part], np.arange(len(part)))), shape=(classes, len(part))
        )
        sums[:, :-1] += member @ data.X.take(data.rows[part], workers).numpy()
        sums[:, -1] += np.asarray(member.sum(axis=1)).ravel()
    there = sums[:, -1:] > 0
    means = np.divide(sums[:, :-1], sums[:, -1:], out=np.zeros((classes, data.X.shape[1])), where=there)
    return Groups(means, np.where(there[:, 0], np.bincount(data.y, minlength=classes), 0))


def _some_of_each(y: np.ndarray, classes: int) -> np.ndarray:
    """Positions in y of at most `OF_A_CLASS` images of each class, evenly spaced."""
    order, counts = np.argsort(y, kind="stable"), np.bincount(y, minlength=classes)
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    count = counts[y[order]]
    taken = np.minimum(count, OF_A_CLASS)
    return order[rank * taken // count != (rank - 1) * taken // count]
