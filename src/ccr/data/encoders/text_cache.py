"""Embeddings of texts that outlive the process: one small file for each text, in the folder of fetched assets."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import numpy as np

from ccr.errors import WriteError
from ccr.files import write_bytes
from ccr.reading import read_regular

_DIGEST = 32  # bytes of sha256 before the numbers


class TextCache:
    """Rows of `dimension` float32 numbers, each known by the words that it was made from.

    A file that is damaged counts as absent, and a folder that cannot be written keeps nothing. Several processes may
    use one folder: a file is renamed into place whole, and all would write the same bytes.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self._folder = folder
        self._bytes = 4 * dimension

    def get(self, *key: str | None) -> np.ndarray | None:
        """The row kept for these words, to the bit; None if there is none."""
        try:
            content = read_regular(self._path(key))
        except OSError:
            return None
        digest, row = content[:_DIGEST], content[_DIGEST:]
        whole = len(row) == self._bytes and hashlib.sha256(row).digest() == digest
        return np.frombuffer(row, dtype="<f4").astype(np.float32) if whole else None

    def keep(self, row: np.ndarray, *key: str | None) -> None:
        content = row.astype("<f4").tobytes()
        with suppress(WriteError):
            write_bytes(self._path(key), hashlib.sha256(content).digest() + content)

    def _path(self, key: tuple[str | None, ...]) -> Path:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self._folder / name[:2] / name[2:]
