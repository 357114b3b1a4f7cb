"""`embed`: a data set through encoders all over a cluster into a store, the same to the bit as `embed_dataset` makes.

1. Contents: tasks hash all images, so that copies are known (and splits can keep them together) before any is embedded.
2. Parts: `ray.data` hands runs of samples to a pool of encoder actors; each writes its part, whole or not at all, and a
   part that is there is not made again. A task that a lost worker or node had is given to another.
3. Shards: a task for each puts its rows together from parts. Then `store.json` is written, and the store is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, BadImage, Dataset, split_dataset
from ccr.data.encoders import Encoder
from ccr.data.encoders.protocol import checked_batch_size
from ccr.data.store import EmbedSummary, layout
from ccr.data.store.begun import prepared
from ccr.data.store.embedding import BATCHES_PER_CHUNK, Progress, summarise
from ccr.data.store.plan import check_same_files, check_same_plan, describe, make_plan
from ccr.data.store.shards import finish, remove_progress
from ccr.data.store.workers import Limits
from ccr.errors import CCRError
from ccr.places import AnyPath, as_place
from ccr.scale.assembly import Shape, write_shards
from ccr.scale.cluster import beside_driver, connected, in_words
from ccr.scale.contents import first_samples, hash_dataset, identities
from ccr.scale.crew import EncoderOfNode, Member, answers
from ccr.scale.parts import Task, load_part, make_part, part_path

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
    with connected(address) as ray, in_words(ray):
        contents = hash_dataset(ray, dataset, Limits(max_pixels, max_bytes))
        if not dataset.splits:
            dataset = split_dataset(dataset, val=val, test=test, seed=seed, contents=identities(dataset, contents))
        sizes = {"batch_size": checked_batch_size(batch_size), "shard_size": shard_size, "max_pixels": max_pixels}
        plan = make_plan(dataset, encoder, dtype=dtype, max_bytes=max_bytes, **sizes)
        if (folder / layout.DESCRIPTION).is_file():
            check_same_plan(folder, layout.read_json(folder / layout.DESCRIPTION).get("plan"), plan)
            check_same_files(folder, dataset, Limits(max_pixels, max_bytes))
            remove_progress(folder)
            return summarise(folder, strict, len(dataset), 0, started)
        with prepared(folder, plan):
            job = _Job(ray, folder, plan, dataset, encoder)
            facts = job.embed(contents, workers, strict, progress)
            totals = job.write_shards(facts)
            finish(folder, describe(dataset, encoder, plan, totals))
    resumed = sum(fact["samples"] for fact in facts if fact["resumed"])
    return summarise(folder, strict, resumed, len(dataset) - resumed, started)


class _Job:
    """What the tasks of one run share."""

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
            "desk": beside_driver(self.ray, Desk, self.dataset, contents, first_samples(contents), self.size),
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


class EmbedParts(Member):
    """Embeds the parts that it is given, each into a file."""

    def __init__(self, desk: Any, folder: str, plan: dict[str, Any], encoder: str, strict: bool, chunk: int) -> None:
        self.desk, self.folder, self.plan, self.strict, self.chunk = desk, as_place(folder), plan, strict, chunk
        limits = int(plan["max_pixels"]), int(plan["max_bytes"])
        self.encoder = EncoderOfNode(encoder, str(plan["encoder"]), int(plan["batch_size"]), limits)

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        check_seen(self.folder)
        path, encoder = part_path(self.folder, number), self.encoder.get()
        task: Task = ray.get(self.desk.task.remote(number))
        part = load_part(path, encoder.dimension, str(self.plan["dtype"]))
        resumed = part is not None and part.is_of(task)
        if part is None or not resumed:
            part = make_part(task, self.encoder.decoded(task.samples), encoder, self.plan, self.chunk)
            part.save(path)
        if self.strict and part.skipped:
            raise BadImage(f"{part.skipped[0]['path']!r} cannot be embedded: {part.skipped[0]['reason']}")
        return {**part.facts(), "samples": len(task.samples), "resumed": resumed}


def check_seen(folder: AnyPath) -> None:
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
