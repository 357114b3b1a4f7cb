"""The files of a store and what they say: names, `store.json`, tables of rows, and matrices read by ranges of bytes."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr.data.datasets.base import label_text
from ccr.data.datasets.sources import open_parquet
from ccr.errors import FormatError
from ccr.io.files import format_errors, read_object
from ccr.io.remote import AnyPath, Place
from ccr.utils.texts import check_name

# Files of a store: clip-retrieval's names, plus `store.json`.
FORMAT = "ccr-store"
FORMAT_VERSION = 1
DESCRIPTION = "store.json"
PROGRESS = "progress"
PLAN = "plan.json"
_SCHEMA = pa.schema(
    [("image_path", pa.string()), ("label", pa.string()), ("split", pa.string()), ("content", pa.string())]
)
_NUMBER = re.compile(r"_(\d+)\.")


def embeddings_path(folder: AnyPath, shard: int) -> AnyPath:
    return folder / "img_emb" / f"img_emb_{shard}.npy"


def metadata_path(folder: AnyPath, shard: int) -> AnyPath:
    return folder / "metadata" / f"metadata_{shard}.parquet"


def chunk_path(folder: AnyPath, chunk: int) -> AnyPath:
    return folder / PROGRESS / f"chunk_{chunk}.npz"


def numbered(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern in the order of their numbers, so that 10 comes after 9."""
    numbers = {path: number for path in folder.glob(pattern) if (number := shard_number(path.name)) is not None}
    return sorted(numbers, key=numbers.__getitem__)


def shard_number(name: str) -> int | None:
    """The number in the name of a shard's file; None for other names."""
    match = _NUMBER.search(name)
    return None if match is None else int(match[1])


def read_json(path: AnyPath) -> dict[str, Any]:
    """The content of a JSON file of a store."""
    return read_object(path, "be JSON, as ccr writes it", f"copy it again, or delete {path.parent} and embed again")


def array_bytes(rows: np.ndarray) -> bytes:
    """The `.npy` file of an array."""
    stream = io.BytesIO()
    np.save(stream, rows, allow_pickle=False)
    return stream.getvalue()


def table_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The Parquet file of metadata rows."""
    stream = io.BytesIO()
    schema = _SCHEMA
    for name in ("look", "group"):  # only where they are known
        if any(name in row for row in rows):
            schema = schema.append(pa.field(name, pa.string()))
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), stream, compression="zstd")
    return stream.getvalue()


# Reading and validating the metadata of a store: `store.json` and the Parquet tables.
COLUMNS = ("image_path", "label", "split", "content", "look", "group")
#: Tables that are read at once.
READERS = 16
_REMEDY = "copy the store again or embed again"


def read_description(folder: AnyPath) -> dict[str, Any]:
    """The content of `store.json`."""
    description = read_json(folder / DESCRIPTION)
    if description.get("format") != FORMAT:
        raise FormatError(f"{folder / DESCRIPTION} must be of format {FORMAT!r}, got {description.get('format')!r}")
    if description.get("version") != FORMAT_VERSION:
        raise FormatError(
            f"{folder} is of store version {description.get('version')!r}, this ccr reads {FORMAT_VERSION}: update ccr"
        )
    with format_errors(folder / DESCRIPTION, "describe the store as ccr does", _REMEDY):
        _check_description(description)
    return description


def described_lengths(description: dict[str, Any]) -> list[int]:
    """Rows of each shard, as the description has them."""
    return [shard["rows"] for shard in description["shards"]]


def check_lengths(folder: AnyPath, description: dict[str, Any], lengths: Sequence[int]) -> None:
    """An error when the shards that are there have other rows than the description says."""
    rows = described_lengths(description)
    if rows != list(lengths):
        raise FormatError(f"{folder} must have shards of {rows} rows, got {list(lengths)}: embed again")


def _check_description(description: dict[str, Any]) -> None:
    """An error of any kind where an entry that is used has another type than ccr writes."""
    encoder, classes, source = (description[name] for name in ("encoder", "classes", "source"))
    for rows in described_lengths(description):
        if not isinstance(rows, int) or rows < 0:
            raise TypeError(f"a shard has {rows!r} rows")
    for name in ("spec", "fingerprint"):
        if not isinstance(encoder[name], str):
            raise TypeError(f"the encoder's {name} is {encoder[name]!r}")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise TypeError("the classes are no list of texts")
    for name in classes:
        check_name(name, "a class's name")
    if not isinstance(source, dict) or not all(isinstance(source[name], str) for name in ("kind", "path")):
        raise TypeError("the source is not that of a data set")


def read_columns(folder: AnyPath, lengths: Sequence[int], columns: Sequence[str]) -> dict[str, np.ndarray]:
    """These of COLUMNS as texts (m,) with None where there is none, for shards of these lengths (their sum is m).

    A text that many rows have, such as a label, is in memory once for each shard.
    """
    files = _files(folder, len(lengths))
    if not files:  # clip-retrieval can be told to write none
        return {name: np.full(sum(lengths), None, dtype=object) for name in columns}
    if len(files) != len(lengths):
        raise FormatError(f"{folder} has {len(lengths)} shards of embeddings and {len(files)} of metadata: embed again")
    _check_numbers(folder, files)
    with ThreadPoolExecutor(READERS) as pool:
        parts = list(pool.map(lambda file, length: _read_table(file, length, columns), files, lengths))
    return {name: np.concatenate([part[name] for part in parts]) for name in columns}


def _files(folder: AnyPath, shards: int) -> Sequence[AnyPath]:
    if isinstance(folder, Place):
        known = metadata_path(folder, 0).is_file()
        return [metadata_path(folder, number) for number in range(shards)] if known else []
    return numbered(folder / "metadata", "metadata_*.parquet")


def _check_numbers(folder: AnyPath, files: Sequence[AnyPath]) -> None:
    """An error when these tables have other numbers than the embeddings: they would be those of other rows."""
    if isinstance(folder, Place):
        return
    tables = {shard_number(file.name) for file in files}
    alone = {shard_number(file.name) for file in numbered(folder / "img_emb", "img_emb_*.npy")} - tables
    if alone:
        raise FormatError(
            f"{folder} must have metadata for every shard of embeddings, got none for shard {alone.pop()}: bring the "
            "file back, or embed again"
        )


def _read_table(file: AnyPath, length: int, columns: Sequence[str]) -> dict[str, np.ndarray]:
    with format_errors(file, "be a Parquet table", _REMEDY):
        source = open_parquet(file)
        rows = source.metadata.num_rows
        if rows != length:
            raise FormatError(f"{file} must have a row for each of {length} embeddings, got {rows}: embed again")
        present = [name for name in columns if name in source.schema_arrow.names]
        table = source.read(columns=present)
        table.validate(full=True)
    table_columns = {name: np.full(length, None, dtype=object) for name in columns}
    for name in present:
        with format_errors(file, f"have one column {name} of texts", _REMEDY):
            table_columns[name] = _texts(table.column(name), label_text if name in ("label", "split") else str)
    return table_columns


def _texts(column: pa.ChunkedArray, text: Callable[[object], str | None]) -> np.ndarray:
    """Texts, equal ones of one spelling the same object, None where there is none."""
    coded = column.combine_chunks().dictionary_encode() if len(column) else pa.array([]).dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    known = [None if value is None else text(value) for value in coded.dictionary.to_pylist()]
    values = np.array([*known, None], dtype=object)
    numbers = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
    return values[numbers]


#: Bytes in which the heading of a `.npy` file lies.
HEADING = 4096


class RangedArray:
    """The matrix of a `.npy` object; nothing but its heading is read before rows are asked for."""

    def __init__(self, place: Place) -> None:
        self._ranges = place.ranges()
        with format_errors(place, "be a .npy matrix of numbers", _REMEDY):
            size = self._ranges.size()
            stream = io.BytesIO(self._ranges.read(0, min(size, HEADING)))
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            self.shape, by_column, self.dtype = read(stream)
            if by_column or self.dtype.hasobject:
                raise ValueError("it is not a plain matrix by rows")
            self._offset = stream.tell()
            if self._offset + math.prod(self.shape) * self.dtype.itemsize != size:
                raise ValueError(f"{size} bytes are not those of a {self.dtype} array of shape {self.shape}")

    def span(self, start: int, stop: int) -> np.ndarray:
        """Rows start:stop, in memory."""
        size = self.shape[1] * self.dtype.itemsize
        data = self._ranges.read(self._offset + start * size, self._offset + stop * size)
        return np.frombuffer(data, self.dtype).reshape(stop - start, self.shape[1])
