"""EmbeddingStore: embeddings on disk that behave as one matrix."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ccr.core.inputs import release
from ccr.data.assets import file_sha256
from ccr.data.datasets import BadImage, decode, locate
from ccr.data.store.layout import DESCRIPTION, FORMAT, FORMAT_VERSION, PROGRESS, numbered, read_json
from ccr.errors import CCRError, CCRWarning, FormatError


class EmbeddingStore:
    """Embeddings (m, d) on disk, memory-mapped, with labels, splits and paths; `select` gives a part of the
    rows.

    Works wherever a matrix is read by rows: `store[10:20]`, `store[[3, 1]]`, `np.asarray(store)`.
    """

    def __init__(
        self,
        path: Path,
        shards: Sequence[np.ndarray],
        description: Mapping[str, Any],
        *,
        rows: np.ndarray | None = None,
        parent: EmbeddingStore | None = None,
    ) -> None:
        self.path = path
        self.description = dict(description)
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])
        self._rows = rows
        self._parent = parent

    @classmethod
    def open(cls, path: str | Path, *, data: str | Path | None = None) -> EmbeddingStore:
        """The store in a folder made by `embed_dataset`, or by clip-retrieval.

        `data`: where the images are now, if they have moved since they were embedded.
        """
        folder = Path(path)
        files = numbered(folder / "img_emb", "img_emb_*.npy")
        described = (folder / DESCRIPTION).is_file()
        if not described and (folder / PROGRESS).is_dir():
            raise CCRError(f"{folder} was begun but not finished: run the same `ccr embed` again, it continues")
        if not files:
            raise FormatError(
                f"{folder} is no embedding store: it has no img_emb/img_emb_0.npy; make one with `ccr embed`"
            )
        description = _checked_description(folder, len(files)) if described else {}
        if data is not None and "source" in description:
            description["source"] = {**description["source"], "path": str(Path(data).resolve())}
        return cls(folder, _open_shards(files), description)

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._rows is None else len(self._rows)

    def __repr__(self) -> str:
        made_by = self.encoder or "unknown encoder"
        return f"EmbeddingStore({str(self.path)!r}: {len(self)} x {self.shape[1]} {self.dtype}, {made_by})"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self._shards[0].shape[1])

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._shards[0].dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        """Rows as a NumPy array: one row for an integer, else a matrix. A slice within one shard stays
        mapped.
        """
        if isinstance(index, tuple):
            rows, columns = index
            return self[rows][..., columns]
        if isinstance(index, slice):
            return self._take_slice(index)
        wanted = np.asarray(index)
        if wanted.dtype == bool:
            if wanted.shape != (len(self),):
                raise IndexError(f"a mask must have one entry for each of {len(self)} rows, got shape {wanted.shape}")
            wanted = np.flatnonzero(wanted)
        if wanted.size and not np.issubdtype(wanted.dtype, np.integer):
            raise IndexError(f"rows are chosen by numbers, slices or a mask, got {wanted.dtype}")
        rows = self._absolute(wanted.reshape(-1).astype(np.int64))
        return self._gather(rows)[0] if wanted.ndim == 0 else self._gather(rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        rows = self[:]
        return np.array(rows, dtype=dtype) if copy or (dtype is not None and rows.dtype != dtype) else np.asarray(rows)

    @property
    def X(self) -> np.ndarray:
        """All rows as one array: mapped when they lie in one shard, else in memory."""
        return self[:]

    @property
    def labels(self) -> np.ndarray:
        """Label of each row, None where there is none."""
        return self._column("label")

    @property
    def y(self) -> np.ndarray:
        """Labels as texts, for `fit`; every row must have one."""
        labels = self.labels
        missing = np.flatnonzero(labels == None)  # noqa: E711 (elementwise)
        if len(missing):
            raise CCRError(
                f"every row needs a label, got none for {len(missing)} of {len(self)}, such as "
                f"{self.paths[missing[0]]!r}: "
                "embed a data set with labels"
            )
        return labels.astype(str)

    @property
    def splits(self) -> np.ndarray:
        """Split of each row: train, val or test; None where there is none."""
        return self._column("split")

    @property
    def paths(self) -> np.ndarray:
        """What each row's image is called within its data set."""
        return self._column("image_path")

    @property
    def classes(self) -> tuple[str, ...]:
        known = self.description.get("classes")
        return (
            tuple(known) if known is not None else tuple(sorted({label for label in self.labels if label is not None}))
        )

    @property
    def encoder(self) -> str | None:
        """Spec of the encoder that made the store; None for a folder that does not say."""
        return self.description.get("encoder", {}).get("spec")

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the encoder's space; None for a folder that does not say."""
        return self.description.get("encoder", {}).get("fingerprint")

    def check_encoder(self, fingerprint: str | None) -> None:
        """An error when another encoder than this one made the store; a warning when nobody knows."""
        if self.fingerprint is None or fingerprint is None:
            warnings.warn(
                f"which encoder made {self.path} cannot be checked: make sure that its concepts come from the same one",
                CCRWarning,
                stacklevel=2,
            )
        elif self.fingerprint != fingerprint:
            raise CCRError(
                f"{self.path} was made by the encoder {self.encoder!r} ({self.fingerprint}), not by "
                f"{fingerprint}: "
                "embeddings of two encoders cannot be compared; embed the images again or use the other model"
            )

    def select(self, split: str | None = None, *, rows: Any = None) -> EmbeddingStore:
        """The rows of one split, or those that `rows` (numbers or a mask) names, as a store of its own."""
        chosen = np.arange(len(self))
        if split is not None:
            chosen = np.flatnonzero(self.splits == split)
            if not len(chosen):
                have = ", ".join(sorted({str(name) for name in self.splits if name})) or "none"
                raise CCRError(f"{self.path} has no rows in the split {split!r}; it has {have}")
        if rows is not None:
            chosen = chosen[np.asarray(rows)]
        return EmbeddingStore(
            self.path,
            self._shards,
            self.description,
            rows=self._absolute(chosen),
            parent=self._parent or self,
        )

    def image(self, row: int) -> Image.Image:
        """The image of a row, read again from where it was embedded."""
        source = self.description.get("source")
        if source is None:
            raise CCRError(f"{self.path} does not say where its images are: only stores made by `ccr embed` do")
        key = str(self.paths[row])
        try:
            return decode(locate(source, key).read())
        except BadImage as error:
            raise CCRError(f"the image {key!r} of {source.get('path')} cannot be read again: {error}") from error

    def release(self) -> None:
        """Let go of the pages that were read: mapped files count as this process's memory."""
        for shard in self._shards:
            release(shard)

    def verify(self) -> None:
        """An error when a file of the store is not the one that was written (reads everything)."""
        for number, shard in enumerate(self.description.get("shards", [])):
            for part in ("img_emb", "metadata"):
                ending = "npy" if part == "img_emb" else "parquet"
                file = self.path / part / f"{part}_{number}.{ending}"
                if not file.is_file() or file_sha256(file) != shard[part]:
                    raise FormatError(f"{file} is missing or not what was written: embed the data set again")

    def _absolute(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) and (rows.max() >= len(self) or rows.min() < -len(self)):
            raise IndexError(
                f"rows go from 0 to {len(self) - 1}, got {rows.max() if rows.max() >= len(self) else rows.min()}"
            )
        rows = np.where(rows < 0, rows + len(self), rows)
        return rows if self._rows is None else self._rows[rows]

    def _take_slice(self, index: slice) -> np.ndarray:
        start, stop, step = index.indices(len(self))
        if self._rows is None and step == 1 and start < stop:
            first = int(np.searchsorted(self._starts, start, side="right")) - 1
            offset = int(self._starts[first])
            if stop <= self._starts[first + 1]:
                return self._shards[first][start - offset : stop - offset]
        return self._gather(self._absolute(np.arange(start, stop, step)))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        result = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(owner):
            mine = owner == shard
            result[mine] = self._shards[shard][rows[mine] - self._starts[shard]]
        return result

    def _column(self, name: str) -> np.ndarray:
        whole = (self._parent or self)._metadata[name]
        return whole if self._rows is None else whole[self._rows]

    @cached_property
    def _metadata(self) -> dict[str, np.ndarray]:
        return _read_metadata(self.path, [len(shard) for shard in self._shards])


def _checked_description(folder: Path, shards: int) -> dict[str, Any]:
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


def _open_shards(files: Sequence[Path]) -> list[np.ndarray]:
    shards: list[np.ndarray] = []
    for file in files:
        try:
            shard = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(f"{file} must be a .npy matrix of numbers: {error}") from error
        if shard.ndim != 2 or shard.dtype not in (np.float16, np.float32):
            raise FormatError(f"{file} must be a float16 or float32 matrix, got {shard.dtype} {shard.shape}")
        if shards and (shard.shape[1], shard.dtype) != (shards[0].shape[1], shards[0].dtype):
            raise FormatError(
                f"all shards must be alike, got {shards[0].dtype} {shards[0].shape} and {shard.dtype} {shard.shape}"
            )
        shards.append(shard)
    return shards


def _read_metadata(folder: Path, lengths: Sequence[int]) -> dict[str, np.ndarray]:
    names = ("image_path", "label", "split")
    files = numbered(folder / "metadata", "metadata_*.parquet")
    if not files:  # clip-retrieval can be told to write none
        return {name: np.full(sum(lengths), None, dtype=object) for name in names}
    if len(files) != len(lengths):
        raise FormatError(f"{folder} has {len(lengths)} shards of embeddings and {len(files)} of metadata: embed again")
    parts: dict[str, list[Any]] = {name: [] for name in names}
    for file, length in zip(files, lengths, strict=True):
        try:
            table = pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"{file} must be a Parquet table: {error}") from error
        if len(table) != length:
            raise FormatError(f"{file} must have a row for each of {length} embeddings, got {len(table)}: embed again")
        for name in names:
            column = table.column(name).to_pylist() if name in table.column_names else [None] * length
            parts[name] += [value if value is None else str(value) for value in column]
    return {name: _objects(values) for name, values in parts.items()}


def _objects(values: list[Any]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
