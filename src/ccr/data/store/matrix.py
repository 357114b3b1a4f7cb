"""The shards of a store as one matrix, read by rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ccr.core.arrays import release
from ccr.data.store.ranged import RangedArray
from ccr.errors import FormatError
from ccr.places import AnyPath, Place
from ccr.reading import map_array

#: Shards that are open at once.
OPEN = 4096
#: Rows of an object store that are fetched together: bytes between them that are fetched for nothing, and the most at
#: once; and how many such ranges are under way.
GAP, RANGE, REQUESTS = 1 << 16, 1 << 23, 16


class Form(NamedTuple):
    """What all shards have in common."""

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
        return cls(files, [len(shard) for shard in shards], first)

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
        """As `take`, in few requests of many rows, several at a time."""
        wanted, position = np.unique(rows, return_inverse=True)
        fetched = np.empty((len(wanted), self.dimension), dtype=self.dtype)

        def fetch(part: slice) -> None:
            numbers = wanted[part]
            shard = int(np.searchsorted(self._starts, numbers[0], side="right")) - 1
            first, last = int(numbers[0] - self._starts[shard]), int(numbers[-1] - self._starts[shard])
            fetched[part] = self._rows(shard, first, last + 1)[numbers - numbers[0]]

        with ThreadPoolExecutor(REQUESTS) as pool:
            list(pool.map(fetch, self._ranges(wanted)))
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
    if shard.ndim != 2 or shard.dtype not in (np.float16, np.float32) or not shard.shape[1]:
        raise FormatError(f"{file} must be a float16 or float32 matrix, got {shard.dtype} {shard.shape}")
    return shard
