"""The paper's five data sets as they are published, with their official splits.

`ccr.data.datasets.open` finds `KINDS`, `recognise` and `locate` through the entry point group `ccr.datasets`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ccr.data.datasets.base import Dataset
from ccr.data.datasets.files import locate_in_folder
from ccr.data.datasets.sources import Source
from ccr.errors import CCRError
from ccr_lab.published import imagenet
from ccr_lab.published.cifar import (
    CIFAR10,
    CIFAR100,
    NPM,
    is_npm,
    locate_in_npm,
    locate_record,
    open_binary,
    open_cifar10_any,
    open_npm,
    refuse_pickles,
)
from ccr_lab.published.listing import CUB, CUB_FOLDER, PLACES, find_cub, find_places, find_root, open_cub, open_places

PUBLISHED = ("cifar10", "cifar100", "cub", "imagenet", "places365")
#: Name of the origin of such a data set in a store.
KINDS = (NPM, CIFAR10.kind, CIFAR100.kind, CUB, imagenet.KIND, PLACES)


class PublishedSize(NamedTuple):
    """How many images and classes a complete data set has."""

    train: int
    test: int
    classes: int


PUBLISHED_SIZES = {
    "cifar10": PublishedSize(50_000, 10_000, 10),
    "cifar100": PublishedSize(50_000, 10_000, 100),
    "cub": PublishedSize(5_994, 5_794, 200),
    "imagenet": PublishedSize(1_281_167, 50_000, 1_000),
    "places365": PublishedSize(1_803_460, 36_500, 365),
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
        return open_cub(path)
    return imagenet.open_imagenet(path) if name == "imagenet" else open_places(path)


def recognise(folder: Path) -> Dataset | None:
    """The CIFAR or CUB data set that is `folder`, or the only folder in it; None for other folders."""
    for unpacked in (folder, folder / "package"):  # npm unpacks into `package`
        if is_npm(unpacked):
            return open_npm(unpacked)
    for layout in (CIFAR10, CIFAR100):
        if find_root(folder, (), layout.required):
            return open_binary(folder, layout)
        if folder.name == layout.pickled_folder:
            refuse_pickles(folder, layout)
    if find_cub(folder) == folder:
        return open_cub(folder)
    names = {CIFAR10.folder, CIFAR100.folder, CUB_FOLDER, CIFAR10.pickled_folder, CIFAR100.pickled_folder}
    try:
        with os.scandir(folder) as entries:
            inner = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return None
    return recognise(folder / inner[0]) if len(inner) == 1 and inner[0] in names else None


def locate(kind: str, folder: Path, key: str) -> Source:
    """The place of the image `key`. `folder` may be given as for `open_published`."""
    if kind == NPM:
        return locate_in_npm(folder, key)
    for layout in (CIFAR10, CIFAR100):
        if kind == layout.kind:
            return locate_record(folder, key, layout)
    if kind == CUB:
        return locate_in_folder(find_cub(folder) or folder, key)
    if kind == imagenet.KIND:
        return locate_in_folder(imagenet.find_imagenet(folder) or folder, key)
    return locate_in_folder(find_places(folder), key)


__all__ = ["KINDS", "PUBLISHED", "PUBLISHED_SIZES", "PublishedSize", "locate", "open_published", "recognise"]
