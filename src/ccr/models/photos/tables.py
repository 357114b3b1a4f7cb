"""Predictions as a file: CSV, Parquet or one JSON object per line, written row by row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ccr.errors import CCRError
from ccr.models.photos.prediction import Prediction, column_names, flat
from ccr.texts import to_cell

#: Rows of one group of a Parquet file.
GROUP = 16_384


def write_table(stream: IO[bytes], ending: str, items: Iterable[Prediction], *, explained: int, classes: Any) -> None:
    """Write predictions with so many concepts each in the form of the file's ending."""
    _WRITERS[ending](stream, items, explained, classes)


def table_ending(path: Path) -> str:
    """The ending of a file that predictions can be written to."""
    ending = path.suffix.lower()
    if ending not in _WRITERS:
        raise CCRError(f"predictions are written to a file that ends in {', '.join(_WRITERS)}, got {path.name!r}")
    return ending


def _write_csv(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.DictWriter(text, column_names(explained), lineterminator="\n")
    rows.writeheader()
    for item in items:
        rows.writerow({name: to_cell(value) for name, value in flat(item, explained).items()})
    text.detach()


def _write_lines(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    for item in items:
        stream.write(json.dumps(_plain(item, explained), ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _plain(item: Prediction, explained: int) -> dict[str, Any]:
    """Without what was not asked for."""
    values = item.to_dict()
    unasked = () if explained else ("logit", "bias", "concepts", "others")
    return {name: value for name, value in values.items() if name not in unasked}


def _write_parquet(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _kind(name, classes)) for name in column_names(explained)])
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        left = iter(items)
        while group := list(islice(left, GROUP)):
            writer.write_table(pa.Table.from_pylist([flat(item, explained) for item in group], schema=schema))


def _kind(name: str, classes: Any) -> Any:
    import pyarrow as pa

    if name in ("prediction", "runner_up"):
        kinds = {"U": pa.string(), "i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "b": pa.bool_()}
        return kinds[np.asarray(classes).dtype.kind]
    is_text = name in ("path", "error") or name.startswith("concept_")
    return pa.string() if is_text else pa.float64()


_WRITERS: dict[str, Callable[[IO[bytes], Iterable[Prediction], int, Any], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_lines,
}
