"""Caches: least recently used values in memory, and arrays as .npy files."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A cache of the values used last; any thread may ask.

    `functools.lru_cache` makes its values itself and forgets none of them by name; here values are put by whoever
    made them, and two threads may make one at the same time without waiting for each other.

    Parameters
    ----------
    most : values that are kept; the one that was not used for the longest time goes first.
    bytes_of, most_bytes : the size of a value, and of all together; one value is kept whatever its size.
    """

    def __init__(
        self, most: int, *, bytes_of: Callable[[Value], int] | None = None, most_bytes: int | None = None
    ) -> None:
        self._most, self._bytes_of, self._most_bytes = most, bytes_of, most_bytes
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value under a key, which counts as used; None where there is none."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: Key, value: Value) -> Value:
        """Keep a value, and give it back."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most or (len(self._kept) > 1 and self._is_too_large()):
                self._kept.popitem(last=False)
        return value

    def forget(self, key: Key) -> None:
        """Keep it no longer."""
        with self._lock:
            self._kept.pop(key, None)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def _is_too_large(self) -> bool:
        if self._bytes_of is None or self._most_bytes is None:
            return False
        return sum(map(self._bytes_of, self._kept.values())) > self._most_bytes


def npy(array: np.ndarray) -> bytes:
    """NumPy's own format, which `ccr.io.files.map_array` reads back."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
