"""`predict`: photos, or the rows of a store, through a cluster into a file of predictions, the same to the byte as
`predict_photos` and `predict_store` write.

One chunk a task: workers answer with its predictions, and this process, which alone writes, keeps them as they come, in
any order. So no node but this one must see the file. What is kept is what a run on one machine keeps, and either goes
on where the other was stopped.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, Sample
from ccr.data.datasets.sources import FileImage
from ccr.data.store.workers import Decoded, Limits, decode_sample
from ccr.encoders import Encoder, load_encoder
from ccr.errors import CCRError, UnreachableError
from ccr.photos.run import Prediction, PredictSummary, Run, photos_run, predict_rows, predict_samples, store_run
from ccr.scale.cluster import ItemActor, connected, driver_actor, task_errors, workers_of
from ccr.utils.processes import OnProgress, no_progress

# A pool of actors of `ray.data`, each with an encoder of its own, that answer numbered tasks in JSON.
#: Images that an encoder's threads decode ahead, in batches.
DECODED_AHEAD = 2
#: More tasks than this are handed out several at a time.
MOST_BLOCKS = 10_000


class Member(ABC):
    """One actor of a pool: `answer(number)` does a task, the rest is alike for all."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"answer": [json.dumps(self._answer_of(int(number))) for number in batch["task"]]}

    @abstractmethod
    def answer(self, number: int) -> dict[str, Any]:
        """Do a task; what the driver must know of it, as JSON can hold it."""

    def _answer_of(self, number: int) -> dict[str, Any]:
        try:
            return {"task": number, **self.answer(number)}
        except CCRError as error:  # ray.data would wrap it, and lose its class on the way
            return {"task": number, "error": str(error), "again": isinstance(error, UnreachableError)}


class EncoderOfNode:
    """The encoder of one process of the cluster: the same weights as the driver's, loaded when first asked for."""

    def __init__(self, spec: str, fingerprint: str, batch_size: int, limits: tuple[int, int]) -> None:
        self.spec, self.fingerprint, self.batch_size, self.limits = spec, fingerprint, batch_size, Limits(*limits)
        self._loaded: Encoder | None = None

    def get(self) -> Encoder:
        if self._loaded is None:
            loaded = load_encoder(self.spec, batch_size=self.batch_size)
            if loaded.fingerprint != self.fingerprint:
                raise CCRError(
                    f"a node's encoder {self.spec} is {loaded.fingerprint}, not {self.fingerprint}: give all nodes "
                    "the same weights"
                )
            self._loaded = loaded
        return self._loaded

    def decoded(self, samples: Sequence[Sample]) -> Iterator[Decoded]:
        """Samples decoded by threads, a few batches ahead of the encoder and no more."""
        ahead, crop = DECODED_AHEAD * self.batch_size, self.get().crop

        def decode(sample: Sample) -> Decoded:
            return decode_sample(sample, crop=crop, limits=self.limits)

        with ThreadPoolExecutor(2) as pool:
            for start in range(0, len(samples), ahead):
                yield from pool.map(decode, samples[start : start + ahead])


def answers(
    ray: Any, member: type[Member], tasks: Sequence[int], workers: int | None, arguments: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The answers to tasks, each as it comes, by a pool of members made with these arguments. A task that a lost worker
    or node had is given to another; an error in words is raised as it was."""
    if not tasks:
        return
    import ray.data as data

    _quiet(data)
    count, gpus = workers_of(ray, workers)
    blocks = min(len(tasks), MOST_BLOCKS)
    members = min(count, blocks)
    listed = data.from_items([{"task": task} for task in tasks], override_num_blocks=blocks)
    rows = listed.map_batches(
        member,
        batch_size=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=members, initial_size=members),
        num_gpus=1 if gpus else 0,
        num_cpus=None if gpus else 1,
        fn_constructor_kwargs=arguments,
    )
    for row in rows.iter_rows():
        answer = json.loads(row["answer"])
        if "error" in answer:
            raise (UnreachableError if answer["again"] else CCRError)(answer["error"])
        yield answer


def _quiet(data: Any) -> None:
    """Turn off ray.data's own bars and tables: progress is the caller's."""
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def predict(
    model: Any,
    samples: Sequence[Sample],
    encoder: Encoder,
    out: str | Path,
    *,
    address: str = "auto",
    workers: int | None = None,
    explain: int = 5,
    batch_size: int = 32,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    tell: OnProgress = no_progress,
) -> PredictSummary:
    """Predict every photo into the file `out` on a Ray cluster; go on where an earlier run was stopped.

    As `ccr.photos.run.predict_photos`, and the file has the same bytes, whatever was killed on the way.

    Parameters
    ----------
    model : a `ConceptModel`.
    samples : the photos, as `open_photos` gives them; all nodes must see them.
    encoder : the model's encoder; every worker loads the same by its name.
    out : a .csv, .parquet or .jsonl file of this machine.
    address : the cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    workers : encoders at work at once. None: one for each GPU, or else for each core, of the cluster.
    explain, batch_size, max_pixels, max_bytes, tell : as of `predict_photos`.
    """
    limits = Limits(max_pixels, max_bytes)
    run = photos_run(model, samples, encoder, out, explain=explain, batch_size=batch_size, limits=limits, tell=tell)
    arguments = {"encoder": encoder.name, "fingerprint": encoder.fingerprint, "batch_size": batch_size}
    arguments |= {"limits": tuple(limits), "explain": explain}
    return _written(run, model, list(map(_from_anywhere, samples)), PredictPhotos, arguments, address, workers)


def predict_store(
    model: Any,
    store: Any,
    out: str | Path,
    *,
    address: str = "auto",
    workers: int | None = None,
    explain: int = 5,
    tell: OnProgress = no_progress,
) -> PredictSummary:
    """The same of photos whose embeddings are in a store, which all nodes must see."""
    run, paths = store_run(model, store, out, explain=explain, tell=tell)
    arguments = {"store": store, "size": run.size, "explain": explain}
    return _written(run, model, paths, PredictRows, arguments, address, workers)


def _written(
    run: Run,
    model: Any,
    items: Sequence[Any],
    member: type[Member],
    arguments: dict[str, Any],
    address: str,
    workers: int | None,
) -> PredictSummary:
    """Write the run's file, its chunks of items predicted by members of a pool."""
    with connected(address) as ray, task_errors(ray):

        def make(numbers: Sequence[int]) -> Iterator[tuple[int, list[Prediction]]]:
            if numbers:
                own = {"actor": driver_actor(ray, ItemActor, items, run.size), "model": ray.put(model), **arguments}
                yield from _predictions(answers(ray, member, numbers, workers, own), run)

        return run.write(make)


def _predictions(rows: Iterator[dict[str, Any]], run: Run) -> Iterator[tuple[int, list[Prediction]]]:
    for answer in rows:
        items = [Prediction.from_dict(values) for values in answer["predictions"]]
        number = answer["task"]
        if len(items) != run.length(number):
            raise CCRError(f"chunk {number} came back with {len(items)} photos, not {run.length(number)}: run again")
        yield number, items


def _from_anywhere(sample: Sample) -> Sample:
    """The sample, found also by a process that works in another folder."""
    source = sample.source
    return replace(sample, source=FileImage(source.path.absolute())) if isinstance(source, FileImage) else sample


class PredictPhotos(Member):
    """Predicts the photos of chunks."""

    def __init__(
        self,
        actor: Any,
        model: Any,
        encoder: str,
        fingerprint: str,
        batch_size: int,
        limits: tuple[int, int],
        explain: int,
    ) -> None:
        import ray

        self.actor, self.model, self.explain, self.batch_size = actor, ray.get(model), explain, batch_size
        self.encoder = EncoderOfNode(encoder, fingerprint, batch_size, limits)

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        samples: list[Sample] = ray.get(self.actor.chunk.remote(number))
        encoder, decoded = self.encoder.get(), self.encoder.decoded(samples)
        predictions = predict_samples(
            self.model, encoder, samples, decoded, explain=self.explain, batch_size=self.batch_size
        )
        return {"predictions": [item.to_dict() for item in predictions]}


class PredictRows(Member):
    """Predicts the rows of chunks of a store."""

    def __init__(self, actor: Any, model: Any, store: Any, size: int, explain: int) -> None:
        import ray

        self.actor, self.model, self.store, self.size, self.explain = actor, ray.get(model), store, size, explain

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        names: list[str] = ray.get(self.actor.chunk.remote(number))
        start = number * self.size
        rows = np.asarray(self.store[start : start + len(names)])
        return {"predictions": [item.to_dict() for item in predict_rows(self.model, rows, names, explain=self.explain)]}
