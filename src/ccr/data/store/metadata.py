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

COLUMNS = ("image_path", "label", "split", "content")


def read_description(folder: Path, shards: int) -> dict[str, Any]:
    """The content of `store.json`, checked against the number of `shards` that are there."""
    description = read_json(folder / DESCRIPTION)
    if description.get("format") != FORMAT:
        raise FormatError(f"{folder / DESCRIPTION} must be of format {FORMAT!r}, got {description.get('format')!r}")
    if description.get("version") != FORMAT_VERSION:
        raise FormatError(
            f"{folder} is of store version {description.get('version')!r}, this ccr reads {FORMAT_VERSION}: update ccr"
        )
    if len(description.get("shards", [])) != shards:
        raise FormatError(f"{folder} must have {len(description.get('shards', []))} shards, got {shards}: embed again")
    return description


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
            values = table.column(name).to_pylist() if name in table.column_names else [None] * length
            columns[name] += [value if value is None else str(value) for value in values]
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def _read_table(file: Path, length: int) -> pa.Table:
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"{file} must be a Parquet table: {error}") from error
    if len(table) != length:
        raise FormatError(f"{file} must have a row for each of {length} embeddings, got {len(table)}: embed again")
    return table
