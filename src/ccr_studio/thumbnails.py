"""Thumbnails: made once of each content, kept on disk, never larger than asked for."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path

from PIL import Image

from ccr.data.store import EmbeddingStore
from ccr.encoders.assets import cache_folder
from ccr.errors import CCRError, MissingExtraError, WriteError
from ccr.io.files import write_bytes
from ccr_studio.service.limits import DECODING

#: Edges in pixels: a tile of the wall, a tile on a sharp screen, a photo's own page.
SIZES = (160, 320, 1024)


def small_jpeg(image: Image.Image, size: int) -> bytes:
    """The image within a square of `size` pixels, as JPEG."""
    small = image.convert("RGB")
    small.thumbnail((size, size))
    stream = BytesIO()
    small.save(stream, "JPEG", quality=82, optimize=True)
    return stream.getvalue()


class Thumbnails:
    """JPEGs of a store's photos, each kept under the hash of the photo's content, unless `keep` is False."""

    def __init__(self, store: EmbeddingStore, fallback: Path, *, keep: bool = True) -> None:
        self.store = store
        self._contents = store.contents
        self._folder, self._keep = _folder(fallback), keep

    @cached_property
    def digest(self) -> str:
        """What the row numbers stand for: it changes when any row has another photo."""
        contents = "\0".join("" if content is None else str(content) for content in self._contents.tolist())
        return hashlib.sha256(contents.encode(errors="surrogatepass")).hexdigest()[:16]

    def key(self, row: int) -> str | None:
        """What the photo's content is known by; None where the store does not say."""
        content = self._contents[row]
        return str(content) if content and str(content).isalnum() else None

    def of(self, row: int, size: int) -> bytes:
        """The JPEG of a row; a CCRError with the reason where its photo cannot be read."""
        if size not in SIZES:
            raise CCRError(f"thumbnails have {', '.join(map(str, SIZES))} pixels, got {size}")
        key = self.key(row)
        kept = None if key is None else self._folder / key[:2] / f"{key}-{size}.jpg"
        if kept is not None:
            with suppress(OSError):
                return kept.read_bytes()
        with DECODING.decoded(lambda: self.store.content(row)) as image:
            jpeg = small_jpeg(image, size)
        if kept is not None and self._keep:
            with suppress(WriteError):  # a full or read-only disk: made again next time
                write_bytes(kept, jpeg)
        return jpeg


def _folder(fallback: Path) -> Path:
    try:
        return cache_folder() / "thumbnails"
    except MissingExtraError:
        return fallback / "thumbnails"
