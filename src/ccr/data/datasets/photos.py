"""What a user points at when photos are to be predicted: files, folders, patterns, manifests, paths on a stream."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr.data.datasets.base import Sample
from ccr.data.datasets.folder import IMAGE_SUFFIXES
from ccr.data.datasets.open import DEMO, open_samples
from ccr.data.datasets.patterns import is_pattern
from ccr.data.datasets.sources import FileImage, ObjectImage
from ccr.errors import CCRError
from ccr.places import AnyPath, Place, as_place, is_url

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
    for one in given:
        if str(one) == STREAM:
            samples += (_file(line.rstrip("\r\n")) for line in stream if line.strip())
        else:
            samples += _photos(str(one), allow_outside)
    if not samples:
        raise CCRError(f"there are no photos in {', '.join(map(str, given)) or 'nothing'}: name files or folders")
    return tuple(samples)


def _photos(given: str, allow_outside: bool) -> list[Sample]:
    path = Path(given)
    if is_url(given):
        return _objects(given, allow_outside)
    if is_pattern(given) and path.suffix.lower() in _SHARDS and not path.exists():
        return [Sample(f"{given}:{sample.key}", sample.source) for sample in open_samples(given, labelled=False)]
    if path.is_dir() or path.suffix.lower() in _LISTS or (given == DEMO and not path.exists()):
        dataset = open_samples(given, allow_outside=allow_outside, labelled=False)
        return [Sample(_path_of(path, dataset.origin, sample.key), sample.source) for sample in dataset]
    if path.exists() or not glob.has_magic(given):
        if not path.exists() and (given.endswith(("/", os.sep)) or path.suffix.lower() not in IMAGE_SUFFIXES):
            raise CCRError(f"photos are files, folders, patterns or manifests, and there is no {given}: check the path")
        return [_file(given)]  # an image that is not there is listed as unreadable, and not fatal
    matches = sorted(glob.glob(given, recursive=True))
    files = [match for match in matches if os.path.splitext(match)[1].lower() in IMAGE_SUFFIXES]
    if not files:
        raise CCRError(f"no image matches the pattern {given!r}: check it, and put it in quotes")
    return [_file(file) for file in files]


def _objects(url: str, allow_outside: bool) -> list[Sample]:
    """The image at a URL, or those of the data set there."""
    place = as_place(url)
    if isinstance(place, Place) and place.suffix.lower() in IMAGE_SUFFIXES:
        return [Sample(str(place), ObjectImage(place, place.size()))]
    dataset = open_samples(url, allow_outside=allow_outside, labelled=False)
    return [Sample(_path_of(place, dataset.origin, sample.key), sample.source) for sample in dataset]


def _path_of(place: AnyPath, origin: Mapping[str, Any], key: str) -> str:
    """What leads to an image from here: a file's path, else the data set and the image's name in it."""
    kind = origin.get("kind")
    if kind == "folder":
        return str(place / key)
    return str(place.parent / key) if kind == "manifest" else f"{place}:{key}"


def _file(path: str) -> Sample:
    return Sample(path, FileImage(Path(path)))
