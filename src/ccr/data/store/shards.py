"""From the chunks of a finished run to the files of a store."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from ccr.data.store import layout
from ccr.data.store.chunk import Chunk
from ccr.errors import CCRError
from ccr.files import remove_leftovers, write_bytes, write_json
from ccr.places import AnyPath, Place

_Rows = tuple[np.ndarray, list[dict[str, Any]]]


def write_shards(folder: AnyPath, chunks: Iterator[Chunk], shard_size: int) -> dict[str, Any]:
    """Write the rows of all chunks as shards of `shard_size` rows; give the totals for `store.json`."""
    totals = Totals()
    shards = [
        write_shard(folder, number, embeddings, metadata)
        for number, (embeddings, metadata) in enumerate(_regroup(_counted(chunks, totals), shard_size))
    ]
    if not shards:
        refuse_empty(folder, totals)
    return {**totals.to_dict(), "shards": shards}


def write_shard(folder: AnyPath, number: int, embeddings: np.ndarray, metadata: list[dict[str, Any]]) -> dict[str, Any]:
    """Write one shard; its entry in `store.json`."""
    files = {"img_emb": layout.array_bytes(embeddings), "metadata": layout.table_bytes(metadata)}
    write_bytes(layout.embeddings_path(folder, number), files["img_emb"])
    write_bytes(layout.metadata_path(folder, number), files["metadata"])
    return {"rows": len(metadata), **{name: layout.sha256(data) for name, data in files.items()}}


def finish(folder: AnyPath, description: Mapping[str, Any]) -> None:
    """Make the store whole: shards that a killed run wrote beyond these go, `store.json` appears with the time at which
    the run began, and the progress goes."""
    for part in ("img_emb", "metadata"):
        for file in (folder / part).iterdir():
            number = layout.shard_number(file.name)
            if number is not None and number >= len(description["shards"]):
                file.unlink()
    write_json(folder / layout.DESCRIPTION, description)
    if not isinstance(folder, Place):
        begun = (folder / layout.PROGRESS / layout.PLAN).stat()
        os.utime(folder / layout.DESCRIPTION, ns=(begun.st_atime_ns, begun.st_mtime_ns))
    remove_progress(folder)


def refuse_empty(folder: AnyPath, totals: Totals) -> NoReturn:
    """The error of a store without any row."""
    remove_progress(folder)  # so that the next run looks at the images again
    raise CCRError(f"none of the {len(totals.skipped)} images can be read: {totals.skipped[0]['reason']}")


def remove_progress(folder: AnyPath) -> None:
    """Remove what only an unfinished store needs, and what killed runs left: no other run may be at work."""
    if isinstance(folder, Place):
        (folder / layout.PROGRESS).remove_below()
        return
    shutil.rmtree(folder / layout.PROGRESS, ignore_errors=True)
    for parent in (folder, folder / "img_emb", folder / "metadata"):
        remove_leftovers(parent)


class Totals:
    """Counts that grow as chunks are read."""

    def __init__(self) -> None:
        self.rows = self.reused = self.crossing = 0
        self.skipped: list[dict[str, str]] = []
        self.splits: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()

    def add(self, chunk: Chunk) -> None:
        self.rows += len(chunk.metadata)
        self.reused += chunk.reused
        self.crossing += chunk.crossing
        self.skipped += chunk.skipped
        self.splits.update(row["split"] for row in chunk.metadata if row["split"] is not None)
        self.labels.update(row["label"] for row in chunk.metadata if row["label"] is not None)

    def to_dict(self) -> dict[str, Any]:
        counts: Mapping[str, Any] = {"rows": self.rows, "reused": self.reused, "crossing": self.crossing}
        return {
            "counts": {**counts, "skipped": len(self.skipped), "classes": dict(sorted(self.labels.items()))},
            "splits": dict(sorted(self.splits.items())),
            "skipped": self.skipped,
        }


def _counted(chunks: Iterator[Chunk], totals: Totals) -> Iterator[_Rows]:
    for chunk in chunks:
        totals.add(chunk)
        yield chunk.embeddings, chunk.metadata


def _regroup(parts: Iterator[_Rows], size: int) -> Iterator[_Rows]:
    """The same rows in parts of `size` rows; the last may be shorter."""
    arrays: list[np.ndarray] = []
    metadata: list[dict[str, Any]] = []
    for embeddings, rows in parts:
        arrays.append(embeddings)
        metadata += rows
        while len(metadata) >= size:
            joined = np.concatenate(arrays)
            yield joined[:size], metadata[:size]
            arrays, metadata = [joined[size:]], metadata[size:]
    if metadata:
        yield np.concatenate(arrays), metadata
