"""From bytes or pixels of any kind to an RGB image, or to a reason why not."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from PIL import Image, ImageOps

from ccr.errors import CCRError

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
    try:
        return _decode_bytes(content, max_pixels)
    except BadImage:
        raise
    except Exception as error:  # a decoder fed hostile bytes may raise anything: all of it means "not an image"
        raise _bad_image(error, max_pixels) from error


def pixels_of(content: Content, *, max_pixels: int = MAX_PIXELS) -> int:
    """Width x height of an image, read from its header alone; BadImage where `decode` would refuse it by its size."""
    if isinstance(content, np.ndarray):
        return int(np.prod(content.shape[:2]))
    try:
        with _opened(content, max_pixels) as image:
            return int(image.width * image.height)
    except BadImage:
        raise
    except Exception as error:
        raise _bad_image(error, max_pixels) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of an image of any mode."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        image = _to_8_bit(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _by_strips(image, "RGB", _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _decode_bytes(content: bytes, max_pixels: int) -> Image.Image:
    with _opened(content, max_pixels) as image:
        image.load()
        return to_rgb(upright(image))


@contextmanager
def _opened(content: bytes, max_pixels: int) -> Iterator[Image.Image]:
    """The image with its header read and its size checked, its pixels not yet decoded."""
    if not content:
        raise BadImage("the file is empty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's warnings about size and damaged tags: size is checked below
        with Image.open(io.BytesIO(content), formats=_known_formats()) as image:
            width, height = image.size
            if width * height > min(max_pixels, _HARD_LIMIT):
                raise _too_large(f"{width} x {height}", max_pixels)
            _check_shape(width, height)
            yield image


@lru_cache(maxsize=1)
def _known_formats() -> tuple[str, ...]:
    """Those of the formats that this Pillow was built with."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF says."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF says nothing about the rotation; the pixels are fine
        return image


def _to_8_bit(image: Image.Image) -> Image.Image:
    scale = _grey_scale(image)
    return _by_strips(image, "L", lambda strip: Image.fromarray(_greys(strip, scale)))


def _grey_scale(image: Image.Image) -> float:
    """What turns the image's numbers into 0 to 255."""
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


def _bad_image(error: Exception, max_pixels: int) -> BadImage:
    if isinstance(error, Image.DecompressionBombError):
        return _too_large("far too many", max_pixels)
    if isinstance(error, Image.UnidentifiedImageError):
        return BadImage("the file is not an image that Pillow knows")
    return BadImage(" ".join(str(error).split())[:200] or type(error).__name__)
