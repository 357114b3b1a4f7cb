"""Words: the store's encoder, loaded while people already look, and photos found by text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from ccr.errors import CCRError
from ccr.texts import check_name

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

    def embed(self, text: str) -> np.ndarray:
        """The embedding (d,) of a text."""
        text = checked_text(text)
        kept = self._kept.get(text)
        if kept is not None:
            return kept
        with self._lock:
            row = np.asarray(self.encoder.embed_texts([text])[0], np.float32)
            self._kept[text] = row
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return row

    def embed_image(self, image: Image.Image) -> np.ndarray:
        """The embedding (d,) of a picture."""
        encoder = self.encoder
        with self._lock:
            return np.asarray(encoder.embed_images([image])[0], np.float32)

    def _fetch(self) -> None:
        try:
            self._encoder = self._load()
            self._encoder.embed_texts(["photo"])  # what is loaded at first use is loaded now
        except (CCRError, ImportError, OSError) as error:
            self._reason = str(error)
        except Exception as error:  # whatever a model of a hub raises: the studio goes on without words
            self._reason = f"{type(error).__name__}: {error}"
        self._there.set()


def checked_text(text: str) -> str:
    """A text of a few words, plain and trimmed."""
    text = " ".join(text.split())
    if not text or len(text) > LONGEST:
        raise CCRError(f"a concept is a text of 1 to {LONGEST} characters, got {len(text)}: use a few words")
    check_name(text, "a concept's name")
    return text
