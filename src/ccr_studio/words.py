"""Words: the store's encoder, loaded while people already look, and photos found by text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ccr.errors import CCRError
from ccr.utils.texts import check_name

#: Characters of a text, embeddings of texts that are kept, and seconds that a question waits for the encoder.
LONGEST, KEPT, PATIENCE = 200, 1024, 60.0


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
        self._kept: OrderedDict[str, np.ndarray] = OrderedDict()

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
                known |= dict(zip(new, rows, strict=True))
                self._kept |= dict(zip(new, rows, strict=True))
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return np.array([known[text] for text in texts], np.float32)

    def embed_image(self, image: Image.Image) -> np.ndarray:
        """The embedding (d,) of a picture."""
        encoder = self.encoder
        with self._lock:
            return np.asarray(encoder.embed_images([image])[0], np.float32)

    def _fetch(self) -> None:
        try:
            self._encoder = self._load()
            _use(self._encoder)
        except (CCRError, ImportError, OSError) as error:
            self._reason = str(error)
        except Exception as error:  # whatever a model of a hub raises: the studio goes on without words
            self._reason = f"{type(error).__name__}: {error}"
        self._there.set()


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
