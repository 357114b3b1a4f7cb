"""Seeded, stratified splits in which copies of one image stay together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccr.data.datasets.base import Dataset, Sample, SampleTable
from ccr.data.datasets.decode import MAX_BYTES, BadImage, content_hash
from ccr.data.datasets.sources import Sized
from ccr.errors import CCRError
from ccr.progress import Tell, no_progress

#: Images between two steps of a progress bar.
TOLD = 256


def split_dataset(
    dataset: Dataset,
    *,
    val: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    contents: Sequence[object] | None = None,
    max_bytes: int = MAX_BYTES,
    tell: Tell = no_progress,
) -> Dataset:
    """The same samples, each in `train`, `val` or `test`.

    Every class is divided alike; images with the same content are always in the same split, whatever their names and
    labels.

    Parameters
    ----------
    dataset : Dataset
        The samples; their own splits are not looked at.
    val, test : float
        Shares of each class, rounded to whole images, each in [0, 1) and their sum below 1; the rest is `train`, which
        keeps at least one image of every class.
    seed : int
        Which images those are.
    contents : sequence, optional
        A value for each sample, equal for equal contents, if they are known. None: what must be is read.
    max_bytes : int
        Larger files are not read: they equal no other.
    tell : callable
        Called as they are read with (images seen, images in all, what is being done).
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise CCRError(f"val and test must be shares with a sum below 1, got {val} and {test}: try 0.1 and 0.2")
    known = _identities(dataset.samples, max_bytes, tell) if contents is None else contents
    rng = np.random.default_rng(seed)
    names = ["train"] * len(dataset)
    for groups in _by_class(dataset.samples, known):
        total = sum(map(len, groups))
        tested = min(round(test * total), total - 1)
        free = {"test": tested, "val": min(round(val * total), total - 1 - tested)}
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


def _by_class(samples: Sequence[Sample], contents: Sequence[object]) -> list[list[list[int]]]:
    """For each label, in order of its name, the groups of rows with one content; a group has its first row's label."""
    classes: dict[str, list[list[int]]] = defaultdict(list)
    for group in _by_content(contents):
        classes[samples[group[0]].label or ""].append(group)
    return [classes[label] for label in sorted(classes)]


def _by_content(contents: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for row, identity in enumerate(contents):
        groups[identity].append(row)
    return list(groups.values())


def _identities(samples: Sequence[Sample], max_bytes: int, tell: Tell) -> list[object]:
    """Values that are equal for equal contents. A file whose size no other file has is not read."""
    sizes = [sample.source.size() if isinstance(sample.source, Sized) else None for sample in samples]
    count: dict[int | None, int] = defaultdict(int)
    for size in sizes:
        count[size] += 1
    found: list[object] = []
    for sample, size in zip(samples, sizes, strict=True):
        found.append(identity(sample, max_bytes) if size is None or count[size] > 1 else sample.key)
        if len(found) % TOLD == 0:
            tell(len(found), len(samples), "looking for copies")
    return found


def identity(sample: Sample, max_bytes: int = MAX_BYTES) -> object:
    """A value that is equal for equal contents; an image that cannot be read equals no other."""
    try:
        return content_hash(sample.source.read(max_bytes))
    except BadImage:
        return ("unreadable", sample.key)
