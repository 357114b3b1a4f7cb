"""Contents: the hash of every image of a data set, found by tasks all over a cluster, so that copies are known before
any image is embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ccr.data.datasets import Dataset, Sample, content_hash
from ccr.data.store.workers import Limits
from ccr.errors import UnreachableError

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
    """What tells contents apart for `split_dataset`; a sample that cannot be read is like no other."""
    return [
        content.decode() if content else ("unreadable", dataset.samples[row].key)
        for row, content in enumerate(contents.tolist())
    ]


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
