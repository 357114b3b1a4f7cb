"""`embed_dataset`: a data set through an encoder into a store, resumable at any moment.

Samples are cut into chunks of a fixed size; each chunk is one file that appears whole or not at all. A killed
run goes on at the first chunk that is missing. A chunk's numbers depend on its samples and on earlier chunks
alone, so the store is the same, bit for bit, however often it was interrupted. The plan of a store is everything that
its numbers depend on; it is compared before an unfinished run is continued.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, BadImage, Dataset, Sample, content_hash
from ccr.data.store import layout
from ccr.data.store.layout import DESCRIPTION, FORMAT, FORMAT_VERSION, described_lengths, read_columns, read_description
from ccr.data.store.matrix import finish, remove_progress, write_shards
from ccr.data.store.workers import Chunk, ChunkBuilder, Decoded, Decoders, FirstRow, Limits, decode_sample
from ccr.encoders import Encoder
from ccr.encoders.registry import checked_batch_size
from ccr.errors import CCRError, FormatError, UnreachableError
from ccr.explain.terms import PlainResult
from ccr.io.files import format_errors, locked, write_json
from ccr.io.remote import AnyPath, Place, as_place


# A store that is begun: its plan, kept in its folder, and one run at a time at work there.
@contextmanager
def prepared(folder: AnyPath, plan: Mapping[str, Any]) -> Iterator[float]:
    """The folder with this plan in it and no other run at work; another plan or foreign files are refused. Gives since
    when a touched file may not be the one embedded (`touched_since`)."""
    progress = folder / layout.PROGRESS
    if folder.exists() and not progress.is_dir() and any(folder.iterdir()):
        raise CCRError(f"{folder} exists and is not a store begun by ccr: choose a new or empty folder")
    if not isinstance(progress, Place):
        progress.mkdir(parents=True, exist_ok=True)
    # An object store has no locks: two runs there do work twice, and write the same.
    busy = f"another run is embedding into {folder}: wait for it or choose another folder"
    with nullcontext() if isinstance(progress, Place) else locked(progress, busy):
        file = progress / layout.PLAN
        if not file.is_file():
            write_json(file, plan)
        begun = layout.read_json(file)
        check_same_plan(folder, begun, plan)
        yield touched_since(file, begun.get("origin"), plan["origin"])


def update_plan(folder: AnyPath, plan: Mapping[str, Any]) -> None:
    """Update the origin in a begun store's plan; the file's time stays that of the first run's begin."""
    file = folder / layout.PROGRESS / layout.PLAN
    if layout.read_json(file) == plan:
        return
    begun = None if isinstance(file, Place) else file.stat()
    write_json(file, plan)
    if begun is not None:
        os.utime(file, ns=(begun.st_atime_ns, begun.st_mtime_ns))


DTYPES = ("float16", "float32")
#: Since when every file counts as touched.
EVER = -math.inf
_ENTRIES = {
    "encoder": "encoder",
    "dtype": "dtype",
    "batch_size": "batch size",
    "shard_size": "shard size",
    "max_pixels": "pixel limit",
    "max_bytes": "byte limit",
    "samples": "number of images",
    "samples_sha256": "list of images, labels and splits",
}


def make_plan(
    dataset: Dataset, encoder: Encoder, *, dtype: str, batch_size: int, shard_size: int, max_pixels: int, max_bytes: int
) -> dict[str, Any]:
    """Settings that a resumed run must share with the first one, and the origin of the data. If only the origin
    differs, every file is read to see whether the data have merely moved."""
    if dtype not in DTYPES:
        raise CCRError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if shard_size < 1:
        raise CCRError(f"shard_size must be at least 1, got {shard_size}: it is the number of rows of a file")
    return {
        "encoder": encoder.fingerprint,
        "dtype": dtype,
        "batch_size": batch_size,
        "shard_size": shard_size,
        "max_pixels": max_pixels,
        "max_bytes": max_bytes,
        "samples": len(dataset),
        "samples_sha256": _digest(dataset),
        "origin": dict(dataset.origin),
    }


def check_same_plan(folder: AnyPath, plan: object, wanted: Mapping[str, Any]) -> None:
    """An error that names the differences when the store in `folder` was begun with another plan than `wanted`."""
    begun = {"max_bytes": MAX_BYTES, **(plan if isinstance(plan, dict) else {})}  # older plans do not say
    differences = [
        f"{words} ({begun.get(name)!r}, now {wanted[name]!r})"
        for name, words in _ENTRIES.items()
        if begun.get(name) != wanted[name]
    ]
    if differences:
        raise CCRError(
            f"{folder} holds a store made with another {', another '.join(differences)}: "
            "repeat the first call as it was, choose another folder, or delete this one"
        )


def is_finished(folder: AnyPath, dataset: Dataset, plan: Mapping[str, Any]) -> bool:
    """Whether `folder` holds the finished store; an error when it is another one, or of other files."""
    if not (folder / DESCRIPTION).is_file():
        return False
    check_same_plan(folder, layout.read_json(folder / DESCRIPTION).get("plan"), plan)
    check_same_files(folder, dataset, Limits(int(plan["max_pixels"]), int(plan["max_bytes"])))
    remove_progress(folder)
    return True


def check_same_files(folder: AnyPath, dataset: Dataset, limits: Limits) -> None:
    """An error that names a file which is not what the finished store in `folder` was made of. Only files that were
    touched after its run began are read, all of them if it was made from another place; an object store is believed."""
    description = read_description(folder)
    since = touched_since(folder / DESCRIPTION, description["source"], dataset.origin)
    touched = [] if since == math.inf else [sample for sample in dataset if _is_touched(sample, since)]
    if not touched:
        return
    columns = read_columns(folder, described_lengths(description), ("image_path", "content"))
    known = dict(zip(columns["image_path"], columns["content"], strict=True))
    changed = first_changed(touched, known, since, limits)
    if changed is not None:
        was = "was another file" if changed.key in known else "was left out"
        raise CCRError(
            f"{changed.key!r} {was} when the store {folder} was made from {description['source']['path']}: delete "
            f"{folder} to embed everything again, or choose another folder"
        )


def touched_since(file: AnyPath, origin: object, wanted: Mapping[str, Any]) -> float:
    """Since when a touched file of the data may not be the one embedded: since the time of `file`, which is when the
    run began; ever, if the data came from another `origin` than `wanted` or none was noted. An object store shows no
    times that could be compared, and is believed."""
    if origin != dict(wanted):
        return EVER
    return math.inf if isinstance(file, Place) else file.stat().st_mtime


def first_changed(samples: Iterable[Sample], known: Mapping[str, str], since: float, limits: Limits) -> Sample | None:
    """The first sample whose file was touched `since` and is another now: it has not the `known` hash of its content,
    or it was left out then and can be read."""
    for sample in samples:
        if _is_touched(sample, since) and _content(sample, sample.key in known, limits) != known.get(sample.key, ""):
            return sample
    return None


def _is_touched(sample: Sample, since: float) -> bool:
    """Whether the file's mtime or ctime is at or after `since`; False where that cannot be seen."""
    if math.isinf(since):
        return since == EVER
    path = getattr(sample.source, "path", None)
    try:
        status = path.stat() if isinstance(path, Path) else None
    except (OSError, ValueError):
        return False
    return status is not None and max(status.st_mtime, status.st_ctime) >= since


def _content(sample: Sample, readable: bool, limits: Limits) -> str:
    """The hash of its content, empty if it is no image; what was `readable` is not decoded to know."""
    if not readable:
        return decode_sample(sample, crop=None, limits=limits).content
    try:
        return content_hash(sample.source.read(limits.bytes))
    except BadImage:
        return ""


def describe(dataset: Dataset, encoder: Encoder, plan: Mapping[str, Any], totals: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `store.json`. Nothing in it depends on when, or in how many runs, the store was made."""
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "encoder": {
            "spec": encoder.name,
            "fingerprint": encoder.fingerprint,
            "dimension": encoder.dimension,
            "preprocessing": encoder.preprocessing,
        },
        "dtype": plan["dtype"],
        "classes": list(dataset.classes),
        **totals,
        "source": dict(dataset.origin),
        "plan": {name: plan[name] for name in _ENTRIES},
    }


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for sample in dataset:
        facts = [sample.key, sample.label, sample.split]
        facts += [] if sample.group is None else [sample.group]  # older plans know no groups
        digest.update(json.dumps(facts).encode() + b"\n")
    return digest.hexdigest()


Progress = Callable[[int, int], None]
BATCHES_PER_CHUNK = 2  # what a killed run loses at most, in batches


@dataclass(frozen=True)
class Skipped:
    """An image that is not in the store, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class EmbedSummary(PlainResult):
    """Summary of an embedding run: the content of the store and the work done.

    Attributes
    ----------
    store : the store's folder.
    rows : images in it.
    skipped : images that cannot be read, with the reasons.
    reused : rows that have the content of an earlier row.
    crossing : those of them whose earlier row is in another split.
    resumed : samples that an earlier run had done.
    seconds, images_per_second : how long this run took, and how fast it was; 0 images per second if nothing was left to
        do.
    """

    store: str
    rows: int
    skipped: tuple[Skipped, ...]
    reused: int
    crossing: int
    resumed: int
    seconds: float
    images_per_second: float


def embed_dataset(
    dataset: Dataset,
    encoder: Encoder,
    out: str | Path,
    *,
    dtype: str = "float16",
    workers: int = 1,
    batch_size: int = 32,
    shard_size: int = 100_000,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    strict: bool = False,
    progress: Progress | None = None,
) -> EmbedSummary:
    """Embed every image of `dataset` into the store `out`; continue there if that was begun before.

    Images with the same content are embedded once. Interrupted at any moment and called again in the same way, it
    goes on where it was, and the store is the same to the bit. A finished store whose image files have changed since
    is refused by name.

    Parameters
    ----------
    dataset : the images, as `open_dataset` gives them; m of them.
    encoder : what embeds them, into d dimensions; as `load_encoder` gives it.
    out : the store's folder, or its URL: a new or empty one, or one that the same call began.
    dtype : how embeddings are stored, "float16" or "float32".
    workers : processes that read and decode ahead of the encoder, from 0: none, everything happens in this one.
    batch_size : images that are given to the encoder at a time, from 1.
    shard_size : rows of a file, from 1; the last one may have fewer.
    max_pixels : images of more pixels than this are skipped; decoding them takes memory.
    max_bytes : files (or rows of pixels) of more bytes than this are skipped without being read.
    strict : an image that cannot be read is an error. False: it is left out and listed in the summary.
    progress : called as `progress(done, total)` as samples pass.
    """
    sizes = {"batch_size": checked_batch_size(batch_size), "shard_size": shard_size, "max_pixels": max_pixels}
    sizes["max_bytes"] = max_bytes
    plan = make_plan(dataset, encoder, dtype=dtype, **sizes)
    folder = as_place(out)
    started = time.perf_counter()
    if is_finished(folder, dataset, plan):
        return summarise(folder, strict, len(dataset), 0, started)
    with prepared(folder, plan) as since:
        with Decoders(workers, crop=encoder.crop, limits=Limits(max_pixels, max_bytes)) as decoders:
            run = _EmbeddingRun(folder, plan, dataset, encoder, decoders, strict, progress, since)
            resumed = run.embed_missing()
        totals = write_shards(folder, run.load_chunks(), shard_size)
        finish(folder, describe(dataset, encoder, plan, totals))
    return summarise(folder, strict, resumed, len(dataset) - resumed, started)


@dataclass
class _EmbeddingRun:
    """One run: which contents are embedded already, and what is still to do."""

    folder: AnyPath
    plan: Mapping[str, Any]
    dataset: Dataset
    encoder: Encoder
    decoders: Decoders
    strict: bool
    progress: Progress | None
    since: float

    def __post_init__(self) -> None:
        self.size = BATCHES_PER_CHUNK * int(self.plan["batch_size"])
        self.chunks = -(-len(self.dataset) // self.size)
        self._first: dict[str, tuple[int, int]] = {}  # content -> chunk and row that have it first
        self._chunk = lru_cache(maxsize=32)(self._load_chunk)

    def embed_missing(self) -> int:
        """Embed the samples that no earlier run did; the number of those that one did."""
        done = self._finished_chunks()
        for number in range(done, self.chunks):  # they may be of other data
            path = layout.chunk_path(self.folder, number)
            if isinstance(path, Place) or path.exists():
                path.unlink()
        update_plan(self.folder, self.plan)
        resumed = min(done * self.size, len(self.dataset))
        self._report(resumed)
        decoded = self.decoders.decode(self.dataset.samples[resumed:])
        for number in range(done, self.chunks):
            self._embed_chunk(number, decoded)
        return resumed

    def _finished_chunks(self) -> int:
        """How many chunks at the beginning are there, of files that are still the same."""
        limits = Limits(int(self.plan["max_pixels"]), int(self.plan["max_bytes"]))
        for number in range(self.chunks):
            chunk = self._load_chunk(number)
            if chunk is None:
                return number
            samples = self.dataset.samples[number * self.size : (number + 1) * self.size]
            known = {facts["image_path"]: facts["content"] for facts in chunk.metadata}
            if first_changed(samples, known, self.since, limits) is not None:
                return number
            self._remember(number, chunk)
        return self.chunks

    def load_chunks(self) -> Iterator[Chunk]:
        """All chunks, once they are there."""
        for number in range(self.chunks):
            chunk = self._load_chunk(number)
            if chunk is None:
                raise FormatError(f"chunk {number} of {self.folder} was damaged meanwhile: run the same command again")
            yield chunk

    def _load_chunk(self, number: int) -> Chunk | None:
        return Chunk.load(layout.chunk_path(self.folder, number), self.encoder.dimension, str(self.plan["dtype"]))

    def _embed_chunk(self, number: int, decoded: Iterator[Decoded]) -> None:
        start = number * self.size
        builder = ChunkBuilder(self.encoder, int(self.plan["batch_size"]), str(self.plan["dtype"]))
        for done, sample in enumerate(self.dataset.samples[start : start + self.size], start=start + 1):
            item = next(decoded)
            if item.failure is not None:
                raise UnreachableError(item.failure)
            if self.strict and item.reason is not None:
                raise BadImage(f"{sample.key!r} cannot be embedded: {item.reason}")
            builder.add(sample, item, self._first_row(item.content))
            self._report(done)
        chunk = builder.build()
        chunk.save(layout.chunk_path(self.folder, number))
        self._remember(number, chunk)

    def _first_row(self, content: str) -> FirstRow | None:
        if content not in self._first:
            return None
        number, row = self._first[content]
        chunk = self._chunk(number)
        if chunk is None:
            raise CCRError(f"chunk {number} of {self.folder} disappeared while it was in use: run the command again")
        return FirstRow(chunk.embeddings[row], chunk.metadata[row]["split"])

    def _remember(self, number: int, chunk: Chunk) -> None:
        for row, facts in enumerate(chunk.metadata):
            self._first.setdefault(facts["content"], (number, row))

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.dataset))


def summarise(folder: AnyPath, strict: bool, resumed: int, fresh: int, started: float) -> EmbedSummary:
    description = layout.read_json(folder / layout.DESCRIPTION)
    with format_errors(folder / layout.DESCRIPTION, "say what the store holds", f"delete {folder} and embed again"):
        skipped = tuple(Skipped(str(item["path"]), str(item["reason"])) for item in description["skipped"])
        counts = {name: int(description["counts"][name]) for name in ("rows", "reused", "crossing")}
    if strict and skipped:
        raise BadImage(f"{skipped[0].path!r} cannot be embedded: {skipped[0].reason}")
    seconds = time.perf_counter() - started
    return EmbedSummary(
        store=str(folder),
        rows=counts["rows"],
        skipped=skipped,
        reused=counts["reused"],
        crossing=counts["crossing"],
        resumed=resumed,
        seconds=seconds,
        images_per_second=fresh / seconds if fresh else 0.0,
    )
