"""The shards of a store as one matrix, read by rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccr.core.inputs import release
from ccr.errors import FormatError
from ccr.reading import map_array


class ShardedMatrix:
    """Matrices (m_1, d), (m_2, d), ... of one dtype, memory-mapped, as one matrix (m_1 + m_2 + ..., d)."""

    def __init__(self, shards: Sequence[np.ndarray]) -> None:
        self.lengths = [len(shard) for shard in shards]
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *self.lengths])

    @classmethod
    def open(cls, files: Sequence[Path]) -> ShardedMatrix:
        """The matrix of `.npy` files, float16 or float32; at least one."""
        shards: list[np.ndarray] = []
        for file in files:
            shard = map_array(file, "be a .npy matrix of numbers", "copy the store again or embed again")
            if shard.ndim != 2 or shard.dtype not in (np.float16, np.float32) or not shard.shape[1]:
                raise FormatError(f"{file} must be a float16 or float32 matrix, got {shard.dtype} {shard.shape}")
            if shards and (shard.shape[1], shard.dtype) != (shards[0].shape[1], shards[0].dtype):
                raise FormatError(
                    f"all shards must be alike, got {shards[0].dtype} {shards[0].shape} and {shard.dtype} {shard.shape}"
                )
            shards.append(shard)
        return cls(shards)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def dimension(self) -> int:
        return int(self._shards[0].shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._shards[0].dtype

    def span(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, 0 <= start < stop <= m: still mapped when they lie in one shard, else a copy."""
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        if stop <= self._starts[shard + 1]:
            offset = int(self._starts[shard])
            return self._shards[shard][start - offset : stop - offset]
        return self.take(np.arange(start, stop))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy (n, d) of the rows with these numbers (n,), each from 0 to m - 1."""
        result = np.empty((len(rows), self.dimension), dtype=self.dtype)
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(shard_of):
            inside = shard_of == shard
            result[inside] = self._shards[shard][rows[inside] - self._starts[shard]]
        return result

    def release(self) -> None:
        """Let go of the pages that were read: mapped files count as this process's memory."""
        for shard in self._shards:
            release(shard)
