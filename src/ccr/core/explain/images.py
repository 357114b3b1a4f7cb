"""For a concept, the images that show it most, and those that show it only just."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.explain.terms import plain_fields
from ccr.errors import CCRError

#: One candidate: an image `row` and its code for a concept `column`.
CANDIDATE = np.dtype([("column", "i4"), ("row", "i8"), ("code", "f4")])
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
    """The `top` images of largest code, by size, or of the `least`, for each of n columns, earlier rows first among
    equals.

    Holds at most n x top + MOST_WAITING candidates however many are added.
    """

    def __init__(self, n: int, top: int, *, least: bool = False) -> None:
        self.n, self.top, self.sign = n, top, 1 if least else -1
        self._kept = np.zeros(0, CANDIDATE)
        self._waiting: list[np.ndarray] = []

    def add(self, columns: np.ndarray, rows: np.ndarray, codes: np.ndarray) -> None:
        entries = np.empty(len(columns), CANDIDATE)
        entries["column"], entries["row"], entries["code"] = columns, rows, codes
        self._waiting.append(entries)
        if sum(map(len, self._waiting)) > max(MOST_WAITING, self.n * self.top):
            self._sort_out()

    def by_column(self) -> list[tuple[ImageActivation, ...]]:
        """For each column its images, best first."""
        self._sort_out()
        edges = np.searchsorted(self._kept["column"], np.arange(self.n + 1))
        return [
            tuple(ImageActivation(int(item["row"]), float(item["code"])) for item in self._kept[start:stop])
            for start, stop in pairwise(edges)
        ]

    def _sort_out(self) -> None:
        entries = np.concatenate([self._kept, *self._waiting])
        entries = entries[np.lexsort((entries["row"], self.sign * np.abs(entries["code"]), entries["column"]))]
        rank = np.arange(len(entries)) - np.searchsorted(entries["column"], entries["column"])
        self._kept, self._waiting = entries[rank < self.top], []


def top_images(
    chunks: Iterable[sparse.csr_matrix], *, columns: np.ndarray, top: int = 9, least: bool = False
) -> list[tuple[ImageActivation, ...]]:
    """For each of these columns, the images with its `top` largest, or `least`, positive codes, out of one pass."""
    if top < 0:
        raise CCRError(f"top is how many images to give, 0 or more, got {top}")
    best, done = TopCandidates(len(columns), top, least=least), 0
    for codes in chunks:
        entries = codes[:, columns].tocoo()
        positive = entries.data > 0
        best.add(entries.col[positive], entries.row[positive] + done, entries.data[positive])
        done += codes.shape[0]
    return best.by_column()
