"""Shards: written from the chunks of a finished run, and read as one matrix."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ccr.data.store import layout
from ccr.data.store.layout import RangedArray
from ccr.data.store.workers import Chunk
from ccr.errors import CCRError, FormatError
from ccr.io.files import map_array, remove_leftovers, write_bytes, write_json
from ccr.io.remote import AnyPath, Place
from ccr.utils.arrays import release

# The shards of a store as one matrix, read by rows.
#: Shards that are open at once.
OPEN = 4096
#: Rows of an object store that are fetched together: bytes between them that are fetched for nothing, and the most at
#: once; and how many such ranges are under way.
GAP, RANGE, REQUESTS = 1 << 16, 1 << 23, 16


class Form(NamedTuple):
    """Dimension and dtype of the rows, the same in all shards."""

    dimension: int
    dtype: np.dtype[Any]


class ShardedMatrix:
    """Matrices (m_1, d), (m_2, d), ... of one dtype as one matrix (m_1 + m_2 + ..., d).

    Local shards are memory-mapped, those of an object store read by ranges. A shard is opened, and checked to be what
    the store's description says, when one of its rows is wanted.
    """

    def __init__(self, files: Sequence[AnyPath], lengths: Sequence[int], form: Form) -> None:
        self.files, self.lengths, self.form = tuple(files), list(lengths), form
        self._starts = np.cumsum([0, *self.lengths], dtype=np.int64)
        self._shard: Callable[[int], np.ndarray | RangedArray] = lru_cache(maxsize=OPEN)(self._open)
        self._mapped: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "lengths": self.lengths, "form": self.form}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @classmethod
    def open(cls, files: Sequence[AnyPath]) -> ShardedMatrix:
        """The matrix of `.npy` files, float16 or float32; at least one. Every one is looked at."""
        shards = [_opened(file) for file in files]
        first = Form(int(shards[0].shape[1]), shards[0].dtype)
        for shard in shards:
            if Form(int(shard.shape[1]), shard.dtype) != first:
                raise FormatError(
                    f"all shards must be alike, got {shards[0].dtype} {shards[0].shape} and {shard.dtype} {shard.shape}"
                )
        return cls(files, [shard.shape[0] for shard in shards], first)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def dimension(self) -> int:
        return self.form.dimension

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.form.dtype

    def span(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, 0 <= start < stop <= m: still mapped when they lie in one shard, else a copy."""
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        if stop <= self._starts[shard + 1]:
            offset = int(self._starts[shard])
            return self._rows(shard, start - offset, stop - offset)
        return self.take(np.arange(start, stop))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy (n, d) of the rows with these numbers (n,), each from 0 to m - 1."""
        if len(rows) and isinstance(self.files[0], Place):
            return self._fetch(rows)
        result = np.empty((len(rows), self.dimension), dtype=self.dtype)
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(shard_of):
            inside = shard_of == shard
            result[inside] = self._map(shard)[rows[inside] - self._starts[shard]]
        return result

    def release(self) -> None:
        """Let go of the pages that were read: mapped files count as this process's memory."""
        mapped, self._mapped = self._mapped, set()
        for shard in mapped:
            release(self._shard(shard))

    def _fetch(self, rows: np.ndarray) -> np.ndarray:
        """`take` from an object store: few requests of many rows, several at a time."""
        sorted_rows, position = np.unique(rows, return_inverse=True)
        fetched = np.empty((len(sorted_rows), self.dimension), dtype=self.dtype)

        def fetch(part: slice) -> None:
            numbers = sorted_rows[part]
            shard = int(np.searchsorted(self._starts, numbers[0], side="right")) - 1
            first, last = int(numbers[0] - self._starts[shard]), int(numbers[-1] - self._starts[shard])
            fetched[part] = self._rows(shard, first, last + 1)[numbers - numbers[0]]

        with ThreadPoolExecutor(REQUESTS) as pool:
            list(pool.map(fetch, self._ranges(sorted_rows)))
        return fetched[position]

    def _ranges(self, rows: np.ndarray) -> Iterator[slice]:
        """Runs of sorted rows that lie in one shard and near each other."""
        size = self.dimension * self.dtype.itemsize
        shard_of = np.searchsorted(self._starts, rows, side="right")
        start = 0
        for stop in range(1, len(rows) + 1):
            together = stop < len(rows) and shard_of[stop] == shard_of[start]
            near = together and (rows[stop] - rows[stop - 1] - 1) * size <= GAP
            if not near or (rows[stop] - rows[start] + 1) * size > RANGE:
                yield slice(start, stop)
                start = stop

    def _rows(self, shard: int, start: int, stop: int) -> np.ndarray:
        opened = self._shard(shard)
        return opened.span(start, stop) if isinstance(opened, RangedArray) else self._map(shard)[start:stop]

    def _map(self, shard: int) -> np.ndarray:
        """A local shard."""
        self._mapped.add(shard)
        opened = self._shard(shard)
        assert isinstance(opened, np.ndarray)
        return opened

    def _open(self, shard: int) -> np.ndarray | RangedArray:
        opened = _opened(self.files[shard])
        if opened.shape != (self.lengths[shard], self.dimension) or opened.dtype != self.dtype:
            raise FormatError(
                f"{self.files[shard]} must be {self.dtype} of {self.lengths[shard]} x {self.dimension}, as the store "
                f"says, got {opened.dtype} {opened.shape}: copy the store again or embed again"
            )
        return opened


def _opened(file: AnyPath) -> np.ndarray | RangedArray:
    shard: np.ndarray | RangedArray
    if isinstance(file, Place):
        shard = RangedArray(file)
    else:
        shard = map_array(file, "be a .npy matrix of numbers", "copy the store again or embed again")
    if len(shard.shape) != 2 or shard.dtype not in (np.float16, np.float32) or not shard.shape[1]:
        raise FormatError(f"{file} must be a float16 or float32 matrix, got {shard.dtype} {shard.shape}")
    return shard


_Rows = tuple[np.ndarray, list[dict[str, Any]]]


def write_shards(folder: AnyPath, chunks: Iterator[Chunk], shard_size: int) -> dict[str, Any]:
    """Write the rows of all chunks as shards of `shard_size` rows; give the totals for `store.json`."""
    totals = Totals()
    shards = [
        write_shard(folder, number, embeddings, metadata)
        for number, (embeddings, metadata) in enumerate(_regroup(map(totals.add, chunks), shard_size))
    ]
    if not shards:
        refuse_empty(folder, totals)
    return {**totals.to_dict(), "shards": shards}


def write_shard(folder: AnyPath, number: int, embeddings: np.ndarray, metadata: list[dict[str, Any]]) -> dict[str, Any]:
    """Write one shard; its entry in `store.json`."""
    files = {"img_emb": layout.array_bytes(embeddings), "metadata": layout.table_bytes(metadata)}
    write_bytes(layout.embeddings_path(folder, number), files["img_emb"])
    write_bytes(layout.metadata_path(folder, number), files["metadata"])
    return {"rows": len(metadata), **{name: hashlib.sha256(data).hexdigest() for name, data in files.items()}}


def finish(folder: AnyPath, description: Mapping[str, Any]) -> None:
    """Make the store whole: shards that a killed run wrote beyond these go, `store.json` appears with the time at which
    the run began, and the progress goes."""
    for part in ("img_emb", "metadata"):
        for file in (folder / part).iterdir():
            number = layout.shard_number(file.name)
            if number is not None and number >= len(description["shards"]):
                file.unlink()
    write_json(folder / layout.DESCRIPTION, description)
    if not isinstance(folder, Place):
        begun = (folder / layout.PROGRESS / layout.PLAN).stat()
        os.utime(folder / layout.DESCRIPTION, ns=(begun.st_atime_ns, begun.st_mtime_ns))
    remove_progress(folder)


def refuse_empty(folder: AnyPath, totals: Totals) -> NoReturn:
    """The error of a store without any row."""
    remove_progress(folder)  # so that the next run looks at the images again
    raise CCRError(f"none of the {len(totals.skipped)} images can be read: {totals.skipped[0]['reason']}")


def remove_progress(folder: AnyPath) -> None:
    """Remove what only an unfinished store needs, and what killed runs left: no other run may be at work."""
    if isinstance(folder, Place):
        (folder / layout.PROGRESS).remove_below()
        return
    shutil.rmtree(folder / layout.PROGRESS, ignore_errors=True)
    for parent in (folder, folder / "img_emb", folder / "metadata"):
        remove_leftovers(parent)


class Totals:
    """Counts that grow as chunks are read."""

    def __init__(self) -> None:
        self.rows = self.reused = self.crossing = 0
        self.skipped: list[dict[str, str]] = []
        self.splits: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()

    def add(self, chunk: Chunk) -> _Rows:
        """Count a chunk, and give its rows."""
        self.rows += len(chunk.metadata)
        self.reused += chunk.reused
        self.crossing += chunk.crossing
        self.skipped += chunk.skipped
        self.splits.update(row["split"] for row in chunk.metadata if row["split"] is not None)
        self.labels.update(row["label"] for row in chunk.metadata if row["label"] is not None)
        return chunk.embeddings, chunk.metadata

    def to_dict(self) -> dict[str, Any]:
        counts: Mapping[str, Any] = {"rows": self.rows, "reused": self.reused, "crossing": self.crossing}
        return {
            "counts": {**counts, "skipped": len(self.skipped), "classes": dict(sorted(self.labels.items()))},
            "splits": dict(sorted(self.splits.items())),
            "skipped": self.skipped,
        }


def _regroup(parts: Iterator[_Rows], size: int) -> Iterator[_Rows]:
    """The same rows in parts of `size` rows; the last may be shorter."""
    arrays: list[np.ndarray] = []
    metadata: list[dict[str, Any]] = []
    for embeddings, rows in parts:
        arrays.append(embeddings)
        metadata += rows
        while len(metadata) >= size:
            joined = np.concatenate(arrays)
            yield joined[:size], metadata[:size]
            arrays, metadata = [joined[size:]], metadata[size:]
    if metadata:
        yield np.concatenate(arrays), metadata
