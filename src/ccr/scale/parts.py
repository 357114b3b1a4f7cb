"""A part: the embedded form of a run of samples, made by one task and written whole or not at all.

A part is several chunks of the one-machine run (`ccr.data.store.chunk`), so that its numbers are the same. Rows whose
content is first in another chunk are left open, with the number of the sample that has it; shards fill them in.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.data.datasets import Sample
from ccr.data.encoders import Encoder
from ccr.data.store import layout
from ccr.data.store.chunk import ChunkBuilder, FirstRow
from ccr.data.store.workers import Decoded
from ccr.errors import CCRError, UnreachableError
from ccr.files import write_bytes
from ccr.places import AnyPath, Place
from ccr.reading import MOST_TENSOR_BYTES, read_regular


@dataclass(frozen=True)
class Task:
    """Samples `start`, `start` + 1, ... with their content hashes; `firsts` says of each which sample has its content
    first, and `splits` that one's split."""

    start: int
    samples: Sequence[Sample]
    contents: np.ndarray
    firsts: np.ndarray
    splits: Sequence[str | None]


@dataclass(frozen=True)
class Part:
    """Rows of a part: embeddings (rows, d), the numbers of their samples, and for rows left open the sample that has
    their content first, else -1."""

    embeddings: np.ndarray
    samples: np.ndarray
    firsts: np.ndarray
    metadata: list[dict[str, Any]]
    skipped: list[dict[str, str]]
    reused: int
    crossing: int

    def is_of(self, task: Task) -> bool:
        """Has every row the content that its sample has now, and is that still first where the part says?"""
        rows, open_ = self.samples - task.start, self.firsts >= 0
        same = task.contents[rows].tolist() == [row["content"].encode() for row in self.metadata]
        return same and np.array_equal(self.firsts[open_], task.firsts[rows][open_])

    def facts(self) -> dict[str, Any]:
        """What the totals of a store need to know."""
        return {
            "rows": len(self.metadata),
            "skipped": self.skipped,
            "reused": self.reused,
            "crossing": self.crossing,
            "splits": dict(Counter(row["split"] for row in self.metadata if row["split"] is not None)),
            "labels": dict(Counter(row["label"] for row in self.metadata if row["label"] is not None)),
        }

    def save(self, path: AnyPath) -> None:
        facts = {name: getattr(self, name) for name in ("metadata", "skipped", "reused", "crossing")}
        stream = io.BytesIO()
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        np.savez(stream, embeddings=self.embeddings, samples=self.samples, firsts=self.firsts, facts=text)
        write_bytes(path, stream.getvalue())


def part_path(folder: AnyPath, number: int) -> AnyPath:
    return folder / layout.PROGRESS / f"part_{number}.npz"


def load_part(path: AnyPath, dimension: int, dtype: str) -> Part | None:
    """The part that was saved; None where there is none, or a damaged one: it is made again."""
    try:
        if isinstance(path, Place) and not path.is_file():
            return None
        with np.load(io.BytesIO(read_regular(path, MOST_TENSOR_BYTES)), allow_pickle=False) as archive:
            facts = json.loads(archive["facts"].tobytes())
            part = Part(archive["embeddings"], archive["samples"], archive["firsts"], **facts)
        rows = len(part.metadata)
        whole = part.embeddings.shape == (rows, dimension) and part.embeddings.dtype == dtype
        return part if whole and len(part.samples) == len(part.firsts) == rows else None
    except UnreachableError:
        raise
    except Exception:
        return None


def make_part(task: Task, decoded: Iterable[Decoded], encoder: Encoder, plan: dict[str, Any], chunk: int) -> Part:
    """Embed the samples of a task, `chunk` of them after the other as the one-machine run does."""
    dtype, batch = str(plan["dtype"]), int(plan["batch_size"])
    unknown = np.full(encoder.dimension, np.nan, dtype)
    answers = iter(decoded)
    embeddings, numbers, firsts = [], [], []
    metadata: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    reused = crossing = 0
    for begin in range(0, len(task.samples), chunk):
        builder = ChunkBuilder(encoder, batch, dtype)
        for offset in range(begin, min(begin + chunk, len(task.samples))):
            item = next(answers)
            sample, number, first = task.samples[offset], task.start + offset, int(task.firsts[offset])
            _check(sample, item, task.contents[offset])
            elsewhere = first // chunk != number // chunk
            builder.add(sample, item, FirstRow(unknown, task.splits[offset]) if elsewhere else None)
            if item.image is not None:
                numbers.append(number)
                firsts.append(first if elsewhere else -1)
        made = builder.build()
        embeddings.append(made.embeddings)
        metadata += made.metadata
        skipped += made.skipped
        reused, crossing = reused + made.reused, crossing + made.crossing
    counts = (np.array(numbers, np.int64), np.array(firsts, np.int64))
    return Part(np.concatenate(embeddings), *counts, metadata, skipped, reused, crossing)


def _check(sample: Sample, item: Decoded, content: bytes) -> None:
    if item.failure is not None:
        raise UnreachableError(item.failure)
    if item.image is not None and item.content.encode() != bytes(content):
        raise CCRError(f"{sample.key!r} changed while it was embedded: let nobody write there, and run again")
