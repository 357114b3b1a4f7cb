"""A chunk: the embedded form of a fixed run of samples, the smallest step that a killed run keeps."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from ccr.data.datasets import Sample
from ccr.data.encoders import Encoder
from ccr.data.store.workers import Decoded
from ccr.errors import UnreachableError
from ccr.files import write_bytes
from ccr.places import AnyPath, Place
from ccr.reading import MOST_TENSOR_BYTES, read_regular

_COLUMNS = {"image_path", "label", "split", "content"}


@dataclass(frozen=True)
class FirstRow:
    """The first row with a content: its embedding (d,) as stored, and its split."""

    embedding: np.ndarray
    split: str | None


@dataclass(frozen=True)
class Chunk:
    """Embeddings (rows, d) of the samples that could be read, their metadata, and why the others were skipped.

    `reused` rows have the content of an earlier row, and `crossing` of them have that row in another split.
    """

    embeddings: np.ndarray
    metadata: list[dict[str, Any]]
    skipped: list[dict[str, str]]
    reused: int
    crossing: int

    def save(self, path: AnyPath) -> None:
        facts = {name: getattr(self, name) for name in ("metadata", "skipped", "reused", "crossing")}
        text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
        stream = io.BytesIO()
        np.savez(stream, embeddings=self.embeddings, facts=text)
        write_bytes(path, stream.getvalue())


def load_chunk(path: AnyPath, dimension: int, dtype: str) -> Chunk | None:
    """The chunk that was saved, with embeddings (rows, `dimension`) of this `dtype`; None when there is none, or when
    it is damaged in whatever way: then it is made again."""
    try:
        if isinstance(path, Place) and not path.is_file():
            return None
        with np.load(io.BytesIO(read_regular(path, MOST_TENSOR_BYTES)), allow_pickle=False) as archive:
            facts = json.loads(archive["facts"].tobytes())
            chunk = Chunk(embeddings=archive["embeddings"], **facts)
        whole = chunk.embeddings.shape == (len(chunk.metadata), dimension) and chunk.embeddings.dtype == dtype
        return chunk if whole and np.isfinite(chunk.embeddings).all() and _is_plain(chunk) else None
    except UnreachableError:
        raise
    except Exception:
        return None


def _is_plain(chunk: Chunk) -> bool:
    """Has it the rows and counts that `save` writes?"""
    rows = all(set(row) == _COLUMNS and isinstance(row["content"], str) for row in chunk.metadata)
    texts = all(value is None or isinstance(value, str) for row in chunk.metadata for value in row.values())
    skipped = all(isinstance(item[name], str) for item in chunk.skipped for name in ("path", "reason"))
    return rows and texts and skipped and isinstance(chunk.reused, int) and isinstance(chunk.crossing, int)


@dataclass
class ChunkBuilder:
    """Collects samples in order, embeds new contents `batch_size` at a time, and gives the chunk.

    Batches begin anew with every chunk, so a row's numbers never depend on where a run was interrupted.
    """

    encoder: Encoder
    batch_size: int
    dtype: str
    metadata: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    reused: int = 0
    crossing: int = 0
    _slots: list[int | np.ndarray] = field(default_factory=list)
    _new: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    _pending: list[Image.Image] = field(default_factory=list)
    _embedded: list[np.ndarray] = field(default_factory=list)

    def add(self, sample: Sample, decoded: Decoded, first: FirstRow | None) -> None:
        """Add the next sample; `first` is the first row with its content, if that is in an earlier chunk."""
        if decoded.image is None:
            self.skipped.append({"path": _printable(sample.key), "reason": decoded.reason or "no reason known"})
            return
        self.metadata.append(_row(sample, decoded.content))
        if first is not None:
            self._reuse(first.embedding, sample.split, first.split)
        elif decoded.content in self._new:
            slot, split = self._new[decoded.content]
            self._reuse(slot, sample.split, split)
        else:
            self._slots.append(len(self._new))
            self._new[decoded.content] = (len(self._new), sample.split)
            self._pending.append(decoded.image)
            if len(self._pending) == self.batch_size:
                self._embed()

    def build(self) -> Chunk:
        """The chunk of all samples that were added."""
        self._embed()
        fresh = np.concatenate(self._embedded) if self._embedded else np.empty((0, self.encoder.dimension), self.dtype)
        rows = [fresh[slot] if isinstance(slot, int) else slot for slot in self._slots]
        embeddings = np.stack(rows) if rows else np.empty((0, self.encoder.dimension), dtype=self.dtype)
        return Chunk(embeddings, self.metadata, self.skipped, self.reused, self.crossing)

    def _reuse(self, slot: int | np.ndarray, split: str | None, first_split: str | None) -> None:
        self._slots.append(slot)
        self.reused += 1
        self.crossing += split != first_split

    def _embed(self) -> None:
        if self._pending:
            rows = self.encoder.embed_images(self._pending, batch_size=self.batch_size)
            self._embedded.append(rows.astype(self.dtype))
            self._pending.clear()


def _row(sample: Sample, content: str) -> dict[str, Any]:
    return {"image_path": sample.key, "label": sample.label, "split": sample.split, "content": content}


def _printable(key: str) -> str:
    """A name that any file can hold: bytes that are not UTF-8 become escapes."""
    return key.encode("utf-8", "backslashreplace").decode()
