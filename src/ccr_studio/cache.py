"""Caches: least recently used values in memory, arrays as .npy files, and the process that computes one."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

import numpy as np

from ccr.utils.processes import end_with_parent, isolated_python

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


class Computation:
    """A process of its own that runs `program` on an order, which it reads by `read_order`; it ends when this one does,
    and Ctrl-C is not for it."""

    def __init__(self, program: str, order: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            isolated_python(program), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None
        with suppress(OSError):  # it may be gone already, and says why
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()  # and stays open: its end is the sign that this process is gone

    def wait(self) -> str | None:
        """Wait until it ends; why it failed, None if it did not."""
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            said = stream.read()
        self._process.wait()
        with suppress(OSError):
            self._process.stdin.close()
        return (said.strip().splitlines() or ["it was stopped"])[-1] if self._process.returncode else None

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def read_order() -> dict[str, Any]:
    """The order of a process that a `Computation` started, which from now on ends with the one that gave it."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    end_with_parent()
    return order
