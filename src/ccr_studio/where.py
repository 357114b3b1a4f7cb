"""Where a concept is in a photo: the encoder's own patches, and what each adds to the concept's code."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from ccr.data.datasets.decode import Content
from ccr.errors import CCRError
from ccr.explain import PatchTerms
from ccr.photos.on_photos import SMOOTHING, split_image
from ccr_studio.photos import Photos
from ccr_studio.seen import Seen
from ccr_studio.service.limits import DECODING
from ccr_studio.uploads import Uploads
from ccr_studio.words import Words

#: Photos whose patches are kept: they are the same for every concept and every model.
KEPT = 32


class Places:
    """The patches of the photos that were asked about last."""

    def __init__(self, photos: Photos, words: Words, uploads: Uploads) -> None:
        self._photos, self._words, self._uploads = photos, words, uploads
        self._kept: OrderedDict[str, PatchTerms] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        """Whether photos can be asked: the encoder is there, or on its way, and the store knows its pictures."""
        known = "source" in self._photos.store.description
        return known and self._words.status in ("loading", "ready")

    def of(self, seen: Seen, key: str, concept: str) -> dict[str, Any]:
        """How much each patch adds to the code of a concept that the photo shows, and which part of it they cover."""
        where = seen.model.explain_patches(self._patches(key).smoothed(SMOOTHING)).where
        if where is None or concept not in where.concepts:
            raise CCRError(f"this photo does not show {concept!r}, so it has no map: choose a concept of its sum")
        whole, frame = where.code_map(concept), where.frame
        found = np.asarray(whole.map, np.float64)
        return {
            "concept": concept,
            "rows": found.shape[0],
            "columns": found.shape[1],
            "values": found.ravel().tolist(),
            "code": whole.total,
            "rest": whole.total - float(found.sum()),
            "left": frame.left,
            "top": frame.top,
            "width": frame.right - frame.left,
            "height": frame.bottom - frame.top,
        }

    def _patches(self, key: str) -> PatchTerms:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        encoder = self._words.encoder
        with DECODING.decoded(lambda: self._content(key)) as image:
            patches = split_image(encoder, image)
        with self._lock:
            self._kept[key] = patches
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return patches

    def _content(self, key: str) -> Content:
        if key.startswith("u"):
            return self._uploads.get(key).content
        return self._photos.store.content(self._photos.row(key))
