"""Images in files of their own: folders, manifests (tables of paths), and arrays; names of many files in one."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ccr.data.datasets.base import Dataset, Sample, label_text, make_dataset, split_name
from ccr.data.datasets.sources import ArrayImage, FileImage, ObjectImage, Source, open_parquet
from ccr.errors import CCRError, FormatError
from ccr.io.files import format_errors, map_array, open_regular
from ccr.io.remote import AnyPath, Place, as_place

# Names of many files in one: `shards/{00000..00099}.tar`, as WebDataset writes them.
#: More files than this are a slip of the pen.
MOST = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_WORDS = re.compile(r"[-_./]")


def is_pattern(text: object) -> bool:
    """Whether the name has braces for several files."""
    return _BRACES.search(str(text)) is not None


def expand(text: str) -> list[str]:
    """The names that a pattern stands for: `{00..11}` are numbers, as wide as the first, `{a,b}` words."""
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    count = _RANGE.fullmatch(braces[1])
    if count is None:
        words = braces[1].split(",")
        if len(words) < 2:
            raise CCRError(f"braces hold a range or words, such as {{00000..00099}} or {{train,val}}, got {braces[0]}")
    else:
        first, last = int(count[1]), int(count[2])
        if not first <= last < first + MOST:
            raise CCRError(f"a range of files goes up, by less than {MOST:,}, got {braces[0]}")
        words = [str(number).zfill(len(count[1])) for number in range(first, last + 1)]
    rest = expand(text[braces.end() :])
    if len(words) * len(rest) > MOST:
        raise CCRError(f"a pattern stands for at most {MOST:,} files, got more: {text}")
    return [text[: braces.start()] + word + tail for word in words for tail in rest]


class Shards:
    """Files that together are a data set: those of a pattern, of a folder, or one alone; `root` is their folder."""

    def __init__(self, root: AnyPath, names: list[str]) -> None:
        self.root, self.names = root, names

    @property
    def files(self) -> list[AnyPath]:
        return [self.root / name for name in self.names]

    @classmethod
    def of_pattern(cls, text: str) -> Shards:
        """Shards named by a brace pattern such as `{000..009}.tar`; each must exist when it is read."""
        before, _, _ = text.partition("{")
        head, slash, _ = before.rpartition("/")
        start = head + slash
        root = as_place(head) if head else Path("/" if slash else ".")
        return cls(root.resolve(), [name[len(start) :] for name in expand(text)])

    @classmethod
    def of_folder(cls, folder: AnyPath, suffix: str) -> Shards:
        """Files with this suffix directly in a folder, or in folders that are called as splits."""
        if isinstance(folder, Place):
            names = [entry.name for entry in folder.list()]
        else:
            below = [path for path in (*folder.glob("*.*"), *folder.glob("*/*.*")) if path.suffix.lower() == suffix]
            names = sorted(path.relative_to(folder).as_posix() for path in below if path.is_file())
        return cls(folder.resolve(), [name for name in names if name.lower().endswith(suffix) and _is_plain(name)])

    @classmethod
    def file_of(cls, origin: str, name: str, suffix: str) -> AnyPath:
        """The shard of this name of a data set that was opened as `origin`; never one outside of its folder."""
        root = as_place(origin)
        if origin.lower().endswith(suffix):
            root = cls.of_pattern(origin).root if "{" in origin else root.parent
        return below(root, name) if isinstance(root, Place) else inside(root, name)


def split_of_name(name: str) -> str | None:
    """The split that a shard's name says: `train/00000.tar`, `imagenet-val-000123.tar`."""
    words = {split_name(word) for word in _WORDS.split(name)} - {None}
    return words.pop() if len(words) == 1 else None


def _is_plain(name: str) -> bool:
    folders = name.split("/")[:-1]
    return not folders or (len(folders) == 1 and split_name(folders[0]) is not None)


# Image folders: `split/class/image`, `class/image`, `split/image`, or images alone.
# fmt: off
IMAGE_SUFFIXES = frozenset([
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
    ".avif", ".jp2", ".ico",
])
# fmt: on


#: Pictures of cameras, phones and drawing programs in formats that are not read here.
UNREAD_SUFFIXES = frozenset(
    [".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".svg", ".psd", ".jxl"]
)


def unread_pictures(path: Path) -> dict[str, int]:
    """How many files below a folder are pictures in formats that are not read, by their ending."""
    endings = (
        os.path.splitext(name)[1].lower() for _, _, names in os.walk(path) for name in names if not name.startswith(".")
    )
    return dict(Counter(ending for ending in endings if ending in UNREAD_SUFFIXES))


def image_sources(root: AnyPath) -> dict[str, Source]:
    """The images below a folder or a URL by their names, in order. Hidden files and other kinds of files are left out;
    links are followed."""
    if not isinstance(root, Place):
        return {key: FileImage(root / key) for key in sorted(_image_keys(root))}
    listed = [entry for entry in root.list() if not any(part.startswith(".") for part in entry.name.split("/"))]
    return {name: ObjectImage(root / name, size) for name, size in listed if _is_image(name)}


def open_folder(root: AnyPath, sources: Mapping[str, Source], *, labelled: bool = True) -> Dataset:
    """The images below `root`, which are `sources`.

    The first folder name is the split when every folder at the top is called train, val, test or the like;
    the next one is the class. Splits beside another folder are refused, unless labels do not matter (`labelled`).
    """
    if not sources and isinstance(root, Path) and (unread := unread_pictures(root)):
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in sorted(unread.items()))
        raise FormatError(
            f"the pictures in {root} are of kinds that are not read ({kinds}): convert them to JPEG or PNG"
        )
    folders = {PurePosixPath(key).parts[:-1] for key in sources if "/" in key}
    has_splits = bool(folders) and all(split_name(parts[0]) for parts in folders)
    if labelled and not has_splits:
        refuse_some_splits(folders, str(root))
    samples = (_sample(key, source, has_splits) for key, source in sources.items())
    return make_dataset({"kind": "folder", "path": str(root)}, samples)


def refuse_some_splits(folders: Set[tuple[str, ...]], path: str) -> None:
    """An error when splits lie beside another folder: two of them, or one with folders of classes in it. A class may
    well be called test."""
    splits = sorted({parts[0] for parts in folders if split_name(parts[0])})
    odd = sorted({parts[0] for parts in folders} - set(splits))
    nested = any(len(parts) > 1 for parts in folders if parts[0] in splits)
    if len({split_name(name) for name in splits}) > 1 or nested:
        raise FormatError(
            f"either every folder at the top of {path} is a split (train, val, test) or none; {', '.join(splits)} are "
            f"splits and {odd[0]!r} is not: move {odd[0]!r} elsewhere, or rename the others if they are classes"
        )


def locate_in_folder(root: Path, key: str) -> FileImage:
    """The file of a key, which always lies below `root`."""
    return FileImage(inside(root, key))


def inside(root: Path, name: str) -> Path:
    """`root / name`; an error if that is not below `root`. Links are not followed: their maker may point
    anywhere, a name may not.
    """
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, name))
    if os.path.commonpath([base, path]) != base:
        raise FormatError(f"{name!r} lies outside {base}")
    return Path(path)


def below(root: Place, name: str) -> Place:
    """`root / name` for a relative name that stays below `root`."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise FormatError(f"{name!r} lies outside {root}")
    return root / name


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _image_keys(root: Path) -> Iterator[str]:
    """Images below `root`, links followed unless they lead back to a folder above."""
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        parent, above = waiting.pop()
        folder = root / parent
        try:
            status = folder.stat()
            with os.scandir(folder) as entries:
                listed = [(entry.name, _is_folder(entry)) for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            raise FormatError(
                f"{error.filename or folder} cannot be read ({error.strerror}): allow reading it, or move it elsewhere"
            ) from error
        here = (status.st_dev, status.st_ino)
        if here not in above:
            waiting += [(f"{parent}{name}/", above | {here}) for name, is_folder in listed
                        if is_folder and name != "lost+found"]  # fmt: skip
            yield from (parent + name for name, is_folder in listed if not is_folder and _is_image(name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return False
        raise


def _sample(key: str, source: Source, has_splits: bool) -> Sample:
    folders = list(PurePosixPath(key).parts[:-1])
    split = split_name(folders.pop(0)) if has_splits and folders else None
    return Sample(key, source, label_text(folders[0]) if folders else None, split)


# Manifests: a CSV or Parquet table with a row for each image: path, label, split.
_PATH_COLUMNS = ("path", "image_path", "file", "filename", "file_name", "image")
_LABEL_COLUMNS = ("label", "class", "target")
_SPLIT_COLUMNS = ("split",)


def open_manifest(
    path: AnyPath, *, allow_outside: bool = False, label_column: str | None = None, group_column: str | None = None
) -> Dataset:
    """The images that the table lists, in its order. Paths are relative to the table's folder and must lie in it
    unless `allow_outside`, which says nothing about a URL. Samples have a group where there is a column of that name.
    """
    path = path.resolve()
    allow_outside &= not isinstance(path, Place)
    sizes = dict(path.parent.list()) if isinstance(path, Place) else {}

    def source(name: str) -> Source:
        if isinstance(path, Place):
            return ObjectImage(below(path.parent, name), sizes.get(name, 0))
        return locate_in_manifest(path, name, allow_outside)

    label = None if label_column is None else _heading(label_column)
    group = () if group_column is None else (_heading(group_column),)
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)
    samples = [_manifest_sample(path, at, row, source, label, group) for at, row in enumerate(rows, start=1)]
    if len({sample.split is None for sample in samples}) > 1:
        number = next(number for number, sample in enumerate(samples, start=1) if sample.split is None)
        raise FormatError(f"either every row of {path.name} has a split or none; row {number} has none: fill it in")
    return make_dataset({"kind": "manifest", "path": str(path), "allow_outside": allow_outside}, samples)


def locate_in_manifest(path: Path, key: str, allow_outside: bool) -> FileImage:
    """The file that a manifest calls `key`."""
    return FileImage(path.parent / key if allow_outside else inside(path.parent, key))


def _manifest_sample(
    path: AnyPath,
    number: int,
    row: Mapping[str, Any],
    locate: Callable[[str], Source],
    label_column: str | None,
    group: tuple[str, ...],
) -> Sample:
    name = next((str(row[column]) for column in _PATH_COLUMNS if label_text(row.get(column)) is not None), None)
    if name is None:
        columns = ", ".join(map(str, row)) or "no columns"
        raise FormatError(f"row {number} of {path.name} needs a path (column 'path'), got {columns}")
    if label_column is not None and label_column not in row:
        raise FormatError(f"{path.name} has no column {label_column!r}; it has {', '.join(map(str, row))}")
    label = _value(row, (label_column,) if label_column else _LABEL_COLUMNS)
    split = _value(row, _SPLIT_COLUMNS)
    try:
        source = locate(name)
    except (CCRError, ValueError) as error:
        raise CCRError(
            f"row {number} of {path.name}: {error}; put the images beside the manifest or allow paths outside it"
        ) from None
    return Sample(name, source, label, None if split is None else split_name(split) or split, _value(row, group))


def _value(row: Mapping[str, Any], columns: tuple[str, ...]) -> str | None:
    """Text of the first of these columns that the row fills."""
    texts = (label_text(row.get(column)) for column in columns)
    return next((text for text in texts if text is not None), None)


def _heading(name: object) -> str:
    """A column's name as it is compared: case and spaces around it do not matter."""
    return str(name or "").strip().lower()


def _csv_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    with format_errors(path, "be a CSV table in UTF-8 with a heading (path, label, split)", "write it again"):
        opened = path.open() if isinstance(path, Place) else open_regular(path)
        with io.TextIOWrapper(opened, newline="", encoding="utf-8-sig") as stream:
            heading = stream.readline()
            # A comma, or else the semicolon or tab that spreadsheets write.
            mark = next((mark for mark in ",;\t" if mark in heading), ",")
            for row in csv.DictReader(chain([heading], stream), strict=True, delimiter=mark):
                yield {_heading(name): value for name, value in row.items()}


def _parquet_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    with format_errors(path, "be a Parquet table with the columns path, label, split", "write it again"):
        table = open_parquet(path).read()
        table.validate(full=True)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield {_heading(name): value for name, value in row.items()}


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


def _load(path: Path) -> np.ndarray:
    return map_array(path, "be a .npy array of numbers or texts", "save it again with numpy.save")
