"""An object of an object store open for reading: by ranges, or as a stream that can be sought in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccr.places import Place


class Ranges:
    """An object open for reading; several threads may read."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._handle: Any = None

    def size(self) -> int:
        """Bytes of the object."""
        return self.place.tried(lambda: int(self._opened().size()))

    def read(self, start: int, stop: int | None) -> bytes:
        """The bytes from start to stop, None: the end. Fewer than there should be are asked for again."""

        def read() -> bytes:
            handle = self._opened()
            try:
                end = handle.size() if stop is None else stop
                data: bytes = handle.read_at(end - start, start)
                if len(data) != end - start:
                    raise OSError(f"got {len(data)} of {end - start} bytes")
            except Exception:
                self._handle = None
                raise
            return data

        return self.place.tried(read)

    def _opened(self) -> Any:
        handle = self._handle
        if handle is None:
            handle = self._handle = self.place.filesystem().open_input_file(self.place.key)
        return handle


class Stream(io.RawIOBase):
    """Ranges as a file of Python's."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges, self._size, self._at = ranges, ranges.size(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        data = self._ranges.read(self._at, stop) if stop > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
