"""For a concept, the images that show it most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.explain.terms import plain_fields

#: One candidate: an image `row` and its codes for a concept `column`, ranked by `key`.
CANDIDATE = np.dtype([("column", "i4"), ("row", "i8"), ("key", "f8"), ("before", "f4"), ("after", "f4")])
#: Candidates are sorted out when this many wait.
MOST_WAITING = 1_000_000


@dataclass(frozen=True)
class ImageActivation:
    """An image, by its row in the data, and its code for a concept."""

    row: int
    code: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


class TopCandidates:
    """The `top` candidates of largest key for each of n columns, earlier rows first among equals.

    Holds at most n x top + MOST_WAITING candidates however many are added.
    """

    def __init__(self, n: int, top: int) -> None:
        self.n, self.top = n, top
        self._kept = np.zeros(0, CANDIDATE)
        self._waiting: list[np.ndarray] = []

    def add(self, candidates: np.ndarray) -> None:
        self._waiting.append(candidates)
        if sum(map(len, self._waiting)) > max(MOST_WAITING, self.n * self.top):
            self._sort_out()

    def by_column(self) -> list[np.ndarray]:
        """For each column its candidates, best first."""
        self._sort_out()
        edges = np.searchsorted(self._kept["column"], np.arange(self.n + 1))
        return [self._kept[start:stop] for start, stop in pairwise(edges)]

    def _sort_out(self) -> None:
        entries = np.concatenate([self._kept, *self._waiting])
        entries = entries[np.lexsort((entries["row"], -entries["key"], entries["column"]))]
        rank = np.arange(len(entries)) - np.searchsorted(entries["column"], entries["column"])
        self._kept, self._waiting = entries[rank < self.top], []


def candidates(columns: np.ndarray, rows: np.ndarray, key: np.ndarray, before: Any, after: Any) -> np.ndarray:
    """These entries as candidates."""
    entries = np.empty(len(columns), CANDIDATE)
    for name, values in {"column": columns, "row": rows, "key": key, "before": before, "after": after}.items():
        entries[name] = values
    return entries


def top_images(
    chunks: Iterable[sparse.csr_matrix], *, columns: np.ndarray, top: int = 9
) -> list[tuple[ImageActivation, ...]]:
    """For each of these columns, the images with its `top` largest positive codes, out of one pass."""
    best, done = TopCandidates(len(columns), top), 0
    for codes in chunks:
        entries = codes[:, columns].tocoo()
        positive = entries.data > 0
        data = entries.data[positive]
        best.add(candidates(entries.col[positive], entries.row[positive] + done, data, 0.0, data))
        done += codes.shape[0]
    return [
        tuple(ImageActivation(int(item["row"]), float(item["after"])) for item in rows) for rows in best.by_column()
    ]
