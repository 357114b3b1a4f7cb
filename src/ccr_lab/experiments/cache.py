"""Results of finished fits on disk, found again by what they were made of; and records as CSV."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr import __version__
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.io.files import write_bytes
from ccr.knowledge import Knowledge
from ccr.labels import as_labels, labels_of
from ccr.utils.processes import Done, OnProgress, Pool
from ccr.utils.texts import csv_text, to_cell


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


def run_all(
    work: Callable[[Any, Any], Mapping[str, Any]],
    shared: Any,
    items: Sequence[Any],
    *,
    names: Sequence[str],
    key: Callable[[Any], Mapping[str, Any]],
    cache: RunCache,
    tell: OnProgress,
    pool: Pool | None = None,
    catch: type[Exception] | tuple[()] = CCRError,
) -> list[Mapping[str, Any] | str]:
    """The value of each item, in order: from the cache, under its `key`, or made by `work(shared, item)`, here or by a
    pool, and then kept; in place of a value the reason why it could not be made, if that is one to `catch`.

    `names` are those of the items, for `tell`.
    """
    keys = [key(item) for item in items]
    results: list[Any] = list(map(cache.get, keys))
    missing = [number for number, value in enumerate(results) if value is None]
    left = [items[number] for number in missing]
    if left:
        tell(len(items) - len(left), len(items), names[missing[0]] if pool is None else "fitting on the cluster")
    answers = _one_by_one(work, shared, left, catch) if pool is None else pool.map(work, shared, left)
    for done, answer in enumerate(answers, start=1):
        number = missing[answer.number]
        results[number] = answer.result if answer.reason is None else answer.reason
        if answer.reason is None:
            cache.put(keys[number], answer.result)
        # Here the next one begins; elsewhere this one has just ended.
        shown = number if pool is not None else missing[min(done, len(missing) - 1)]
        tell(len(items) - len(left) + done, len(items), names[shown])
    return results


def _one_by_one(
    work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any], catch: type[Exception] | tuple[()]
) -> Iterator[Done]:
    for number, item in enumerate(items):
        try:
            result, reason = work(shared, item), None
        except catch as error:
            result, reason = None, str(error) if isinstance(error, CCRError) else f"{type(error).__name__}: {error}"
        yield Done(number, result, reason)


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


def records_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records, at least one, as CSV: the first one's names are the header; a field that a later one lacks is empty."""
    names = list(records[0])
    return csv_text([to_cell(name) for name in names], ([record.get(name) for name in names] for record in records))
