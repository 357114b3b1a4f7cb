"""Photos: the rows of a store as columns, whatever model looks at them."""

from __future__ import annotations

from functools import cached_property
from pathlib import PureWindowsPath

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.inputs import Embeddings, Moments
from ccr.labels import Labels, validation_rows

#: Share of the photos that measures edits where the store has no split val.
HELD_OUT = 0.2


class Photos:
    """The photos of a store: labels, splits and names as arrays, and which of them train, validate and test."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store = store
        labels = np.array(["" if label is None else str(label) for label in store.labels], dtype=object)
        self.vocabulary, self.label = _numbered(labels)
        splits = np.array(["" if split is None else str(split) for split in store.splits], dtype=object)
        self.splits, self.split = _numbered(splits)
        self.labelled = np.asarray(labels != "", dtype=bool)

    def __len__(self) -> int:
        return len(self.store)

    def name(self, row: int) -> str:
        """What a photo is called: its file and the folder that it is in, which is often its class."""
        path = self.store.paths[row]
        if path is None:
            return f"photo {row}"
        if str(path).isdecimal():  # a row of an array: its number says little
            return f"photo {path}"
        return "/".join(part for part in PureWindowsPath(str(path)).parts[-2:] if not part.endswith("\\"))

    def of_split(self, name: str) -> np.ndarray:
        """Rows of a split."""
        return np.flatnonzero(self.split == self.splits.index(name)) if name in self.splits else np.zeros(0, np.int64)

    @cached_property
    def test(self) -> np.ndarray:
        """Labelled rows that are looked at on request only."""
        rows = self.of_split("test")
        return rows[self.labelled[rows]] if len(self.splits) > 1 else np.zeros(0, np.int64)

    @cached_property
    def validation(self) -> np.ndarray:
        """Labelled rows that no refit trains on and every edit is measured on: the split val, or some held out."""
        rows = self.of_split("val")
        return rows[self.labelled[rows]] if len(rows) else self._held_out

    @cached_property
    def training(self) -> np.ndarray:
        """Labelled rows that a refit trains on."""
        rows = np.flatnonzero(self.store.trainable)
        rows = rows if len(rows) else np.setdiff1d(np.arange(len(self)), self.test)
        return np.setdiff1d(rows[self.labelled[rows]], self.validation)

    @cached_property
    def open(self) -> np.ndarray:
        """A mask of the photos that are shown unasked: all but the test split."""
        shown = np.ones(len(self), bool)
        shown[self.test] = False
        return shown

    @cached_property
    def moments(self) -> Moments:
        """Mean and covariance of all embeddings, for concepts by example."""
        return Embeddings(self.store).moments()

    def row(self, key: str) -> int:
        """The row that a photo's number in an address names."""
        if not (key.isascii() and key.isdecimal() and len(key) < 12):
            raise CCRError(f"a photo is named by its number, got {key!r}")
        return self.check_row(int(key))

    def check_row(self, row: int) -> int:
        """The row, which must be one of the store's."""
        if not 0 <= row < len(self):
            raise CCRError(f"photos go from 0 to {len(self) - 1}, got {row}")
        return row

    @cached_property
    def _held_out(self) -> np.ndarray:
        rows = np.setdiff1d(np.flatnonzero(self.labelled), self.test)
        if len(rows) < 2:
            return np.zeros(0, np.int64)
        classes, numbers = np.unique(self.label[rows], return_inverse=True)
        return rows[validation_rows(Labels(classes, numbers), HELD_OUT, seed=0, most=len(rows))]


def _numbered(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The different values, sorted, and the number of each. Ten times as fast as `np.unique`, which sorts all texts."""
    known = sorted(set(values.tolist()))
    numbers = {value: number for number, value in enumerate(known)}
    return tuple(known), np.fromiter((numbers[value] for value in values.tolist()), np.int32, len(values))
