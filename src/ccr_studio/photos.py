"""Photos: the rows of a store as columns, whatever model looks at them, and their thumbnails."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from io import BytesIO
from pathlib import Path, PureWindowsPath

import numpy as np
from PIL import Image

from ccr.data.store import EmbeddingStore
from ccr.encoders.assets import cache_folder
from ccr.errors import CCRError, MissingExtraError, WriteError
from ccr.inputs import Embeddings, Moments
from ccr.io.files import read_regular, write_bytes
from ccr.labels import Labels, validation_rows
from ccr_studio.service.limits import DECODING

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

    def corrected(self, labels: Mapping[int, str], left_out: Sequence[int]) -> Photos:
        """The same photos with other labels; nothing is trained or measured on those left out, which have none. Of test
        photos nothing counts: what is measured on them would be chosen."""
        made = copy(self)
        for name in ("test", "validation", "training", "open", "_held_out"):
            made.__dict__.pop(name, None)
        said = [*labels.items(), *((row, "") for row in left_out)]
        changes = {row: label for row, label in said if row < len(self) and self.open[row]}
        vocabulary = list(dict.fromkeys([*self.vocabulary, *changes.values()]))
        made.vocabulary, made.label, made.labelled = tuple(vocabulary), self.label.copy(), self.labelled.copy()
        for row, label in changes.items():
            made.label[row], made.labelled[row] = vocabulary.index(label), label != ""
        return made

    def labels_equal(self, other: Photos) -> bool:
        """Whether every photo has the same label there."""
        same = np.array([self.vocabulary.index(name) if name in self.vocabulary else -1 for name in other.vocabulary])
        return bool(np.array_equal(self.label, same[other.label]))

    def name(self, row: int) -> str:
        """Display name of a photo: its file and parent folder, which is often its class."""
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


#: Edges in pixels: a tile of the wall, a tile on a sharp screen, a photo's own page.
SIZES = (160, 320, 1024)


def small_jpeg(image: Image.Image, size: int) -> bytes:
    """The image within a square of `size` pixels, as JPEG."""
    small = image.convert("RGB")
    small.thumbnail((size, size))
    stream = BytesIO()
    small.save(stream, "JPEG", quality=82, optimize=True)
    return stream.getvalue()


class Thumbnails:
    """JPEGs of a store's photos, each kept under the hash of the photo's content, unless `keep` is False."""

    def __init__(self, store: EmbeddingStore, fallback: Path, *, keep: bool = True) -> None:
        self.store = store
        self._contents = store.contents
        self._folder, self._keep = _folder(fallback), keep

    @cached_property
    def digest(self) -> str:
        """Digest of the contents of all rows: it changes when any row has another photo."""
        contents = "\0".join("" if content is None else str(content) for content in self._contents.tolist())
        return hashlib.sha256(contents.encode(errors="surrogatepass")).hexdigest()[:16]

    def key(self, row: int) -> str | None:
        """Cache key of a photo: its content hash; None if the store has none."""
        content = self._contents[row]
        return str(content) if content and str(content).isalnum() else None

    def of(self, row: int, size: int) -> bytes:
        """The JPEG of a row; a CCRError with the reason where its photo cannot be read."""
        if size not in SIZES:
            raise CCRError(f"thumbnails have {', '.join(map(str, SIZES))} pixels, got {size}")
        key = self.key(row)
        kept = None if key is None else self._folder / key[:2] / f"{key}-{size}.jpg"
        if kept is not None:
            with suppress(OSError):
                return read_regular(kept)
        with DECODING.decoded(lambda: self.store.content(row)) as image:
            jpeg = small_jpeg(image, size)
        if kept is not None and self._keep:
            with suppress(WriteError):  # a full or read-only disk: made again next time
                write_bytes(kept, jpeg)
        return jpeg


def _folder(fallback: Path) -> Path:
    try:
        return cache_folder() / "thumbnails"
    except MissingExtraError:
        return fallback / "thumbnails"
