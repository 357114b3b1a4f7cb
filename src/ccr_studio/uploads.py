"""Photos that were dropped on the page: embedded, kept in memory, never written anywhere."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from ccr.data.datasets import content_hash
from ccr.errors import CCRError
from ccr_studio.service.limits import DECODING
from ccr_studio.thumbnails import small_jpeg
from ccr_studio.words import Words

#: Photos that are remembered, and bytes of them all; pixels that one may have, and pixels of what is shown of it.
KEPT, KEPT_BYTES, MOST_PIXELS, SHOWN = 64, 512 << 20, 40_000_000, 1024


@dataclass(frozen=True, eq=False)
class Upload:
    """A dropped photo: the file, its embedding (d,), and what is shown of it."""

    id: str
    name: str
    embedding: np.ndarray
    jpeg: bytes
    content: bytes


class Uploads:
    """The photos dropped last."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Upload] = OrderedDict()

    def add(self, content: bytes, name: str) -> Upload:
        """Decode and embed a photo; the same one again is not embedded again."""
        key = f"u{content_hash(content)[:16]}"
        known = self._kept.get(key)
        if known is not None:
            return known
        with DECODING.decoded(lambda: content, max_pixels=MOST_PIXELS) as image:
            row, shown = self._words.embed_image(image), small_jpeg(image, SHOWN)
        upload = Upload(key, name[:200] or "your photo", row, shown, content)
        with self._lock:
            self._kept[key] = upload
            while len(self._kept) > KEPT or (len(self._kept) > 1 and self._bytes() > KEPT_BYTES):
                self._kept.popitem(last=False)
        return upload

    def _bytes(self) -> int:
        return sum(len(upload.content) for upload in self._kept.values())

    def get(self, key: str) -> Upload:
        found = self._kept.get(key)
        if found is None:
            raise CCRError("that photo is not here any more: drop it on the page again")
        return found
