"""`embed`: a data set through encoders all over a cluster into a store, the same to the bit as `embed_dataset` makes.

1. Contents: tasks hash all images, so that copies are known (and splits can keep them together) before any is embedded.
2. Parts: `ray.data` hands runs of samples to a pool of encoder actors; each writes its part, whole or not at all, and a
   part that is there is not made again. A task that a lost worker or node had is given to another.
3. Shards: a task for each puts its rows together from parts. Then `store.json` is written, and the store is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, BadImage, Dataset, Sample, content_hash, split_dataset
from ccr.data.store import EmbedSummary, layout
from ccr.data.store.embedding import (
    BATCHES_PER_CHUNK,
    Progress,
    describe,
    is_finished,
    make_plan,
    prepared,
    summarise,
)
from ccr.data.store.matrix import Totals, finish, refuse_empty, write_shard
from ccr.data.store.workers import Chunk, ChunkBuilder, Decoded, FirstRow, Limits
from ccr.encoders import Encoder
from ccr.encoders.registry import checked_batch_size
from ccr.errors import CCRError, UnreachableError
from ccr.io.remote import AnyPath, as_place
from ccr.scale.cluster import connected, driver_actor, task_errors
from ccr.scale.prediction import EncoderOfNode, Member, answers

# Contents: the hash of every image of a data set, found by tasks all over a cluster, so that copies are known before
# any image is embedded.
#: Samples of a task.
HASHED = 2048
#: Tasks that are under way at once, for each core.
AHEAD = 2


def hash_dataset(ray: Any, dataset: Dataset, limits: Limits) -> np.ndarray:
    """The content hash of each sample (m,), empty where it cannot be read."""
    look = ray.remote(num_cpus=1, max_retries=-1)(hash_samples)

    def start(first: int) -> Any:
        return look.remote(list(dataset.samples[first : first + HASHED]), limits.bytes)

    return np.concatenate(list(under_way(ray, start, range(0, len(dataset), HASHED))))


def hash_samples(samples: Sequence[Sample], max_bytes: int) -> np.ndarray:
    """A task: the hashes of these samples."""
    return np.array([_content(sample, max_bytes) for sample in samples], "S32")


def _content(sample: Sample, max_bytes: int) -> bytes:
    try:
        sample.key.encode()
        return content_hash(sample.source.read(max_bytes)).encode()
    except UnreachableError:
        raise
    except Exception:  # one sample must never stop a run of a million; it is listed when it is embedded
        return b""


def identities(dataset: Dataset, contents: np.ndarray) -> list[object]:
    """Hashable identity of each sample's content, for `split_dataset`; an unreadable sample equals no other."""
    return [
        content.decode() if content else ("unreadable", dataset.samples[row].key)
        for row, content in enumerate(contents.tolist())
    ]


def first_samples(contents: np.ndarray) -> np.ndarray:
    """Number of the first sample with the content of each; one that cannot be read has its own."""
    _, first, inverse = np.unique(contents, return_index=True, return_inverse=True)
    return np.where(contents == b"", np.arange(len(contents)), first[inverse.ravel()])


def under_way(ray: Any, start: Callable[[Any], Any], asks: Sequence[Any]) -> Iterator[Any]:
    """The results of tasks, in order; no more are begun than keep the cluster busy."""
    most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting: list[Any] = []
    for ask in asks:
        waiting.append(start(ask))
        if len(waiting) > most:
            yield ray.get(waiting.pop(0))
    for one in waiting:
        yield ray.get(one)


# Parts: the embeddings of consecutive samples, made by one task and written atomically. A part is a whole number of
# the chunks of a run on one machine (`ccr.data.store.workers`), so that its numbers are the same. Rows whose content
# occurs first in another chunk are left open, with the number of the sample that has it; writing shards fills them in.
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
class StorePart(Chunk):
    """A chunk whose rows come with the numbers of their samples; for rows left open, `firsts` has the sample that has
    their content first, else -1."""

    samples: np.ndarray
    firsts: np.ndarray

    def is_sound(self) -> bool:
        return len(self.samples) == len(self.firsts) == len(self.metadata)

    def is_of(self, task: Task) -> bool:
        """Whether every row of the part has its sample's content now, and the first occurrences that the part says."""
        rows, open_ = self.samples - task.start, self.firsts >= 0
        same = task.contents[rows].tolist() == [row["content"].encode() for row in self.metadata]
        return same and np.array_equal(self.firsts[open_], task.firsts[rows][open_])

    def facts(self) -> dict[str, Any]:
        """Counts of this part that add up to the totals of the store."""
        totals = Totals()
        totals.add(self)
        return vars(totals)


def part_path(folder: AnyPath, number: int) -> AnyPath:
    return folder / layout.PROGRESS / f"part_{number}.npz"


def make_part(task: Task, decoded: Iterable[Decoded], encoder: Encoder, plan: dict[str, Any], chunk: int) -> StorePart:
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
    return StorePart(np.concatenate(embeddings), metadata, skipped, reused, crossing, *counts)


def _check(sample: Sample, item: Decoded, content: bytes) -> None:
    if item.failure is not None:
        raise UnreachableError(item.failure)
    if item.image is not None and item.content.encode() != bytes(content):
        raise CCRError(f"{sample.key!r} changed while it was embedded: stop what writes there, and run again")


# Assembly of the shards of a store: one task per shard, which reads the parts that contain its rows.
@dataclass(frozen=True)
class Shape:
    """Layout of the parts: dimension and dtype of their rows, and samples per part."""

    dimension: int
    dtype: str
    samples: int


def write_shards(ray: Any, folder: AnyPath, facts: Sequence[dict[str, Any]], size: int, shape: Shape) -> dict[str, Any]:
    """Write shards of `size` rows from the parts that these facts are of; the totals for `store.json`."""
    totals = totals_of(facts)
    if not totals.rows:
        refuse_empty(folder, totals)
    starts = np.cumsum([0, *(fact["rows"] for fact in facts)])
    write = ray.remote(num_cpus=1, max_retries=-1)(write_rows)
    asks = [
        (str(folder), number, pieces(starts, start, min(start + size, totals.rows)), shape)
        for number, start in enumerate(range(0, totals.rows, size))
    ]
    shards = list(under_way(ray, lambda ask: write.remote(*ask), asks))
    return {**totals.to_dict(), "shards": shards}


def totals_of(facts: Sequence[dict[str, Any]]) -> Totals:
    """The sums of what parts say of themselves."""
    totals = Totals()
    for fact in facts:
        totals.rows += fact["rows"]
        totals.reused += fact["reused"]
        totals.crossing += fact["crossing"]
        totals.skipped += fact["skipped"]
        totals.splits.update(fact["splits"])
        totals.labels.update(fact["labels"])
    return totals


def pieces(starts: np.ndarray, start: int, stop: int) -> list[tuple[int, int, int]]:
    """The rows start:stop of all, as (part, first row, last row + 1) of parts that begin at `starts`."""
    spans = []
    for part in range(int(np.searchsorted(starts, start, side="right")) - 1, len(starts) - 1):
        first, last = max(start, int(starts[part])), min(stop, int(starts[part + 1]))
        if first >= stop:
            break
        if first < last:
            spans.append((part, first - int(starts[part]), last - int(starts[part])))
    return spans


def write_rows(folder: str, number: int, wanted: Sequence[tuple[int, int, int]], shape: Shape) -> dict[str, Any]:
    """A task: write shard `number` of these rows (part, start, stop), open ones taken from the part that has their
    content first; its entry in `store.json`."""
    place = as_place(folder)

    @lru_cache(maxsize=64)
    def part(which: int) -> StorePart:
        loaded = StorePart.load(part_path(place, which), shape.dimension, shape.dtype)
        if loaded is None:
            raise UnreachableError(f"part {which} of {folder} was damaged meanwhile: run the same command again")
        return loaded

    rows, metadata = [], []
    for which, start, stop in wanted:
        own = part(which)
        embeddings = own.embeddings[start:stop].copy()
        for row in np.flatnonzero(own.firsts[start:stop] >= 0):
            first = int(own.firsts[start + row])
            other = part(first // shape.samples)
            embeddings[row] = other.embeddings[int(np.searchsorted(other.samples, first))]
        rows.append(embeddings)
        metadata += own.metadata[start:stop]
    return write_shard(place, number, np.concatenate(rows), metadata)


#: Samples of a part, about.
PART = 1024


def embed(
    dataset: Dataset,
    encoder: Encoder,
    out: str | Path,
    *,
    address: str = "auto",
    workers: int | None = None,
    dtype: str = "float16",
    batch_size: int = 32,
    shard_size: int = 100_000,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    strict: bool = False,
    val: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    progress: Progress | None = None,
) -> EmbedSummary:
    """Embed every image of `dataset` into the store `out` on a Ray cluster; continue there if that was begun before.

    As `ccr.data.store.embed_dataset`, and the store has the same bytes. Killed at any moment, worker, node or this
    process, and called again in the same way, it ends with the same store.

    Parameters
    ----------
    dataset : the images, as `open_dataset` or `open_samples` gives them; without splits of their own they are divided
        here.
    encoder : as `load_encoder` gives it; every worker loads the same by its name.
    out : the store's URL, or a folder that all nodes see.
    address : the cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    workers : encoders at work at once. None: one for each GPU, or else for each core, of the cluster.
    val, test, seed
        As of `open_dataset`.
    dtype, batch_size, shard_size, max_pixels, max_bytes, strict, progress
        As of `embed_dataset`.
    """
    folder, started = as_place(out).absolute(), time.perf_counter()
    with connected(address) as ray, task_errors(ray):
        contents = hash_dataset(ray, dataset, Limits(max_pixels, max_bytes))
        if not dataset.splits:
            dataset = split_dataset(dataset, val=val, test=test, seed=seed, contents=identities(dataset, contents))
        sizes = {"batch_size": checked_batch_size(batch_size), "shard_size": shard_size, "max_pixels": max_pixels}
        plan = make_plan(dataset, encoder, dtype=dtype, max_bytes=max_bytes, **sizes)
        if is_finished(folder, dataset, plan):
            return summarise(folder, strict, len(dataset), 0, started)
        with prepared(folder, plan):
            job = _Job(ray, folder, plan, dataset, encoder)
            facts = job.embed(contents, workers, strict, progress)
            totals = job.write_shards(facts)
            finish(folder, describe(dataset, encoder, plan, totals))
    resumed = sum(fact["samples"] for fact in facts if fact["resumed"])
    return summarise(folder, strict, resumed, len(dataset) - resumed, started)


class _Job:
    """One embedding run on a Ray cluster: what its tasks share, and the methods that start them."""

    def __init__(self, ray: Any, folder: AnyPath, plan: dict[str, Any], dataset: Dataset, encoder: Encoder) -> None:
        self.ray, self.folder, self.plan, self.dataset, self.encoder = ray, folder, plan, dataset, encoder
        self.chunk = BATCHES_PER_CHUNK * int(plan["batch_size"])
        self.size = self.chunk * max(1, PART // self.chunk)
        self.parts = -(-len(dataset) // self.size)

    def embed(
        self, contents: np.ndarray, workers: int | None, strict: bool, progress: Progress | None
    ) -> list[dict[str, Any]]:
        """Make all parts that are not there; the facts of each, in order."""
        arguments = {
            "actor": driver_actor(self.ray, TaskActor, self.dataset, contents, first_samples(contents), self.size),
            "folder": str(self.folder),
            "plan": self.plan,
            "encoder": self.encoder.name,
            "strict": strict,
            "chunk": self.chunk,
        }
        facts: dict[int, dict[str, Any]] = {}
        done = 0
        _report(progress, done, len(self.dataset))
        for fact in answers(self.ray, EmbedParts, range(self.parts), workers, arguments):
            facts[fact["task"]] = fact
            done += fact["samples"]
            _report(progress, done, len(self.dataset))
        return [facts[part] for part in range(self.parts)]

    def write_shards(self, facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Put the shards together; the totals for `store.json`."""
        shape = Shape(self.encoder.dimension, str(self.plan["dtype"]), self.size)
        return write_shards(self.ray, self.folder, facts, int(self.plan["shard_size"]), shape)


class TaskActor:
    """Hands out the samples of parts."""

    def __init__(self, dataset: Dataset, contents: np.ndarray, firsts: np.ndarray, size: int) -> None:
        self.dataset, self.contents, self.firsts, self.size = dataset, contents, firsts, size

    def task(self, number: int) -> Task:
        """The samples of a part."""
        part = slice(number * self.size, min((number + 1) * self.size, len(self.dataset)))
        samples, firsts = list(self.dataset.samples[part]), self.firsts[part]
        own = {part.start + offset: sample.split for offset, sample in enumerate(samples)}
        splits = [own[first] if first in own else self.dataset.samples[int(first)].split for first in firsts.tolist()]
        return Task(part.start, samples, self.contents[part], firsts, splits)


class EmbedParts(Member):
    """Embeds the parts that it is given, each into a file."""

    def __init__(self, actor: Any, folder: str, plan: dict[str, Any], encoder: str, strict: bool, chunk: int) -> None:
        self.actor, self.folder, self.plan, self.strict, self.chunk = actor, as_place(folder), plan, strict, chunk
        limits = int(plan["max_pixels"]), int(plan["max_bytes"])
        self.encoder = EncoderOfNode(encoder, str(plan["encoder"]), int(plan["batch_size"]), limits)

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        check_shared(self.folder)
        path, encoder = part_path(self.folder, number), self.encoder.get()
        task: Task = ray.get(self.actor.task.remote(number))
        part = StorePart.load(path, encoder.dimension, str(self.plan["dtype"]))
        resumed = part is not None and part.is_of(task)
        if part is None or not resumed:
            part = make_part(task, self.encoder.decoded(task.samples), encoder, self.plan, self.chunk)
            part.save(path)
        if self.strict and part.skipped:
            raise BadImage(f"{part.skipped[0]['path']!r} cannot be embedded: {part.skipped[0]['reason']}")
        return {**part.facts(), "samples": len(task.samples), "resumed": resumed}


def check_shared(folder: AnyPath) -> None:
    """An error when this node does not see the store that the run began."""
    if not (folder / layout.PROGRESS / layout.PLAN).is_file():
        import socket

        raise CCRError(
            f"{folder} is not there on the node {socket.gethostname()}: --out must be a URL, such as s3://, or a "
            "folder that all nodes share"
        )


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
