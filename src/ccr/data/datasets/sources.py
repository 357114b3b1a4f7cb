"""Sources of images: small frozen values that can be sent to a worker process and that read their own content."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from ccr.errors import CCRError, MissingPlaceError
from ccr.io.files import check_regular, check_rows, map_array, open_regular
from ccr.io.remote import AnyPath, Place

# From bytes or pixels of any kind to an RGB image, or to a reason why not.
Content = bytes | np.ndarray
MAX_PIXELS = 89_478_485  # Pillow's own line between large and suspicious: a quarter of a GB as RGB
MAX_BYTES = 256 << 20  # of a file, or of the pixels of an array: a photo has a tenth of it
MAX_OBLONG = 1000  # times as long as wide: with a short side of 224, an encoder resizes it to 50 megapixels
_HARD_LIMIT = 2 * MAX_PIXELS  # beyond this Pillow itself refuses
# Named, because Pillow knows others that start programs: Ghostscript for a PostScript file, whatever it is called.
_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO")
_STRIP = 1 << 22  # pixels that are converted at a time, so that 8 bytes for each are no matter


class BadImage(CCRError):
    """An image that cannot be read; the message is the reason."""


class TooManyPixels(BadImage):
    """An image of more pixels than the limit; `remedy` is what to do about it, which depends on who set the limit."""

    def __init__(self, size: str, limit: int, remedy: str) -> None:
        super().__init__(f"the image is {size} pixels, more than the limit of {limit:,}: {remedy}")
        self.size, self.limit = size, limit

    def with_remedy(self, remedy: str) -> TooManyPixels:
        """The same error with another remedy."""
        return TooManyPixels(self.size, self.limit, remedy)


def check_bytes(size: int, max_bytes: int) -> None:
    """BadImage if this many bytes are too many to be read."""
    if size > max_bytes:
        raise BadImage(
            f"it has {size:,} bytes, more than the limit of {max_bytes:,}: make it smaller or raise max_bytes"
        )


def content_hash(content: Content) -> str:
    """128 bits of the sha256 of the content: equal for equal bytes (or equal pixels of equal shape)."""
    digest = hashlib.sha256()
    if isinstance(content, np.ndarray):
        digest.update(f"{content.dtype.str}{content.shape}".encode())
        content = np.ascontiguousarray(content).tobytes()
    digest.update(content)
    return digest.hexdigest()[:32]


def decode(content: Content, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Upright 8-bit RGB image of a file's bytes, or of an (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) uint8 array.

    The first frame of an animation; rotated as EXIF says; transparency on white; 16-bit greys scaled to 8. BadImage
    when it is none, when a file's image has more than `max_pixels` pixels, or when it is over a thousand times as long
    as wide.
    """
    if isinstance(content, np.ndarray):
        return to_rgb(_from_array(content))
    with _opened(content, max_pixels) as image:
        image.load()
        return to_rgb(upright(image))


def pixels_of(content: Content, *, max_pixels: int = MAX_PIXELS) -> int:
    """Width x height of an image, read from its header alone; BadImage where `decode` would refuse it by its size."""
    if isinstance(content, np.ndarray):
        return int(np.prod(content.shape[:2]))
    with _opened(content, max_pixels) as image:
        return int(image.width * image.height)


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of an image of any mode."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        scale = _grey_scale(image)
        image = _by_strips(image, "L", lambda strip: Image.fromarray(_greys(strip, scale)))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _by_strips(image, "RGB", _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


@contextmanager
def _opened(content: bytes, max_pixels: int) -> Iterator[Image.Image]:
    """The image with its header read and its size checked, its pixels not yet decoded; what fails is a BadImage."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings about size and damaged tags: size is checked below
            with Image.open(io.BytesIO(content), formats=_known_formats()) as image:
                width, height = image.size
                if width * height > min(max_pixels, _HARD_LIMIT):
                    raise _too_large(f"{width} x {height}", max_pixels)
                _check_shape(width, height)
                yield image
    except BadImage:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large("far too many", max_pixels) from error
    except Image.UnidentifiedImageError as error:
        raise BadImage("the file is not an image that Pillow knows") from error
    except Exception as error:  # a decoder fed hostile bytes may raise anything: all of it means "not an image"
        raise BadImage(_reason(error)) from error


@lru_cache(maxsize=1)
def _known_formats() -> tuple[str, ...]:
    """The supported image formats that this build of Pillow can open."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF says."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF says nothing about the rotation; the pixels are fine
        return image


def _grey_scale(image: Image.Image) -> float:
    """Scale factor from the image's values to 0..255, for grey images of 16 or 32 bits or floating-point values."""
    if image.mode not in ("F", "I"):
        return 1 / 257
    largest = max(_numbers(strip).max() for strip, _ in _strips(image))
    if image.mode == "F":
        return 255.0 if largest <= 1 else 1.0
    return 1 / 257 if largest > 255 else 1.0  # 32-bit containers hold 8- or 16-bit greys


def _greys(strip: Image.Image, scale: float) -> np.ndarray:
    return np.clip(np.rint(_numbers(strip) * scale), 0, 255).astype(np.uint8)


def _numbers(strip: Image.Image) -> np.ndarray:
    return np.nan_to_num(np.asarray(strip, dtype=np.float64))


def _on_white(strip: Image.Image) -> Image.Image:
    white = Image.new("RGBA", strip.size, "white")
    return Image.alpha_composite(white, strip.convert("RGBA")).convert("RGB")


def _by_strips(image: Image.Image, mode: str, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """The image in another mode, converted a few rows at a time."""
    converted = Image.new(mode, image.size)
    for strip, top in _strips(image):
        converted.paste(convert(strip), (0, top))
    return converted


def _strips(image: Image.Image) -> Iterator[tuple[Image.Image, int]]:
    """Parts of a few rows, each with the number of its first row."""
    rows = max(1, _STRIP // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height))), top


def _from_array(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise BadImage(f"pixels must be uint8 of shape (height, width, channels), got {pixels.dtype} {pixels.shape}")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim == 3 and pixels.shape[2] not in (3, 4):
        raise BadImage(f"an image has 1, 3 or 4 channels, got {pixels.shape[2]} in the last axis")
    _check_shape(pixels.shape[1], pixels.shape[0])
    return Image.fromarray(np.ascontiguousarray(pixels))


def _check_shape(width: int, height: int) -> None:
    """BadImage for a thread of pixels: encoders enlarge the short side to theirs, which would take gigabytes."""
    if max(width, height) > MAX_OBLONG * min(width, height):
        raise BadImage(
            f"the image is {width} x {height} pixels, more than the limit of {MAX_OBLONG:,} times as long as wide: cut "
            "out the part that matters"
        )


def _too_large(size: str, max_pixels: int) -> TooManyPixels:
    return TooManyPixels(size, max_pixels, f"make it smaller or raise max_pixels (to {_HARD_LIMIT:,} at most)")


def _reason(error: Exception) -> str:
    """Message of an error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


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
            with open_regular(self.path) as stream:
                size = os.fstat(stream.fileno()).st_size
                check_bytes(size, max_bytes)
                return stream.read(size)
        except BadImage:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise BadImage("there is no such file") from None
        except (OSError, ValueError) as error:
            raise BadImage(f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from error

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
        try:
            ranges = self.place.ranges()
            size = ranges.size()  # now: it may have become another object
            check_bytes(size, max_bytes)
            return ranges.read(0, size)
        except MissingPlaceError as error:
            raise BadImage(str(error)) from None

    def size(self) -> int:
        """Bytes of the object when it was listed."""
        return self.length


@dataclass(frozen=True)
class MemberImage:
    """A range of bytes of a file, such as a member of a tar shard."""

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
        try:
            value = _open_group(self.path, self.group, self.column).row(self.row)
        except CCRError:
            raise
        except Exception as error:  # a parser of damaged bytes may raise anything
            raise BadImage(f"{self.path.name} is damaged there, or cannot be read: {_reason(error)}") from error
        if isinstance(value, pa.StructScalar) and value.is_valid:
            value = value["bytes"]
        if not value.is_valid or not isinstance(value, (pa.BinaryScalar, pa.LargeBinaryScalar)):
            raise BadImage("the row holds no image bytes")
        check_bytes(value.as_buffer().size, max_bytes)
        content: bytes = value.as_py()
        return content


@dataclass(frozen=True)
class ArrayImage:
    """Row `row` of a `.npy` file of images."""

    path: Path
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        row = _open_array(self.path)[self.row]
        check_bytes(row.nbytes, max_bytes)
        return np.array(row)


def open_parquet(path: AnyPath) -> pq.ParquetFile:
    """A Parquet file of this machine or of an object store."""
    if isinstance(path, Place):
        size, source = path.size(), pq.ParquetFile(path.open())
    else:
        status = os.stat(path)
        check_regular(status, None, path)
        size, source = status.st_size, pq.ParquetFile(str(path))
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


_ranges = lru_cache(maxsize=64)(Place.ranges)


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


_open_group = lru_cache(maxsize=2)(_Group)


@lru_cache(maxsize=4)
def _open_array(path: Path) -> np.ndarray:
    return map_array(path, "be a .npy array", "save it again")
