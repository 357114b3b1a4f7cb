"""A `.npy` matrix of an object store, of which rows are read as ranges of bytes."""

from __future__ import annotations

import io
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ccr.places import Place
from ccr.reading import understood

#: Bytes in which the heading of a `.npy` file lies.
HEADING = 4096


class _Heading(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int


class RangedArray:
    """The matrix of a `.npy` object; nothing but its heading is read before rows are asked for."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._ranges = place.ranges()

    @cached_property
    def _heading(self) -> _Heading:
        with understood(self.place, "be a .npy matrix of numbers", "copy the store again or embed again"):
            size = self._ranges.size()
            stream = io.BytesIO(self._ranges.read(0, min(size, HEADING)))
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, by_column, dtype = read(stream)
            if by_column or dtype.hasobject:
                raise ValueError("it is not a plain matrix by rows")
            if stream.tell() + int(np.prod(shape)) * dtype.itemsize != size:
                raise ValueError(f"{size} bytes are not those of a {dtype} array of shape {shape}")
            return _Heading(tuple(shape), dtype, stream.tell())

    @property
    def shape(self) -> tuple[int, ...]:
        return self._heading.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._heading.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def span(self, start: int, stop: int) -> np.ndarray:
        """Rows start:stop, in memory."""
        offset, dtype, width = self._heading.offset, self.dtype, self.shape[1]
        size = width * dtype.itemsize
        data = self._ranges.read(offset + start * size, offset + stop * size)
        return np.frombuffer(data, dtype).reshape(stop - start, width)
