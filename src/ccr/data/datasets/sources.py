"""Where one image lies: small frozen values that can be sent to a worker process and that read their own content."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr.data.datasets.decode import MAX_BYTES, BadImage, Content, check_bytes
from ccr.errors import CCRError, MissingPlaceError
from ccr.io.files import check_regular, check_rows, map_array, open_regular
from ccr.io.remote import AnyPath, Place, Ranges

#: Bytes of a shard that are read at once.
BLOCK = 4 << 20
#: Cells of a Parquet file that are read at once, each of which may be as large as an image may be, and bytes of them
#: that are held.
AT_ONCE, HELD = 4, 256 << 20


class Source(Protocol):
    """One image that can be read."""

    def read(self, max_bytes: int = MAX_BYTES) -> Content:
        """The image's bytes or pixels; BadImage with the reason when they cannot be had or are over `max_bytes`."""


@runtime_checkable
class Sized(Protocol):
    """A source that knows its bytes without reading them."""

    def size(self) -> int:
        """How many there are; -1 if that cannot be seen."""


@dataclass(frozen=True)
class FileImage:
    """An image file."""

    path: Path

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        try:
            if self.path.is_file():  # a pipe or device would block for ever
                check_bytes(self.path.stat().st_size, max_bytes)
                return self.path.read_bytes()
            exists = self.path.exists()
        except BadImage:
            raise
        except (OSError, ValueError) as error:
            raise BadImage(f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from error
        raise BadImage("it is not a regular file" if exists else "there is no such file")

    def size(self) -> int:
        """Bytes of the file; -1 if it cannot be seen."""
        try:
            return self.path.stat().st_size
        except (OSError, ValueError):
            return -1


@dataclass(frozen=True)
class ObjectImage:
    """An image that is an object of an object store."""

    place: Place
    length: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        check_bytes(self.length, max_bytes)
        try:
            return self.place.read_bytes()
        except MissingPlaceError as error:
            raise BadImage(str(error)) from None

    def size(self) -> int:
        """Bytes of the object when it was listed."""
        return self.length


@dataclass(frozen=True)
class MemberImage:
    """Some bytes of a file, such as a member of a tar shard."""

    path: AnyPath
    offset: int
    length: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        check_bytes(self.length, max_bytes)
        first, last = self.offset // BLOCK, (self.offset + self.length - 1) // BLOCK
        blocks = b"".join(_block(self.path, number) for number in range(first, last + 1))
        data = blocks[self.offset - first * BLOCK :][: self.length]
        if len(data) != self.length:
            raise BadImage(f"{self.path.name} ends in the middle of it")
        return data

    def size(self) -> int:
        """Bytes of the member."""
        return self.length


@dataclass(frozen=True)
class CellImage:
    """Row `row` of the image column of row group `group` of a Parquet file: bytes, or a struct of bytes and path."""

    path: AnyPath
    group: int
    row: int
    column: str

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        with _damage_named(self.path):
            value = _open_group(self.path, self.group, self.column).row(self.row)
        return _bytes_of(value["bytes"] if isinstance(value, pa.StructScalar) and value.is_valid else value, max_bytes)


@dataclass(frozen=True)
class ArrayImage:
    """Row `row` of a `.npy` file of images."""

    path: Path
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        row = _open_array(self.path)[self.row]
        check_bytes(row.nbytes, max_bytes)
        return np.array(row)


@dataclass(frozen=True)
class ParquetImage:
    """Row `row` of a binary column of a Parquet file."""

    path: Path
    column: str
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        with _damage_named(self.path):
            value = _open_column(self.path, self.column)[self.row]
        return _bytes_of(value, max_bytes)


@dataclass(frozen=True)
class ArrowImage:
    """Row `row` of the image column of a Hugging Face data set's arrow file: a struct of bytes and path, or bytes."""

    path: Path
    column: str
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        with _damage_named(self.path):
            value = open_arrow(self.path).column(self.column)[self.row]
        return _bytes_of(value["bytes"] if isinstance(value, pa.StructScalar) and value.is_valid else value, max_bytes)


@contextmanager
def _damage_named(path: AnyPath) -> Iterator[None]:
    """Around the reading of a table: damage is a bad image that names the file; errors in words stay."""
    try:
        yield
    except CCRError:
        raise
    except Exception as error:  # a parser of damaged bytes may raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadImage(f"{path.name} is damaged there, or cannot be read: {reason}") from error


def open_parquet(path: AnyPath) -> pq.ParquetFile:
    """A Parquet file of this machine or of an object store."""
    if isinstance(path, Place):
        size, source = path.size(), pq.ParquetFile(path.open())
    else:
        found = os.stat(path)
        check_regular(found, None, path)
        size, source = found.st_size, pq.ParquetFile(str(path))
    check_rows(source.metadata.num_rows, size)
    return source


@lru_cache(maxsize=4)
def _block(path: AnyPath, number: int) -> bytes:
    """A block of a file: neighbours are mostly wanted next."""
    start = number * BLOCK
    if isinstance(path, Place):
        ranges = _ranges(path)
        return ranges.read(start, min(start + BLOCK, ranges.size()))
    try:
        with open_regular(path) as stream:
            stream.seek(start)
            return stream.read(BLOCK)
    except OSError as error:
        raise BadImage(f"{path.name} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _ranges(place: Place) -> Ranges:
    return place.ranges()


class _Group:
    """The cells of a row group, as many in memory as fit: a value that is repeated a million times is in the file once,
    and would be in memory a million times."""

    def __init__(self, path: AnyPath, group: int, column: str) -> None:
        self._place = path, group, column
        self._lock = threading.Lock()
        self._begin()

    def row(self, number: int) -> pa.Scalar:
        with self._lock:
            if self._starts and number < self._starts[0]:
                self._begin()
            while number >= self._end:
                self._read_on()
            at = bisect_right(self._starts, number) - 1
            return self._cells[at][number - self._starts[at]]

    def _begin(self) -> None:
        path, group, column = self._place
        self._batches = open_parquet(path).iter_batches(AT_ONCE, row_groups=[group], columns=[column])
        self._starts: list[int] = []
        self._cells: list[pa.Array] = []
        self._end = self._bytes = 0

    def _read_on(self) -> None:
        cells = next(self._batches).column(0)
        if self._bytes + cells.nbytes > HELD:
            self._starts, self._cells, self._bytes = [], [], 0
        self._starts.append(self._end)
        self._cells.append(cells)
        self._bytes += cells.nbytes
        self._end += len(cells)


@lru_cache(maxsize=2)
def _open_group(path: AnyPath, group: int, column: str) -> _Group:
    return _Group(path, group, column)


@lru_cache(maxsize=4)
def open_arrow(path: Path) -> pa.Table:
    """Memory-mapped table of an arrow file, stream or file form."""
    check_regular(os.stat(path), None, path)
    source = pa.memory_map(str(path))
    try:
        return pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source).read_all()


@lru_cache(maxsize=4)
def _open_array(path: Path) -> np.ndarray:
    return map_array(path, "be a .npy array", "save it again")


@lru_cache(maxsize=1)
def _open_column(path: Path, column: str) -> pa.ChunkedArray:
    return open_parquet(path).read(columns=[column]).column(column)


def _bytes_of(value: pa.Scalar, max_bytes: int) -> bytes:
    if not value.is_valid or not isinstance(value, (pa.BinaryScalar, pa.LargeBinaryScalar)):
        raise BadImage("the row holds no image bytes")
    check_bytes(value.as_buffer().size, max_bytes)
    content: bytes = value.as_py()
    return content
