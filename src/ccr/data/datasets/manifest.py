"""Manifests: a CSV or Parquet table with a row for each image: path, label, split."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from ccr.data.datasets.base import Dataset, Sample, label_text, make_dataset, split_name
from ccr.data.datasets.folder import below, inside
from ccr.data.datasets.sources import FileImage, ObjectImage, Source, open_parquet
from ccr.errors import CCRError, FormatError
from ccr.places import AnyPath, Place
from ccr.reading import open_regular, understood

_PATH_COLUMNS = ("path", "image_path", "file", "filename", "file_name", "image")
_LABEL_COLUMNS = ("label", "class", "target")
_SPLIT_COLUMNS = ("split",)


def open_manifest(path: Path, *, allow_outside: bool = False, label_column: str | None = None) -> Dataset:
    """The images that the table lists, in its order. Paths are relative to the table's folder and must lie in it
    unless `allow_outside`.
    """
    path = path.resolve()
    samples = list(_samples(path, lambda name: locate_in_manifest(path, name, allow_outside), label_column))
    return _dataset(path, samples, allow_outside)


def open_remote_manifest(path: Place, *, label_column: str | None = None) -> Dataset:
    """As `open_manifest`, of an object store: paths are relative to the table and lie below its folder."""
    sizes = {entry.name: entry.size for entry in path.parent.list()}

    def source(name: str) -> ObjectImage:
        return ObjectImage(below(path.parent, name), sizes.get(name, 0))

    return _dataset(path, list(_samples(path, source, label_column)), False)


def _samples(path: AnyPath, source: Callable[[str], Source], label_column: str | None) -> Iterator[Sample]:
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)
    label_column = None if label_column is None else _heading(label_column)
    for number, row in enumerate(rows, start=1):
        yield _sample(path, number, row, source, label_column)


def _dataset(path: AnyPath, samples: list[Sample], allow_outside: bool) -> Dataset:
    if len({sample.split is None for sample in samples}) > 1:
        number = next(number for number, sample in enumerate(samples, start=1) if sample.split is None)
        raise FormatError(f"either every row of {path.name} has a split or none; row {number} has none: fill it in")
    origin = {"kind": "manifest", "path": str(path), "allow_outside": allow_outside}
    return make_dataset(origin, samples)


def locate_in_manifest(path: Path, key: str, allow_outside: bool) -> FileImage:
    """The file that a manifest calls `key`."""
    return FileImage(path.parent / key if allow_outside else inside(path.parent, key))


def _sample(
    path: AnyPath, number: int, row: Mapping[str, Any], locate: Callable[[str], Source], label_column: str | None
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
    return Sample(name, source, label, None if split is None else split_name(split) or split)


def _value(row: Mapping[str, Any], columns: tuple[str, ...]) -> str | None:
    """Text of the first of these columns that the row fills."""
    texts = (label_text(row.get(column)) for column in columns)
    return next((text for text in texts if text is not None), None)


def _heading(name: object) -> str:
    """A column's name as it is compared: case and spaces around it do not matter."""
    return str(name or "").strip().lower()


def _csv_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    try:
        with _text(path) as stream:
            heading = stream.readline()
            for row in csv.DictReader(chain([heading], stream), strict=True, delimiter=_delimiter(heading)):
                yield {_heading(name): value for name, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(
            f"{path} must be a CSV table in UTF-8 with a heading (path, label, split): {error}"
        ) from error


def _delimiter(heading: str) -> str:
    """What separates the columns: commas, or else the semicolons or tabs that spreadsheets write."""
    return next((mark for mark in ",;\t" if mark in heading), ",")


def _text(path: AnyPath) -> IO[str]:
    if isinstance(path, Place):
        return io.TextIOWrapper(path.open(), newline="", encoding="utf-8-sig")
    return io.TextIOWrapper(open_regular(path), newline="", encoding="utf-8-sig")


def _parquet_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    with understood(path, "be a Parquet table with the columns path, label, split", "write it again"):
        table = open_parquet(path).read()
        table.validate(full=True)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield {_heading(name): value for name, value in row.items()}
