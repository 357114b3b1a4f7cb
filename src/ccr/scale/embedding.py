"""`embed`: a data set through encoders all over a cluster into a store, the same to the bit as `embed_dataset` makes.

1. Contents: tasks hash all images, so that copies are known (and splits can keep them together) before any is embedded.
2. Parts: `ray.data` hands runs of samples to a pool of encoder actors; each writes its part, whole or not at all, and a
   part that is there is not made again. A task that a lost worker or node had is given to another.
3. Shards: a task for each puts its rows together from parts. Then `store.json` is written, and the store is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, BadImage, Dataset, Sample, content_hash, split_dataset
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.encoders.protocol import checked_batch_size
from ccr.data.store import EmbedSummary, layout
from ccr.data.store.embedding import BATCHES_PER_CHUNK, PLAN, Progress, prepared, summarise
from ccr.data.store.plan import check_same_plan, describe, make_plan
from ccr.data.store.shards import Totals, refuse_empty, remove_progress, write_shard
from ccr.data.store.workers import Decoded, Limits, decode_sample
from ccr.errors import CCRError, UnreachableError
from ccr.files import write_json
from ccr.places import AnyPath, as_place
from ccr.scale.cluster import connected, in_words, workers_of
from ccr.scale.parts import Part, Task, load_part, make_part, part_path

#: Samples of a part, about; and of a task that hashes.
PART, HASHED = 1024, 2048
#: Tasks that are under way at once, for each core.
AHEAD = 2
#: Images that an encoder's threads decode ahead, in batches.
DECODED_AHEAD = 2


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
    dataset : Dataset
        The images, as `open_dataset` or `open_samples` gives them; without splits of their own they are divided here.
    encoder : Encoder
        As `load_encoder` gives it; every worker loads the same by its name.
    out : str or Path
        The store's URL, or a folder that all nodes see.
    address : str
        The cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    workers : int, optional
        Encoders at work at once. None: one for each GPU, or else for each core, of the cluster.
    val, test, seed
        As of `open_dataset`.
    dtype, batch_size, shard_size, max_pixels, max_bytes, strict, progress
        As of `embed_dataset`.
    """
    folder, started = as_place(out).absolute(), time.perf_counter()
    limits = Limits(max_pixels, max_bytes)
    with connected(address) as ray, in_words(ray):
        contents = _contents(ray, dataset, limits)
        if not dataset.splits:
            dataset = split_dataset(dataset, val=val, test=test, seed=seed, contents=_identities(dataset, contents))
        sizes = {"batch_size": checked_batch_size(batch_size), "shard_size": shard_size, "max_pixels": max_pixels}
        plan = make_plan(dataset, encoder, dtype=dtype, max_bytes=max_bytes, **sizes)
        if (folder / layout.DESCRIPTION).is_file():
            check_same_plan(folder, layout.read_json(folder / layout.DESCRIPTION).get("plan"), plan)
            remove_progress(folder)
            return summarise(folder, strict, len(dataset), 0, started)
        with prepared(folder, plan):
            job = _Job(ray, folder, plan, dataset, contents, encoder, limits, strict)
            facts = job.embed(workers, progress)
            totals = job.write_shards(facts)
            write_json(folder / layout.DESCRIPTION, describe(dataset, encoder, plan, totals))
            remove_progress(folder)
    resumed = sum(fact["samples"] for fact in facts if fact["resumed"])
    return summarise(folder, strict, resumed, len(dataset) - resumed, started)


class _Job:
    """What the tasks of one run share."""

    def __init__(
        self,
        ray: Any,
        folder: AnyPath,
        plan: dict[str, Any],
        dataset: Dataset,
        contents: np.ndarray,
        encoder: Encoder,
        limits: Limits,
        strict: bool,
    ) -> None:
        self.ray, self.folder, self.plan, self.dataset = ray, folder, plan, dataset
        self.contents, self.encoder, self.limits, self.strict = contents, encoder, limits, strict
        self.chunk = BATCHES_PER_CHUNK * int(plan["batch_size"])
        self.size = self.chunk * max(1, PART // self.chunk)
        self.parts = -(-len(dataset) // self.size)

    def embed(self, workers: int | None, progress: Progress | None) -> list[dict[str, Any]]:
        """Make all parts that are not there; the facts of each, in order."""
        import ray.data

        count, gpus = workers_of(self.ray, workers)
        desk = self._desk()
        quiet(ray.data)
        parts = ray.data.from_items([{"part": part} for part in range(self.parts)], override_num_blocks=self.parts)
        told = parts.map_batches(
            EmbedParts,
            batch_size=1,
            concurrency=(1, min(count, self.parts)),
            num_gpus=1 if gpus else 0,
            num_cpus=None if gpus else 1,
            fn_constructor_kwargs={
                "desk": desk,
                "folder": str(self.folder),
                "plan": self.plan,
                "encoder": self.encoder.name,
                "limits": tuple(self.limits),
                "strict": self.strict,
                "chunk": self.chunk,
            },
        )
        facts: dict[int, dict[str, Any]] = {}
        done = 0
        _report(progress, done, len(self.dataset))
        for row in told.iter_rows():
            fact = json.loads(row["facts"])
            if "error" in fact:
                raise (UnreachableError if fact["again"] else CCRError)(fact["error"])
            facts[fact["part"]] = fact
            done += fact["samples"]
            _report(progress, done, len(self.dataset))
        return [facts[part] for part in range(self.parts)]

    def _desk(self) -> Any:
        """The actor that hands out the samples of parts: on this node, because the list may be long."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=True)
        firsts = first_samples(self.contents)
        actor = self.ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Desk)
        return actor.options(scheduling_strategy=here).remote(self.dataset, self.contents, firsts, self.size)

    def write_shards(self, facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Put the shards together; the totals for `store.json`."""
        totals = Totals()
        for fact in facts:
            totals.rows += fact["rows"]
            totals.reused += fact["reused"]
            totals.crossing += fact["crossing"]
            totals.skipped += fact["skipped"]
            totals.splits.update(fact["splits"])
            totals.labels.update(fact["labels"])
        if not totals.rows:
            refuse_empty(self.folder, totals)
        starts = np.cumsum([0, *(fact["rows"] for fact in facts)])
        size = int(self.plan["shard_size"])
        shape = (self.encoder.dimension, str(self.plan["dtype"]), self.size)
        write = self.ray.remote(num_cpus=1, max_retries=-1)(write_rows)
        asks = [
            (str(self.folder), number, pieces(starts, start, min(start + size, totals.rows)), *shape)
            for number, start in enumerate(range(0, totals.rows, size))
        ]
        shards = list(under_way(self.ray, lambda ask: write.remote(*ask), asks))
        return {**totals.to_dict(), "shards": shards}


class Desk:
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


class EmbedParts:
    """An actor of `ray.data`: an encoder, and the parts that it is given."""

    def __init__(
        self,
        desk: Any,
        folder: str,
        plan: dict[str, Any],
        encoder: str,
        limits: tuple[int, int],
        strict: bool,
        chunk: int,
    ) -> None:
        self.desk, self.folder, self.plan, self.strict = desk, as_place(folder), plan, strict
        self.limits, self.chunk = Limits(*limits), chunk
        self.spec = encoder
        self._encoder: Encoder | None = None

    @property
    def encoder(self) -> Encoder:
        """Loaded when the first part comes: what is wrong with it can then be answered in words."""
        if self._encoder is None:
            check_seen(self.folder)
            loaded = load_encoder(self.spec, batch_size=int(self.plan["batch_size"]))
            if loaded.fingerprint != self.plan["encoder"]:
                raise CCRError(
                    f"a node's encoder {self.spec} is {loaded.fingerprint}, not {self.plan['encoder']}: give all nodes "
                    "the same weights"
                )
            self._encoder = loaded
        return self._encoder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"facts": [json.dumps(self._answer(int(number))) for number in batch["part"]]}

    def _answer(self, number: int) -> dict[str, Any]:
        try:
            return self._embed(number)
        except CCRError as error:  # ray.data would wrap it, and lose its class on the way
            return {"part": number, "error": str(error), "again": isinstance(error, UnreachableError)}

    def _embed(self, number: int) -> dict[str, Any]:
        import ray

        path, dimension = part_path(self.folder, number), self.encoder.dimension
        task: Task = ray.get(self.desk.task.remote(number))
        part = load_part(path, dimension, str(self.plan["dtype"]))
        resumed = part is not None
        if part is None:
            part = make_part(task, self._decoded(task.samples), self.encoder, self.plan, self.chunk)
            part.save(path)
        if self.strict and part.skipped:
            raise BadImage(f"{part.skipped[0]['path']!r} cannot be embedded: {part.skipped[0]['reason']}")
        return {**part.facts(number), "samples": len(task.samples), "resumed": resumed}

    def _decoded(self, samples: Sequence[Sample]) -> Iterator[Decoded]:
        """Decoded by threads, a few batches ahead of the encoder and no more."""
        ahead = DECODED_AHEAD * int(self.plan["batch_size"])

        def decode(sample: Sample) -> Decoded:
            return decode_sample(sample, crop=self.encoder.crop, limits=self.limits)

        with ThreadPoolExecutor(2) as pool:
            for start in range(0, len(samples), ahead):
                yield from pool.map(decode, samples[start : start + ahead])


def check_seen(folder: AnyPath) -> None:
    """An error when this node does not see the store that the run began."""
    if not (folder / layout.PROGRESS / PLAN).is_file():
        import socket

        raise CCRError(
            f"{folder} is not there on the node {socket.gethostname()}: --out must be a URL, such as s3://, or a "
            "folder that all nodes share"
        )


def write_rows(
    folder: str, number: int, wanted: list[tuple[int, int, int]], dimension: int, dtype: str, size: int
) -> dict[str, Any]:
    """A task: write shard `number` of these rows (part, start, stop), open ones taken from the part of `size` samples
    that has their content first; its entry in `store.json`."""
    place = as_place(folder)

    @lru_cache(maxsize=64)
    def part(which: int) -> Part:
        found = load_part(part_path(place, which), dimension, dtype)
        if found is None:
            raise UnreachableError(f"part {which} of {folder} was damaged meanwhile: run the same command again")
        return found

    rows, metadata = [], []
    for which, start, stop in wanted:
        own = part(which)
        embeddings = own.embeddings[start:stop].copy()
        for row in np.flatnonzero(own.firsts[start:stop] >= 0):
            first = int(own.firsts[start + row])
            other = part(first // size)
            embeddings[row] = other.embeddings[int(np.searchsorted(other.samples, first))]
        rows.append(embeddings)
        metadata += own.metadata[start:stop]
    return write_shard(place, number, np.concatenate(rows), metadata)


def pieces(starts: np.ndarray, start: int, stop: int) -> list[tuple[int, int, int]]:
    """The rows start:stop of all, as (part, first row, last row + 1) of parts that begin at `starts`."""
    found = []
    for part in range(int(np.searchsorted(starts, start, side="right")) - 1, len(starts) - 1):
        first, last = max(start, int(starts[part])), min(stop, int(starts[part + 1]))
        if first >= stop:
            break
        if first < last:
            found.append((part, first - int(starts[part]), last - int(starts[part])))
    return found


def first_samples(contents: np.ndarray) -> np.ndarray:
    """For each sample the number of the first that has its content; one that cannot be read has none but itself."""
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


def hash_samples(samples: Sequence[Sample], limits: tuple[int, int]) -> np.ndarray:
    """A task: the content hash of each sample, empty where it cannot be read."""
    return np.array([_content(sample, limits[1]) for sample in samples], "S32")


def _content(sample: Sample, max_bytes: int) -> bytes:
    try:
        sample.key.encode()
        return content_hash(sample.source.read(max_bytes)).encode()
    except UnreachableError:
        raise
    except Exception:  # one sample must never stop a run of a million; it is listed when it is embedded
        return b""


def _contents(ray: Any, dataset: Dataset, limits: Limits) -> np.ndarray:
    look = ray.remote(num_cpus=1, max_retries=-1)(hash_samples)
    starts = range(0, len(dataset), HASHED)
    return np.concatenate(
        list(
            under_way(
                ray,
                lambda start: look.remote(list(dataset.samples[start : start + HASHED]), tuple(limits)),
                starts,
            )
        )
    )


def _identities(dataset: Dataset, contents: np.ndarray) -> list[object]:
    return [
        content.decode() if content else ("unreadable", dataset.samples[row].key)
        for row, content in enumerate(contents.tolist())
    ]


def quiet(data: Any) -> None:
    """No bars and tables of ray.data's own: progress is the caller's."""
    import logging

    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
