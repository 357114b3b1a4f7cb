"""Filters that combine, their counts and orders; and selections of photos that a link can name."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccr.errors import CCRError, FormatError, WriteError
from ccr.io.files import map_array, write_bytes
from ccr_studio.cache import Recent, npy
from ccr_studio.photos import Photos
from ccr_studio.seen import SeenModel

#: Bars of a histogram of confidence, and of a concept's values.
CONFIDENCE_BINS, VALUE_BINS = 10, 24
#: Filters by what a model says.
SAID = ("predicted", "right", "confidence", "concepts")
SORTS = ("row", "confidence", "class", "predicted", "concept")


@dataclass(frozen=True)
class ConceptRange:
    """Photos whose value for a concept lies between two numbers; None: no bound on that side."""

    concept: str
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True)
class Wish:
    """Filters that all must hold. Several classes, predictions or splits: any of them; none: all.

    No split asked for is all but test. `rows` is a selection of photos.
    """

    classes: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    right: Literal["right", "wrong"] | None = None
    low: float = 0.0
    high: float = 1.0
    concepts: tuple[ConceptRange, ...] = ()
    selection: str | None = None
    sort: str = "row"
    by: str | None = None
    descending: bool = False
    rows: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Counts:
    """How many photos each filter would leave, all others applied."""

    total: int
    classes: dict[str, int]
    predicted: dict[str, int]
    splits: dict[str, int]
    right: dict[str, int]
    confidence: list[int]
    values: ValueHistogram | None


@dataclass(frozen=True)
class ValueHistogram:
    """How many photos lie in each of equal parts of the range of a concept's values, and where it begins to show."""

    concept: str
    low: float
    high: float
    counts: list[int]
    threshold: float | None


class Filtered:
    """A wish as masks over the photos, one for each filter."""

    def __init__(self, seen: SeenModel, wish: Wish) -> None:
        self.seen, self.wish = seen, wish
        self.masks = {"classes": self._named(seen.truth, wish.classes), "split": self._split()}
        self.masks["predicted"] = self._named(seen.predicted, wish.predicted)
        self.masks["right"] = self._right()
        self.masks["confidence"] = self._confidence()
        self.masks["concepts"] = self._concepts()
        self.masks["selection"] = self._selection()

    def rows(self) -> np.ndarray:
        """The rows that all filters leave, in the order wished for."""
        rows = np.flatnonzero(self._all_but())
        keys = self._keys()
        if keys is None:
            return rows[::-1] if self.wish.descending else rows
        values = keys[rows]
        return rows[np.argsort(-values if self.wish.descending else values, kind="stable")]

    def counts(self) -> Counts:
        """Beside each filter, how many photos it would leave."""
        seen, photos = self.seen, self.seen.photos
        right = seen.right[self._all_but("right") & (seen.truth >= 0)]
        sure = seen.confidence[self._all_but("confidence")]
        bins = np.minimum((sure * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
        return Counts(
            total=int(self._all_but().sum()),
            classes=_count(seen.truth, self._all_but("classes"), seen.classes),
            predicted=_count(seen.predicted, self._all_but("predicted"), seen.classes),
            splits=_count(photos.split, self._beside_splits(), [name or "none" for name in photos.splits]),
            right={"right": int(right.sum()), "wrong": int((~right).sum())},
            confidence=np.bincount(bins, minlength=CONFIDENCE_BINS).tolist(),
            values=self._histogram(),
        )

    def _all_but(self, *names: str) -> np.ndarray:
        whole = np.ones(len(self.seen.photos), bool)
        for other, mask in self.masks.items():
            if mask is not None and other not in names:
                whole &= mask
        return whole

    def _beside_splits(self) -> np.ndarray:
        """Photos that are counted beside the splits: test photos without what the model says of them, which would be a
        look at them that nobody asked for."""
        mask, open_ = self._all_but("split"), self.seen.photos.open
        return mask if "test" in self.wish.splits else np.where(open_, mask, self._all_but("split", *SAID))

    def _named(self, numbers: np.ndarray, names: tuple[str, ...]) -> np.ndarray | None:
        if not names:
            return None
        return np.isin(numbers, [self.seen.number(name) for name in names])

    def _split(self) -> np.ndarray:
        photos = self.seen.photos
        if not self.wish.splits:
            return photos.open
        known = [name or "none" for name in photos.splits]
        for name in self.wish.splits:
            if name not in known:
                raise CCRError(f"the store has no split {name!r}; it has {', '.join(known)}")
        return np.isin(photos.split, [known.index(name) for name in self.wish.splits])

    def _right(self) -> np.ndarray | None:
        if self.wish.right is None:
            return None
        return (self.seen.truth >= 0) & (self.seen.right == (self.wish.right == "right"))

    def _confidence(self) -> np.ndarray | None:
        low, high = self.wish.low, self.wish.high
        if not 0 <= low <= high <= 1:
            raise CCRError(f"confidence goes from 0 to 1, the lower bound first, got {low:g} to {high:g}")
        if (low, high) == (0.0, 1.0):
            return None
        return (self.seen.confidence >= low) & (self.seen.confidence <= high)

    def _concepts(self) -> np.ndarray | None:
        mask = None
        for wanted in self.wish.concepts:
            values, part = self.seen.values(wanted.concept), np.ones(len(self.seen.photos), bool)
            if wanted.above is not None:
                part &= values >= wanted.above
            if wanted.below is not None:
                part &= values <= wanted.below
            mask = part if mask is None else mask & part
        return mask

    def _selection(self) -> np.ndarray | None:
        if self.wish.rows is None:
            return None
        mask = np.zeros(len(self.seen.photos), bool)
        mask[self.wish.rows] = True
        return mask

    def _keys(self) -> np.ndarray | None:
        seen, sort = self.seen, self.wish.sort
        if sort not in SORTS:
            raise CCRError(f"photos are sorted by {', '.join(SORTS)}, got {sort!r}")
        if sort == "concept":
            if not self.wish.by:
                raise CCRError("sorting by a concept needs its name: give by=NAME")
            return seen.values(self.wish.by)
        return {"row": None, "confidence": seen.confidence, "class": seen.truth, "predicted": seen.predicted}[sort]

    def _histogram(self) -> ValueHistogram | None:
        concept = self.wish.concepts[-1].concept if self.wish.concepts else self.wish.by
        if concept is None:
            return None
        values = self.seen.values(concept)
        low, high = float(values.min()), float(values.max())
        inside = values[self._all_but("concepts")]
        counts = np.histogram(inside, VALUE_BINS, (low, high if high > low else low + 1.0))[0]
        return ValueHistogram(concept, low, high, counts.tolist(), self.seen.threshold(concept))


def _count(numbers: np.ndarray, mask: np.ndarray, names: tuple[str, ...] | list[str]) -> dict[str, int]:
    found = numbers[mask]
    counts = np.bincount(found[found >= 0], minlength=len(names)).tolist()
    return dict(zip(names, counts, strict=True))


#: Selections held in memory.
KEPT = 32


class Selections:
    """Sets of rows, each known by a hash of what is in it, so that a link to one stays good."""

    def __init__(self, photos: Photos, folder: Path | None) -> None:
        self.photos, self._folder = photos, folder
        self._kept: Recent[str, np.ndarray] = Recent(KEPT)

    def add(self, rows: Any) -> str:
        """Keep a set of rows; its id."""
        chosen = np.unique(np.asarray(rows, np.int64))
        if not len(chosen):
            raise CCRError("a selection needs at least one photo, got none: draw around some")
        self.photos.check_row(int(chosen[0]))
        self.photos.check_row(int(chosen[-1]))
        key = hashlib.sha256(chosen.tobytes()).hexdigest()[:16]
        self._kept.put(key, chosen)
        if self._folder is not None:
            with suppress(WriteError):
                write_bytes(self._folder / f"{key}.npy", npy(chosen))
        return key

    def get(self, key: str) -> np.ndarray:
        """The rows of a selection."""
        known = self._kept.get(key)
        if known is not None:
            return known
        if self._folder is None or len(key) != 16 or not all(letter in "0123456789abcdef" for letter in key):
            raise _unknown()
        try:
            kept = map_array(self._folder / f"{key}.npy", "be a selection", "select again")
        except FormatError:
            raise _unknown() from None
        if kept.ndim != 1 or kept.dtype != np.int64 or not 0 < len(kept) <= len(self.photos):  # before it is read
            raise _unknown()
        rows = np.array(kept)
        if rows.min() < 0 or rows.max() >= len(self.photos):
            raise _unknown()
        return self._kept.put(key, rows)


def _unknown() -> CCRError:
    return CCRError("that selection is not known here: select the photos again")
