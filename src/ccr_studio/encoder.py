"""The store's encoder, loaded while people already look: texts, dropped photos, and patches of photos."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from ccr.data.datasets import content_hash
from ccr.data.datasets.sources import Content, TooManyPixels
from ccr.errors import CCRError, without_credentials
from ccr.explain import PatchTerms
from ccr.photos.on_photos import SMOOTHING, split_image
from ccr.utils.texts import check_name
from ccr.vocab.check import Problem, check_texts
from ccr.vocab.proposals import label_texts
from ccr.vocab.wordnet import WordNet
from ccr_studio.cache import Recent
from ccr_studio.photos import Photos, small_jpeg
from ccr_studio.seen import SeenModel
from ccr_studio.service.limits import DECODING

log = logging.getLogger(__name__)

#: Characters of a text, embeddings of texts that are kept, and seconds that a question waits for the encoder.
LONGEST, KEPT_TEXTS, PATIENCE = 200, 1024, 60.0


class Words:
    """An encoder that may still be loading, or may be missing; `status` says which.

    `load` gives the encoder, or raises a CCRError with the reason why there is none.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._encoder: Any = None
        self._reason: str | None = None
        self._there = threading.Event()
        self._lock = threading.Lock()
        self._kept: Recent[str, np.ndarray] = Recent(KEPT_TEXTS)
        self._dictionary: WordNet | None = None

    @property
    def status(self) -> str:
        """loading, ready, or the reason why there is no encoder."""
        if not self._there.is_set():
            return "loading"
        return "ready" if self._reason is None else self._reason

    def start(self) -> None:
        """Load the encoder in the background."""
        threading.Thread(target=self._fetch, daemon=True).start()

    @property
    def encoder(self) -> Any:
        """The encoder; waits for it to be loaded."""
        if not self._there.wait(PATIENCE):
            raise CCRError("the encoder is still being loaded: try again in a moment")
        if self._reason is not None:
            raise CCRError(f"the store's encoder is not available: {self._reason}")
        return self._encoder

    @property
    def available(self) -> bool:
        """Whether there is an encoder; waits for it to be loaded."""
        return self._there.wait(PATIENCE) and self._reason is None

    def embed(self, text: str) -> np.ndarray:
        """The embedding (d,) of a text."""
        return self.embed_all([text])[0]

    def embed_all(self, texts: Sequence[str]) -> np.ndarray:
        """The embeddings (n, d) of texts; those that are not known yet are embedded together."""
        texts = [checked_text(text) for text in texts]
        known = {text: self._kept.get(text) for text in texts}
        new = [text for text, row in known.items() if row is None]
        if new:
            with self._lock:
                rows = np.asarray(self.encoder.embed_texts(new), np.float32)
            known |= {text: self._kept.put(text, row) for text, row in zip(new, rows, strict=True)}
        return np.array([known[text] for text in texts], np.float32)

    def embed_image(self, image: Image.Image) -> np.ndarray:
        """The embedding (d,) of a picture."""
        encoder = self.encoder
        with self._lock:
            return np.asarray(encoder.embed_images([image])[0], np.float32)

    def problems(self, text: str, *, classes: Sequence[str], beside: Sequence[str] = ()) -> list[Problem]:
        """Problems with the words of a new concept, as `ccr concepts check` finds them, for a list that already has the
        concepts `beside`, and for these classes. Without a dictionary, unknown words are not found."""
        leaking = label_texts(classes, {})
        return check_texts([*beside, text], leaking=leaking, wordnet=self._dictionary)[-1]

    def _fetch(self) -> None:
        self._load_encoder()
        self._dictionary = _dictionary()

    def _load_encoder(self) -> None:
        try:
            self._encoder = self._load()
            _use(self._encoder)
        except (CCRError, ImportError, OSError) as error:
            self._reason = without_credentials(str(error))
        except Exception as error:  # whatever a model of a hub raises: the studio goes on without words
            self._reason = without_credentials(f"{type(error).__name__}: {error}")
        self._there.set()


@lru_cache(maxsize=1)
def _dictionary() -> WordNet | None:
    """WordNet with its index read, if it is there or can be fetched."""
    try:
        found = WordNet.open()
        found.knows("photo")
    except (CCRError, OSError) as error:
        log.info("unknown words are not found: %s", error)
        return None
    return found


def _use(encoder: Any) -> None:
    """Use each side of an encoder once: what is loaded at first use is loaded now."""
    encoder.embed_texts(["photo"])
    if hasattr(encoder, "embed_images"):
        encoder.embed_images([Image.new("RGB", (64, 64))])


def checked_text(text: str) -> str:
    """A text of a few words, plain and trimmed."""
    text = " ".join(text.split())
    if not text or len(text) > LONGEST:
        raise CCRError(f"a concept is a text of 1 to {LONGEST} characters, got {len(text)}: use a few words")
    check_name(text, "a concept's name")
    return text


#: Photos that are remembered, and bytes of them all; pixels that one may have, and pixels of what is shown of it.
KEPT_UPLOADS, KEPT_BYTES, MOST_PIXELS, SHOWN = 64, 512 << 20, 40_000_000, 1024


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
        self._kept: Recent[str, Upload] = Recent(
            KEPT_UPLOADS, bytes_of=lambda upload: len(upload.content), most_bytes=KEPT_BYTES
        )

    def add(self, content: bytes, name: str) -> Upload:
        """Decode and embed a photo; the same one again is not embedded again."""
        key = f"u{content_hash(content)[:16]}"
        known = self._kept.get(key)
        if known is not None:
            return known
        try:
            with DECODING.decoded(lambda: content, max_pixels=MOST_PIXELS) as image:
                row, shown = self._words.embed_image(image), small_jpeg(image, SHOWN)
        except TooManyPixels as error:
            raise error.with_remedy("make it smaller") from None
        return self._kept.put(key, Upload(key, name[:200] or "your photo", row, shown, content))

    def get(self, key: str) -> Upload:
        found = self._kept.get(key)
        if found is None:
            raise CCRError("that photo is not here any more: drop it on the page again")
        return found


#: Photos whose patches are kept: they are the same for every concept and every model.
KEPT_PATCHES = 32


class Places:
    """The patches of the photos that were asked about last."""

    def __init__(self, photos: Photos, words: Words, uploads: Uploads) -> None:
        self._photos, self._words, self._uploads = photos, words, uploads
        self._kept: Recent[str, PatchTerms] = Recent(KEPT_PATCHES)

    @property
    def available(self) -> bool:
        """Whether photos can be asked: the encoder is there, or on its way, and the store knows its pictures."""
        known = "source" in self._photos.store.description
        return known and self._words.status in ("loading", "ready")

    def of(self, seen: SeenModel, key: str, concept: str) -> dict[str, Any]:
        """Share of each patch in the code of a concept that the photo shows, and the part of it that they cover."""
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
        known = self._kept.get(key)
        if known is not None:
            return known
        encoder = self._words.encoder
        with DECODING.decoded(lambda: self._content(key)) as image:
            return self._kept.put(key, split_image(encoder, image))

    def _content(self, key: str) -> Content:
        if key.startswith("u"):
            return self._uploads.get(key).content
        return self._photos.store.content(self._photos.row(key))
