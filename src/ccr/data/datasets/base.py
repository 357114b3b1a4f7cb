"""Samples and data sets: what is to be embedded, in a fixed order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from ccr.data.datasets.decode import MAX_BYTES, MAX_PIXELS, decode
from ccr.data.datasets.sources import Source
from ccr.errors import FormatError
from ccr.texts import check_name

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class Sample:
    """One image of a data set.

    Attributes
    ----------
    key : str
        Its name within the data set: a relative path, a row.
    source : Source
        What reads its content.
    label : str, optional
        The name of its class.
    split : str, optional
        train, val, test or a name that the data set uses.
    """

    key: str
    source: Source
    label: str | None = None
    split: str | None = None

    def image(self, *, max_pixels: int = MAX_PIXELS, max_bytes: int = MAX_BYTES) -> Image.Image:
        """The image as upright RGB; BadImage with the reason when it cannot be read or is over one of the limits."""
        return decode(self.source.read(max_bytes), max_pixels=max_pixels)


@dataclass(frozen=True)
class Dataset:
    """Samples in a fixed order.

    Attributes
    ----------
    origin : mapping
        The kind and path of the data set, from which `locate` finds its images again; JSON can hold it.
    samples : tuple of Sample
        The images.
    classes : tuple of str
        The names of the classes, in the data set's order.
    """

    origin: Mapping[str, Any]
    samples: tuple[Sample, ...]
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    @property
    def splits(self) -> dict[str, int]:
        """How many samples each split has."""
        return dict(sorted(Counter(sample.split for sample in self.samples if sample.split).items()))

    def select(self, split: str) -> Dataset:
        """The samples of one split, in the same order."""
        chosen = tuple(sample for sample in self.samples if sample.split == split)
        if not chosen:
            raise FormatError(f"the data set has no split {split!r}; it has {', '.join(self.splits) or 'none'}")
        return replace(self, samples=chosen)


def make_dataset(origin: Mapping[str, Any], samples: Iterable[Sample], classes: Iterable[str] | None = None) -> Dataset:
    """A checked data set; classes are the sorted labels unless their order is known."""
    listed = tuple(samples)
    if not listed:
        raise FormatError(f"there are no images in {origin.get('path')}: give a folder, manifest or arrays with some")
    names = sorted({sample.label for sample in listed if sample.label is not None})
    known = tuple(names if classes is None else classes)
    for name in {*names, *known}:
        check_name(name, "a class's name")
    return Dataset(dict(origin), listed, known)


def split_name(name: str) -> str | None:
    """train, val or test for any of their usual spellings; None for other words."""
    return _SPLIT_NAMES.get(name.strip().lower())
