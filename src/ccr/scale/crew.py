"""A crew: actors of `ray.data`, each with an encoder of its own, that answer numbered tasks in JSON."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ccr.data.datasets import Sample
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.store.workers import Decoded, Limits, decode_sample
from ccr.errors import CCRError, UnreachableError
from ccr.scale.cluster import workers_of

#: Images that an encoder's threads decode ahead, in batches.
DECODED_AHEAD = 2
#: More tasks than this are handed out several at a time.
MOST_BLOCKS = 10_000


class Member(ABC):
    """One of a crew: `answer(number)` does a task, the rest is alike for all."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"answer": [json.dumps(self._in_words(int(number))) for number in batch["task"]]}

    @abstractmethod
    def answer(self, number: int) -> dict[str, Any]:
        """Do a task; what the driver must know of it, as JSON can hold it."""

    def _in_words(self, number: int) -> dict[str, Any]:
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
    """The answers to tasks, each as it comes, by a crew of members made with these arguments. A task that a lost worker
    or node had is given to another; an error in words is raised as it was."""
    if not tasks:
        return
    import ray.data as data

    _quiet(data)
    count, gpus = workers_of(ray, workers)
    blocks = min(len(tasks), MOST_BLOCKS)
    members = min(count, blocks)
    listed = data.from_items([{"task": task} for task in tasks], override_num_blocks=blocks)
    told = listed.map_batches(
        member,
        batch_size=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=members, initial_size=members),
        num_gpus=1 if gpus else 0,
        num_cpus=None if gpus else 1,
        fn_constructor_kwargs=arguments,
    )
    for row in told.iter_rows():
        answer = json.loads(row["answer"])
        if "error" in answer:
            raise (UnreachableError if answer["again"] else CCRError)(answer["error"])
        yield answer


def _quiet(data: Any) -> None:
    """No bars and tables of ray.data's own: progress is the caller's."""
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
