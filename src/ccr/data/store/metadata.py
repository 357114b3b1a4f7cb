"""What a store says of itself and of its rows: `store.json` and the Parquet tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr.data.store.layout import DESCRIPTION, FORMAT, FORMAT_VERSION, numbered, read_json
from ccr.errors import FormatError
from ccr.reading import understood
from ccr.texts import check_name

COLUMNS = ("image_path", "label", "split", "content")


def read_description(folder: Path, lengths: Sequence[int]) -> dict[str, Any]:
    """The content of `store.json`, checked against the rows of the shards that are there."""
    description = read_json(folder / DESCRIPTION)
    if description.get("format") != FORMAT:
        raise FormatError(f"{folder / DESCRIPTION} must be of format {FORMAT!r}, got {description.get('format')!r}")
    if description.get("version") != FORMAT_VERSION:
        raise FormatError(
            f"{folder} is of store version {description.get('version')!r}, this ccr reads {FORMAT_VERSION}: update ccr"
        )
    with understood(folder / DESCRIPTION, "describe the store as ccr does", "copy the store again or embed again"):
        rows = [shard["rows"] for shard in description["shards"]]
        _check_description(description)
    if rows != list(lengths):
        raise FormatError(f"{folder} must have shards of {rows} rows, got {list(lengths)}: embed again")
    return description


def _check_description(description: dict[str, Any]) -> None:
    """An error of any kind where an entry that is used has another type than ccr writes."""
    encoder, classes, source = (description[name] for name in ("encoder", "classes", "source"))
    for name in ("spec", "fingerprint"):
        if not isinstance(encoder[name], str):
            raise TypeError(f"the encoder's {name} is {encoder[name]!r}")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise TypeError("the classes are no list of texts")
    for name in classes:
        check_name(name, "a class's name")
    if not isinstance(source, dict) or not all(isinstance(source[name], str) for name in ("kind", "path")):
        raise TypeError("the source is not that of a data set")


def read_metadata(folder: Path, lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Each of COLUMNS as texts (m,) with None where there is none, for shards of these lengths (their sum is m)."""
    files = numbered(folder / "metadata", "metadata_*.parquet")
    if not files:  # clip-retrieval can be told to write none
        return {name: np.full(sum(lengths), None, dtype=object) for name in COLUMNS}
    if len(files) != len(lengths):
        raise FormatError(f"{folder} has {len(lengths)} shards of embeddings and {len(files)} of metadata: embed again")
    columns: dict[str, list[str | None]] = {name: [] for name in COLUMNS}
    for file, length in zip(files, lengths, strict=True):
        table = _read_table(file, length)
        for name in COLUMNS:
            with understood(file, f"have one column {name} of texts", "copy the store again or embed again"):
                values = table.column(name).to_pylist() if name in table.column_names else [None] * length
                columns[name] += [value if value is None else str(value) for value in values]
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def _read_table(file: Path, length: int) -> pa.Table:
    with understood(file, "be a Parquet table", "copy the store again or embed again"):
        table = pq.read_table(file)
        table.validate(full=True)
    if len(table) != length:
        raise FormatError(f"{file} must have a row for each of {length} embeddings, got {len(table)}: embed again")
    return table
