"""The paper's five data sets as they are published, with their official splits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ccr.data.datasets.base import Dataset
from ccr.data.datasets.files import locate_in_folder
from ccr.data.datasets.published import cub, imagenet, places
from ccr.data.datasets.published.cifar import (
    CIFAR10,
    CIFAR100,
    locate_record,
    open_binary,
    open_cifar10_any,
    refuse_pickles,
)
from ccr.data.datasets.published.listing import find_root
from ccr.data.datasets.sources import Source
from ccr.errors import CCRError

PUBLISHED = ("cifar10", "cifar100", "cub", "imagenet", "places365")
PUBLISHED_KINDS = (CIFAR10.kind, CIFAR100.kind, cub.KIND, imagenet.KIND, places.KIND)


class Size(NamedTuple):
    """How many images and classes a complete data set has."""

    train: int
    test: int
    classes: int


PUBLISHED_SIZES = {
    "cifar10": Size(50_000, 10_000, 10),
    "cifar100": Size(50_000, 10_000, 100),
    "cub": Size(5_994, 5_794, 200),
    "imagenet": Size(1_281_167, 50_000, 1_000),
    "places365": Size(1_803_460, 36_500, 365),
}


def open_published(name: str, folder: str | Path) -> Dataset:
    """One of the paper's data sets. No image is read.

    The splits are `train` and `test`, the official ones; there is no `val`. The labels of the test images of ImageNet
    and Places365 are not public: like the paper, `test` is their official validation set. A part of a data set (fewer
    classes or images, but lists and images that agree) opens too: PUBLISHED_SIZES has the sizes of complete ones.

    Parameters
    ----------
    name : {"cifar10", "cifar100", "cub", "imagenet", "places365"}
        Which data set.
    folder : str or Path
        Where its archive was unpacked, or the archive's own folder there.
    """
    if name not in PUBLISHED:
        raise CCRError(f"a published data set is one of {', '.join(PUBLISHED)}; got {name!r}")
    path = Path(folder)
    if not path.is_dir():
        raise CCRError(f"there is no folder {path}: give the one into which {name} was unpacked")
    if name == "cifar10":
        return open_cifar10_any(path)
    if name == "cifar100":
        return open_binary(path, CIFAR100)
    if name == "cub":
        return cub.open_cub(path)
    return imagenet.open_imagenet(path) if name == "imagenet" else places.open_places(path)


def recognise(folder: Path) -> Dataset | None:
    """The binary CIFAR or CUB data set that is `folder`, or the only folder in it; None for other folders."""
    for layout in (CIFAR10, CIFAR100):
        if find_root(folder, (), layout.required):
            return open_binary(folder, layout)
        if folder.name == layout.pickled_folder:
            refuse_pickles(folder, layout)
    if cub.find_cub(folder) == folder:
        return cub.open_cub(folder)
    names = {CIFAR10.folder, CIFAR100.folder, cub.FOLDER, CIFAR10.pickled_folder, CIFAR100.pickled_folder}
    try:
        with os.scandir(folder) as entries:
            inner = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return None
    return recognise(folder / inner[0]) if len(inner) == 1 and inner[0] in names else None


def locate_published(kind: str, folder: Path, key: str) -> Source:
    """Where the image `key` lies. `folder` may be given as for `open_published`."""
    for layout in (CIFAR10, CIFAR100):
        if kind == layout.kind:
            return locate_record(folder, key, layout)
    if kind == cub.KIND:
        return locate_in_folder(cub.find_cub(folder) or folder, key)
    if kind == imagenet.KIND:
        return locate_in_folder(imagenet.find_imagenet(folder) or folder, key)
    return locate_in_folder(places.find_places(folder), key)


__all__ = [
    "PUBLISHED",
    "PUBLISHED_KINDS",
    "PUBLISHED_SIZES",
    "Size",
    "locate_published",
    "open_published",
    "recognise",
]
