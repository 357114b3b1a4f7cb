"""Selections: sets of photos that a link can name, and what sets them apart."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError, WriteError
from ccr.io.files import map_array, write_bytes
from ccr_studio.arrays import npy
from ccr_studio.photos import Photos
from ccr_studio.seen import Seen

#: Selections held in memory; concepts and classes that are named of one.
KEPT, CONCEPTS, CLASSES = 32, 12, 8


class Selections:
    """Sets of rows, each known by a hash of what is in it, so that a link to one stays good."""

    def __init__(self, photos: Photos, folder: Path | None) -> None:
        self.photos, self._folder = photos, folder
        self._kept: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, rows: Any) -> str:
        """Keep a set of rows; its id."""
        chosen = np.unique(np.asarray(rows, np.int64))
        if not len(chosen):
            raise CCRError("a selection needs at least one photo, got none: draw around some")
        self.photos.check_row(int(chosen[0]))
        self.photos.check_row(int(chosen[-1]))
        key = hashlib.sha256(chosen.tobytes()).hexdigest()[:16]
        self._remember(key, chosen)
        if self._folder is not None:
            with suppress(WriteError):
                write_bytes(self._folder / f"{key}.npy", npy(chosen))
        return key

    def get(self, key: str) -> np.ndarray:
        """The rows of a selection."""
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        if self._folder is None or len(key) != 16 or not all(letter in "0123456789abcdef" for letter in key):
            raise _unknown()
        try:
            rows = np.array(map_array(self._folder / f"{key}.npy", "be a selection", "select again"))
        except FormatError:
            raise _unknown() from None
        if (
            rows.ndim != 1
            or rows.dtype != np.int64
            or not len(rows)
            or rows.min() < 0
            or rows.max() >= len(self.photos)
        ):
            raise _unknown()
        self._remember(key, rows)
        return rows

    def _remember(self, key: str, rows: np.ndarray) -> None:
        with self._lock:
            self._kept[key] = rows
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def set_apart(seen: Seen, rows: np.ndarray) -> dict[str, Any]:
    """Which concepts and classes are more, or less, frequent in these photos than in the others."""
    inside = np.zeros(len(seen.photos), bool)
    inside[rows] = True
    outside = seen.photos.open & ~inside
    shares = [_shares(seen, mask) for mask in (inside, outside)]
    difference = shares[0] - shares[1]
    order = np.argsort(-np.abs(difference), kind="stable")[:CONCEPTS]
    known = seen.truth[rows][seen.truth[rows] >= 0]
    counts = np.bincount(known, minlength=len(seen.classes))
    common = [number for number in np.argsort(-counts, kind="stable")[:CLASSES] if counts[number]]
    return {
        "n": len(rows),
        "right": int(seen.right[rows].sum()),
        "labelled": len(known),
        "concepts": [
            {"concept": seen.model.names[i], "inside": float(shares[0][i]), "outside": float(shares[1][i])}
            for i in order
            if difference[i] != 0
        ],
        "classes": [{"name": seen.classes[number], "count": int(counts[number])} for number in common],
    }


def _shares(seen: Seen, mask: np.ndarray) -> np.ndarray:
    """The share of photos that show each concept (n,)."""
    rows = np.repeat(mask, np.diff(seen.codes.indptr))
    counts = np.bincount(seen.codes.indices[rows], minlength=seen.codes.shape[1])
    return counts / max(int(mask.sum()), 1)


def _unknown() -> CCRError:
    return CCRError("that selection is not known here: select the photos again")
