"""Results of finished fits on disk, found again by what they were made of; and records as CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr import __version__
from ccr.concepts import Concepts
from ccr.inputs import Embeddings
from ccr.io.files import write_bytes
from ccr.knowledge import Knowledge
from ccr.labels import as_labels, labels_of
from ccr.utils.texts import to_cell


class RunCache:
    """A folder with one JSON file per finished run, named by the hash of the run's key and of the library's version.

    A key and a value are plain JSON types. `RunCache(None)` remembers nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The value under this key; None if there is none, or if its file is damaged."""
        path = self.path(key)
        if path is None:
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            value = stored["value"]
            intact = stored["key"] == _full_key(key) and stored["sha256"] == _digest(value)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if intact and isinstance(value, dict) else None

    def put(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Keep a value under this key; its file is written whole or not at all."""
        path = self.path(key)
        if path is None:
            return
        plain = json.loads(_text(value))
        write_bytes(path, _text({"key": _full_key(key), "value": plain, "sha256": _digest(plain)}).encode())

    def remember(self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The value under this key, or else the one that `make` returns, which is then kept."""
        value: Mapping[str, Any] | None = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def path(self, key: Mapping[str, Any]) -> Path | None:
        """The file of this key, there or not; None without a folder."""
        return None if self.folder is None else self.folder / f"{_digest(_full_key(key))[:32]}.json"


def fingerprint_data(X: Any, y: Any = None) -> str:
    """Hash of embeddings (m, d), as the float32 that a model reads, and of their labels; read in chunks.

    X is an array, memmap, tensor or store; a store brings its own labels.
    """
    embeddings = Embeddings(X, normalize=False)
    labels = as_labels(labels_of(X, y), len(embeddings))
    digest = hashlib.sha256(repr((embeddings.shape, labels.dtype.kind)).encode())
    for rows in embeddings.chunks():
        digest.update(rows.contiguous().numpy().tobytes())
    digest.update(json.dumps(labels.tolist()).encode())
    return digest.hexdigest()


def fingerprint_concepts(concepts: Concepts) -> str:
    """Hash of the concepts' names and embeddings."""
    digest = hashlib.sha256(json.dumps([concepts.embeddings.shape, concepts.names]).encode())
    digest.update(concepts.embeddings.tobytes())
    return digest.hexdigest()


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a classifier in JSON types, for a key: knowledge by its digest."""
    return {name: value.digest if isinstance(value, Knowledge) else value for name, value in options.items()}


def _full_key(key: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(_text({**key, "library_version": __version__})))


def _digest(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records, at least one, as CSV: the first one's names are the header; a field that a later one lacks is empty."""
    buffer = io.StringIO()
    names = list(records[0])
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([to_cell(name) for name in names])
    writer.writerows([to_cell(record.get(name)) for name in names] for record in records)
    return buffer.getvalue()
