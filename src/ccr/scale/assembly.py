"""Assembly: the shards of a store, each put together by a task from the parts that its rows are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ccr.data.store.shards import Totals, refuse_empty, write_shard
from ccr.errors import UnreachableError
from ccr.places import AnyPath, as_place
from ccr.scale.contents import under_way
from ccr.scale.parts import Part, load_part, part_path


@dataclass(frozen=True)
class Shape:
    """Of parts: dimension and dtype of their rows, and samples of each."""

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
    found = []
    for part in range(int(np.searchsorted(starts, start, side="right")) - 1, len(starts) - 1):
        first, last = max(start, int(starts[part])), min(stop, int(starts[part + 1]))
        if first >= stop:
            break
        if first < last:
            found.append((part, first - int(starts[part]), last - int(starts[part])))
    return found


def write_rows(folder: str, number: int, wanted: Sequence[tuple[int, int, int]], shape: Shape) -> dict[str, Any]:
    """A task: write shard `number` of these rows (part, start, stop), open ones taken from the part that has their
    content first; its entry in `store.json`."""
    place = as_place(folder)

    @lru_cache(maxsize=64)
    def part(which: int) -> Part:
        found = load_part(part_path(place, which), shape.dimension, shape.dtype)
        if found is None:
            raise UnreachableError(f"part {which} of {folder} was damaged meanwhile: run the same command again")
        return found

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
