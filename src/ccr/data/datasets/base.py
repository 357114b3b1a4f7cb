"""Samples and data sets, and seeded, stratified splits in which copies and groups of images stay together."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
from PIL import Image

from ccr.data.datasets.sources import MAX_BYTES, MAX_PIXELS, BadImage, Sized, Source, content_hash, decode
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.io.remote import AnyPath
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import check_name, listed, visible

_SPLITS = {"train": "train training trainval", "val": "val valid validation dev", "test": "test testing"}
_SPLIT_NAMES = {word: split for split, words in _SPLITS.items() for word in words.split()}


@dataclass(frozen=True)
class Sample:
    """One image of a data set.

    Attributes
    ----------
    key : its name within the data set: a relative path, a row.
    source : what reads its content.
    label : the name of its class.
    split : train, val, test or a name that the data set uses.
    group : the object, person or place that it shows: images of one group stay in one split.
    """

    key: str
    source: Source
    label: str | None = None
    split: str | None = None
    group: str | None = None

    def image(self, *, max_pixels: int = MAX_PIXELS, max_bytes: int = MAX_BYTES) -> Image.Image:
        """The image as upright RGB; BadImage with the reason when it cannot be read or is over one of the limits."""
        return decode(self.source.read(max_bytes), max_pixels=max_pixels)


def shared(texts: Iterable[str | None]) -> np.ndarray:
    """The texts (m,), equal ones as one object: a row of few different texts takes 8 bytes."""
    known: dict[str | None, str | None] = {}
    return np.array([known.setdefault(text, text) for text in texts], dtype=object)


class Index(NamedTuple):
    """The images of a shard: their names, (m, 2) numbers that find each, and their labels, splits and groups."""

    names: list[str]
    where: np.ndarray
    labels: list[str | None]
    splits: list[str | None]
    groups: list[str | None]


@dataclass(frozen=True, eq=False)
class SampleTable(Sequence[Sample]):
    """Samples as columns, some 80 bytes for each, so that tens of millions fit into memory.

    Attributes
    ----------
    files : the shards.
    make : the source of an image from its shard and two numbers.
    keys : arrow array of texts (m,).
    where : (m, 3) int64: the shard's number and the two numbers.
    labels, splits, groups : texts (m,), None where a sample has none.
    """

    files: Sequence[AnyPath]
    make: Callable[[AnyPath, int, int], Source]
    keys: pa.Array
    where: np.ndarray
    labels: np.ndarray
    splits: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(
        cls, files: Sequence[AnyPath], make: Callable[[AnyPath, int, int], Source], indexes: Sequence[Index]
    ) -> SampleTable:
        """The images of shards, in their order."""
        numbers = np.repeat(np.arange(len(indexes)), [len(part.names) for part in indexes])
        where = np.concatenate([part.where.reshape(-1, 2) for part in indexes]).astype(np.int64)
        keys = pa.concat_arrays([pa.array(part.names, pa.large_string()) for part in indexes])
        columns = (
            shared(value for part in indexes for value in getattr(part, name))
            for name in ("labels", "splits", "groups")
        )
        return cls(files, make, keys, np.column_stack([numbers, where]), *columns)

    def __len__(self) -> int:
        return len(self.where)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleTable: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleTable:
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        file, first, second = (int(number) for number in self.where[index])
        key = self.keys[index if index >= 0 else index + len(self)].as_py()
        source = self.make(self.files[file], first, second)
        return Sample(key, source, self.labels[index], self.splits[index], self.groups[index])

    def take(self, rows: np.ndarray) -> SampleTable:
        """These samples, in this order."""
        columns = {name: getattr(self, name)[rows] for name in ("labels", "splits", "groups")}
        return replace(self, keys=self.keys.take(pa.array(rows, pa.int64())), where=self.where[rows], **columns)


@dataclass(frozen=True)
class Dataset:
    """Samples in a fixed order.

    Attributes
    ----------
    origin : the kind and path of the data set, from which `locate` finds its images again; JSON can hold it.
    samples : the images; of many shards a `SampleTable`, which makes samples as they are asked for.
    classes : the names of the classes, in the data set's order.
    """

    origin: Mapping[str, Any]
    samples: Sequence[Sample]
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    @property
    def splits(self) -> dict[str, int]:
        """How many samples each split has."""
        return _counts(self.column("split"))

    @property
    def label_counts(self) -> dict[str | None, int]:
        """How many samples each class has; under None, how many have no class."""
        labels = self.column("label")
        counts: dict[str | None, int] = {None: labels.count(None)}
        return counts | dict(_counts(labels))

    def select(self, split: str) -> Dataset:
        """The samples of one split, in the same order."""
        rows = [row for row, name in enumerate(self.column("split")) if name == split]
        if not rows:
            raise FormatError(f"the data set has no split {split!r}; it has {', '.join(self.splits) or 'none'}")
        if isinstance(self.samples, SampleTable):
            return replace(self, samples=self.samples.take(np.array(rows)))
        return replace(self, samples=tuple(self.samples[row] for row in rows))

    def column(self, name: str) -> list[str | None]:
        """The `label`, `split` or `group` of each sample."""
        if isinstance(self.samples, SampleTable):
            texts: list[str | None] = getattr(self.samples, f"{name}s").tolist()
            return texts
        return [getattr(sample, name) for sample in self.samples]

    def _with(self, name: str, values: Sequence[str | None]) -> Dataset:
        """The same samples with these splits or groups."""
        if isinstance(self.samples, SampleTable):
            column: dict[str, Any] = {f"{name}s": shared(values)}
            return replace(self, samples=replace(self.samples, **column))
        changes: list[dict[str, Any]] = [{name: value} for value in values]
        samples = (replace(sample, **change) for sample, change in zip(self.samples, changes, strict=True))
        return replace(self, samples=tuple(samples))


def _counts(texts: Iterable[str | None]) -> dict[str, int]:
    """Counts of the texts, in their order."""
    return dict(sorted(Counter(text for text in texts if text is not None).items()))


def make_dataset(origin: Mapping[str, Any], samples: Iterable[Sample], classes: Iterable[str] | None = None) -> Dataset:
    """A checked data set; classes are the sorted labels unless their order is known."""
    listed: Sequence[Sample] = samples if isinstance(samples, SampleTable) else tuple(samples)
    if not len(listed):
        raise FormatError(f"there are no images in {origin.get('path')}: give a folder, manifest or arrays with some")
    dataset = Dataset(dict(origin), listed)
    names = sorted({label for label in dataset.column("label") if label is not None})
    known = tuple(names if classes is None else classes)
    for name in {*names, *known}:
        check_name(name, "a class's name")
    return replace(dataset, classes=known)


def label_text(value: object) -> str | None:
    """A label as text: bytes are decoded, and spaces around it left out. None for a blank one, and for no number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text.strip() or None


def printable(name: str) -> str:
    """A name that any file can hold: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def split_name(name: str) -> str | None:
    """train, val or test for any of their usual spellings; None for other words."""
    return _SPLIT_NAMES.get(name.strip().lower())


def with_groups(dataset: Dataset, pattern: str) -> Dataset:
    """The same samples, each in the group that a regular expression finds in its key: what its parentheses hold, or
    else all that it matches. Samples that it does not match stay alone."""
    rule = "groups are a column of the data or a regular expression for the paths"
    try:
        find = re.compile(pattern).search
    except re.error as error:
        raise CCRError(f"{rule}, got {pattern!r}: {error}") from None
    samples = dataset.samples
    keys = samples.keys.to_pylist() if isinstance(samples, SampleTable) else [sample.key for sample in samples]
    names = [None if (match := find(key)) is None else "/".join(map(str, match.groups() or [match[0]])) for key in keys]
    if not any(names):
        raise CCRError(
            f"{rule}; {pattern!r} is no column, and it matches none of the paths, such as {keys[0]!r}: "
            "'([^/]+)_[0-9]+' finds what stands before _12.jpg"
        )
    return dataset._with("group", names)


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
    tell: OnProgress = no_progress,
) -> Dataset:
    """The same samples, each in `train`, `val` or `test`.

    Every class is divided alike; images with the same content, or of one group, are always in the same split, whatever
    their names and labels. Groups that are all larger than the test split of their class: the smallest is tested on.
    A class of one group is not tested, and a warning says so.

    Parameters
    ----------
    dataset : the samples; their own splits are not looked at.
    val, test : shares of each class, rounded to whole images, each in [0, 1) and their sum below 1; the rest is
        `train`, which keeps at least one image of every class.
    seed : which images those are.
    contents : a value for each sample, equal for equal contents, if they are known. None: what must be is read.
    max_bytes : larger files are not read: they equal no other.
    tell : called as they are read with (images seen, images in all, what is being done).
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise CCRError(f"val and test must be shares with a sum below 1, got {val} and {test}: try 0.1 and 0.2")
    known = _identities(dataset.samples, max_bytes, tell) if contents is None else contents
    together: dict[object, list[int]] = defaultdict(list)
    for row, identity_of_row in enumerate(joined(known, dataset.column("group"))):
        together[identity_of_row].append(row)
    labels, classes = dataset.column("label"), defaultdict[str, list[list[int]]](list)
    for group in together.values():
        classes[labels[group[0]] or ""].append(group)
    rng = np.random.default_rng(seed)
    names = ["train"] * len(dataset)
    grouped, untested = any(name is not None for name in dataset.column("group")), []
    for label, groups in sorted(classes.items()):
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
        if grouped and tested and free["test"] == tested:  # not a single group is as small as its share
            learned = [group for group in groups if names[group[0]] == "train"]
            spare = learned if len(learned) > 1 else [group for group in groups if names[group[0]] == "val"]
            for row in min(spare, key=len, default=()):
                names[row] = "test"
            untested += [label] if label and not spare else []
    if untested:
        shown = listed([visible(label) for label in untested], 5)
        warnings.warn(
            f"a class of one group has no test images, because groups are not divided: {shown}; give images of a "
            "second object, or a narrower group",
            CCRWarning,
            stacklevel=2,
        )
    return dataset._with("split", names)


def joined(contents: Sequence[object], groups: Sequence[str | None]) -> Sequence[object]:
    """A value for each row, equal for rows that equal contents or groups join, directly or by way of others."""
    if not any(group is not None for group in groups):
        return contents
    above = list(range(len(contents)))  # a forest: rows that are joined have the same root

    def root(row: int) -> int:
        while above[row] != row:
            above[row] = above[above[row]]
            row = above[row]
        return row

    first: dict[object, int] = {}
    for row, (content, group) in enumerate(zip(contents, groups, strict=True)):
        for key in [("content", content)] + ([] if group is None else [("group", group)]):
            above[root(row)] = root(first.setdefault(key, row))
    return [root(row) for row in range(len(contents))]


def _identities(samples: Sequence[Sample], max_bytes: int, tell: OnProgress) -> list[object]:
    """Values that are equal for equal contents; an image that cannot be read equals no other. A file whose size no
    other file has is not read."""
    sizes = [sample.source.size() if isinstance(sample.source, Sized) else None for sample in samples]
    count = Counter(sizes)
    identities: list[object] = []
    for sample, size in zip(samples, sizes, strict=True):
        known: object = ("alone", sample.key)
        if size is None or count[size] > 1:
            with suppress(BadImage):
                known = content_hash(sample.source.read(max_bytes))
        identities.append(known)
        if len(identities) % TOLD == 0:
            tell(len(identities), len(samples), "looking for copies")
    return identities
