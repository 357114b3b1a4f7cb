"""Seeded, stratified splits in which copies of one image stay together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccr.data.datasets.base import Dataset, Sample, SampleTable
from ccr.data.datasets.decode import BadImage, content_hash
from ccr.data.datasets.sources import Sized
from ccr.errors import CCRError


def split_dataset(
    dataset: Dataset,
    *,
    val: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    contents: Sequence[object] | None = None,
) -> Dataset:
    """The same samples, each in `train`, `val` or `test`.

    Every class is divided alike; images with the same content are always in the same split, whatever their names and
    labels.

    Parameters
    ----------
    dataset : Dataset
        The samples; their own splits are not looked at.
    val, test : float
        Shares of each class, never more, each in [0, 1) and their sum below 1; the rest is `train`.
    seed : int
        Which images those are.
    contents : sequence, optional
        A value for each sample, equal for equal contents, if they are known. None: what must be is read.
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise CCRError(f"val and test must be shares with a sum below 1, got {val} and {test}: try 0.1 and 0.2")
    rng = np.random.default_rng(seed)
    names = ["train"] * len(dataset)
    for groups in _by_class(dataset.samples, contents):
        total = sum(map(len, groups))
        free = {"test": round(test * total), "val": round(val * total)}
        for position in rng.permutation(len(groups)):
            group = groups[position]
            for name in free:
                if len(group) <= free[name]:
                    free[name] -= len(group)
                    for row in group:
                        names[row] = name
                    break
    if isinstance(dataset.samples, SampleTable):
        return replace(dataset, samples=dataset.samples.with_splits(names))
    samples = tuple(replace(sample, split=name) for sample, name in zip(dataset.samples, names, strict=True))
    return replace(dataset, samples=samples)


def _by_class(samples: Sequence[Sample], contents: Sequence[object] | None) -> list[list[list[int]]]:
    """For each label, in order of its name, the groups of rows with one content; a group has its first row's label."""
    classes: dict[str, list[list[int]]] = defaultdict(list)
    for group in _by_content(_identities(samples) if contents is None else contents):
        classes[samples[group[0]].label or ""].append(group)
    return [classes[label] for label in sorted(classes)]


def _by_content(contents: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for row, identity in enumerate(contents):
        groups[identity].append(row)
    return list(groups.values())


def _identities(samples: Sequence[Sample]) -> list[object]:
    """Values that are equal for equal contents. A file whose size no other file has is not read."""
    sizes = [sample.source.size() if isinstance(sample.source, Sized) else None for sample in samples]
    count: dict[int | None, int] = defaultdict(int)
    for size in sizes:
        count[size] += 1
    return [
        identity(sample) if size is None or count[size] > 1 else sample.key
        for sample, size in zip(samples, sizes, strict=True)
    ]


def identity(sample: Sample) -> object:
    """A value that is equal for equal contents; an image that cannot be read equals no other."""
    try:
        return content_hash(sample.source.read())
    except BadImage:
        return ("unreadable", sample.key)
