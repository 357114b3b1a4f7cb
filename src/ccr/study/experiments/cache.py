"""Results of finished fits on disk, found again by what they were made of."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccr import __version__
from ccr.core.concepts import Concepts
from ccr.core.inputs import Embeddings
from ccr.errors import CCRError
from ccr.models.labels import as_labels


class RunCache:
    """A folder with one JSON file a finished run, named by the hash of the run's key and of the library's version.

    A key and a value are plain JSON types. `RunCache(None)` remembers nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was put under this key; None if nothing was, or if its file is damaged."""
        path = self.path(key)
        if path is None:
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            value = found["value"]
            whole = found["key"] == _whole_key(key) and found["sha256"] == _digest(value)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if whole and isinstance(value, dict) else None

    def put(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Keep a value under this key; its file is written whole or not at all."""
        path = self.path(key)
        if path is None:
            return
        plain = json.loads(_text(value))
        content = _text({"key": _whole_key(key), "value": plain, "sha256": _digest(plain)})
        try:
            _write_whole(path, content.encode())
        except OSError as error:
            raise CCRError(
                f"finished runs are kept in {path.parent}, which cannot be written ({error.strerror}): choose another "
                "folder"
            ) from None

    def path(self, key: Mapping[str, Any]) -> Path | None:
        """The file of this key, there or not; None without a folder."""
        return None if self.folder is None else self.folder / f"{_digest(_whole_key(key))[:32]}.json"


def fingerprint_data(X: Any, y: Any = None) -> str:
    """Hash of embeddings (m, d), as the float32 that a model reads, and of their labels; read in chunks.

    X is an array, memmap, tensor or store; a store brings its own labels.
    """
    embeddings = Embeddings(X, normalize=False)
    labels = as_labels(getattr(X, "y", None) if y is None else y, len(embeddings))
    found = hashlib.sha256(repr((embeddings.shape, labels.dtype.kind)).encode())
    for rows in embeddings.chunks():
        found.update(rows.contiguous().numpy().tobytes())
    found.update(json.dumps(labels.tolist()).encode())
    return found.hexdigest()


def fingerprint_concepts(concepts: Concepts) -> str:
    """Hash of the concepts' names and embeddings."""
    found = hashlib.sha256(json.dumps([concepts.embeddings.shape, concepts.names]).encode())
    found.update(concepts.embeddings.tobytes())
    return found.hexdigest()


def _whole_key(key: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(_text({**key, "library_version": __version__}))
    return whole


def _digest(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    number, aside = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
