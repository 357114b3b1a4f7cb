"""Where one image lies: small frozen values that can be sent to a worker process and that read their own content."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ccr.data.datasets.decode import MAX_BYTES, BadImage, Content, check_bytes
from ccr.reading import map_array

CIFAR_SIDE = 32


class Source(Protocol):
    """One image that can be read."""

    def read(self, max_bytes: int = MAX_BYTES) -> Content:
        """The image's bytes or pixels; BadImage with the reason when they cannot be had or are over `max_bytes`."""


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
class ArrayImage:
    """Row `row` of a `.npy` file of images."""

    path: Path
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        row = _open_array(self.path)[self.row]
        check_bytes(row.nbytes, max_bytes)
        return np.array(row)


@dataclass(frozen=True)
class PixelRowImage:
    """Row `row` of a picture in which every row of pixels is one image of 32 x 32."""

    path: Path
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        return _open_pixel_rows(self.path)[self.row]


@dataclass(frozen=True)
class ParquetImage:
    """Row `row` of a binary column of a Parquet file."""

    path: Path
    column: str
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        return _bytes_of(_open_column(self.path, self.column)[self.row], max_bytes)


@dataclass(frozen=True)
class ArrowImage:
    """Row `row` of the image column of a Hugging Face data set's arrow file: a struct of bytes and path, or bytes."""

    path: Path
    column: str
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        value = open_arrow(self.path).column(self.column)[self.row]
        return _bytes_of(value["bytes"] if isinstance(value, pa.StructScalar) and value.is_valid else value, max_bytes)


@lru_cache(maxsize=4)
def open_arrow(path: Path) -> pa.Table:
    """Memory-mapped table of an arrow file, stream or file form."""
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
def _open_pixel_rows(path: Path) -> np.ndarray:
    with Image.open(path, formats=["PNG"]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return pixels.reshape(len(pixels), CIFAR_SIDE, CIFAR_SIDE, 3)


@lru_cache(maxsize=1)
def _open_column(path: Path, column: str) -> pa.ChunkedArray:
    return pq.read_table(path, columns=[column]).column(column)


def _bytes_of(value: pa.Scalar, max_bytes: int) -> bytes:
    if not value.is_valid or not isinstance(value, (pa.BinaryScalar, pa.LargeBinaryScalar)):
        raise BadImage("the row holds no image bytes")
    check_bytes(value.as_buffer().size, max_bytes)
    content: bytes = value.as_py()
    return content
