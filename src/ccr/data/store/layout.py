"""Files of a store: clip-retrieval's names, plus `store.json`."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr.places import AnyPath
from ccr.reading import read_object

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
    found = _NUMBER.search(name)
    return None if found is None else int(found[1])


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
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_SCHEMA), stream, compression="zstd")
    return stream.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
