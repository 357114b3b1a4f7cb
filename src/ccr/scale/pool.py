"""The fits of a sweep or a comparison as tasks of a Ray cluster, one fit a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ccr.errors import CCRError
from ccr.models.pool import Done


class RayPool:
    """A `ccr.models.pool.Pool`: `cpus` cores, and so threads, for each task.

    A task whose worker or node is lost is run again. `ray` is what `connected` gives.
    """

    def __init__(self, ray: Any, cpus: int = 1) -> None:
        self.ray, self.cpus = ray, cpus

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[Done]:
        """`work(shared, item)` of all items, each as it is done; what is shared is sent once."""
        task = self.ray.remote(num_cpus=self.cpus, max_retries=-1)(_answer)
        sent = self.ray.put(shared)
        waiting = {task.remote(work, sent, item, number, self.cpus): number for number, item in enumerate(items)}
        while waiting:
            ready, _ = self.ray.wait(list(waiting), num_returns=1)
            for one in ready:
                del waiting[one]
                yield self.ray.get(one)


def _answer(work: Callable[[Any, Any], Any], shared: Any, item: Any, number: int, threads: int) -> Done:
    import torch

    torch.set_num_threads(threads)
    try:
        return Done(number, work(shared, item))
    except Exception as error:  # one fit must not lose the others' results
        refused = isinstance(error, CCRError)
        return Done(number, reason=str(error) if refused else f"{type(error).__name__}: {error}", refused=refused)
