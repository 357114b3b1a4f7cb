"""Manifests: a CSV or Parquet table with a row for each image: path, label, split."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ccr.data.datasets.base import Dataset, Sample, make_dataset, split_name
from ccr.data.datasets.folder import inside
from ccr.data.datasets.sources import FileImage
from ccr.errors import CCRError, FormatError
from ccr.reading import understood

_PATH_COLUMNS = ("path", "image_path", "file", "filename", "file_name", "image")
_LABEL_COLUMNS = ("label", "class", "target")
_SPLIT_COLUMNS = ("split",)


def open_manifest(path: Path, *, allow_outside: bool = False, label_column: str | None = None) -> Dataset:
    """The images that the table lists, in its order. Paths are relative to the table's folder and must lie in it
    unless `allow_outside`.
    """
    path = path.resolve()
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)
    samples = []
    for number, row in enumerate(rows, start=1):
        samples.append(_sample(path, number, row, allow_outside, label_column))
    if len({sample.split is None for sample in samples}) > 1:
        number = next(number for number, sample in enumerate(samples, start=1) if sample.split is None)
        raise FormatError(f"either every row of {path.name} has a split or none; row {number} has none: fill it in")
    origin = {"kind": "manifest", "path": str(path), "allow_outside": allow_outside}
    return make_dataset(origin, samples)


def locate_in_manifest(path: Path, key: str, allow_outside: bool) -> FileImage:
    """The file that a manifest calls `key`."""
    return FileImage(path.parent / key if allow_outside else inside(path.parent, key))


def _sample(path: Path, number: int, row: Mapping[str, Any], allow_outside: bool, label_column: str | None) -> Sample:
    name = _value(row, _PATH_COLUMNS)
    if name is None:
        columns = ", ".join(map(str, row)) or "no columns"
        raise FormatError(f"row {number} of {path.name} needs a path (column 'path'), got {columns}")
    if label_column is not None and label_column not in row:
        raise FormatError(f"{path.name} has no column {label_column!r}; it has {', '.join(map(str, row))}")
    label = _value(row, (label_column,) if label_column else _LABEL_COLUMNS)
    split = _value(row, _SPLIT_COLUMNS)
    try:
        source = locate_in_manifest(path, name, allow_outside)
    except (CCRError, ValueError) as error:
        raise CCRError(
            f"row {number} of {path.name}: {error}; put the images beside the manifest or allow paths outside it"
        ) from None
    return Sample(name, source, label, None if split is None else split_name(split) or split)


def _value(row: Mapping[str, Any], columns: tuple[str, ...]) -> str | None:
    """Text of the first of these columns that the row fills."""
    for column in columns:
        value = row.get(column)
        if value is not None and str(value) != "":
            return str(value)
    return None


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            for row in csv.DictReader(stream, strict=True):
                yield {(name or "").strip().lower(): value for name, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(
            f"{path} must be a CSV table in UTF-8 with a heading (path, label, split): {error}"
        ) from error


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    with understood(path, "be a Parquet table with the columns path, label, split", "write it again"):
        table = pq.read_table(path)
        table.validate(full=True)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield {str(name).strip().lower(): value for name, value in row.items()}
