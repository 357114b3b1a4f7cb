"""EmbeddingStore: embeddings on disk that behave as one matrix."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccr.data.datasets import BadImage, content_hash, decode, locate
from ccr.data.datasets.base import joined, label_text
from ccr.data.datasets.sources import Content
from ccr.data.store.layout import (
    DESCRIPTION,
    PROGRESS,
    check_lengths,
    described_lengths,
    embeddings_path,
    metadata_path,
    numbered,
    read_columns,
    read_description,
)
from ccr.data.store.matrix import Form, ShardedMatrix
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.io.files import format_errors
from ccr.io.remote import AnyPath, Place, as_place

#: Up to so many shards of a local store are looked at when it is opened.
LOOKED_AT = 256
NAMED = re.compile(r"img_emb_\d+\.npy")


class EmbeddingStore:
    """Embeddings (m, d) on disk, memory-mapped, with labels, splits and paths. `EmbeddingStore.open` makes it.

    Works wherever a matrix is read by rows: `store[10:20]`, `store[[3, 1]]`, `np.asarray(store)`.

    Parameters
    ----------
    path : the store's folder.
    matrix : the embeddings of all rows in the folder.
    description : the content of `store.json`; empty for a folder that has none.
    rows : (m,), which rows of the matrix belong to this store, in its order. None: all.
    parent : the store of all rows that this one is a selection of; its metadata is read once for both.
    """

    def __init__(
        self,
        path: AnyPath,
        matrix: ShardedMatrix,
        description: Mapping[str, Any],
        *,
        rows: np.ndarray | None = None,
        parent: EmbeddingStore | None = None,
    ) -> None:
        self.path = path
        self.description = dict(description)
        self._matrix = matrix
        self._rows = rows
        self._parent = parent
        self._columns: dict[str, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": {}}  # read again where it arrives

    @classmethod
    def open(cls, path: str | AnyPath, *, data: str | Path | None = None) -> EmbeddingStore:
        """Open the store in a folder made by `embed_dataset`, or by clip-retrieval.

        Parameters
        ----------
        path : the folder, or its URL; it holds `img_emb/img_emb_0.npy`. Of an object store, rows are read by ranges.
        data : where the images are now, if they have moved since they were embedded.
        """
        folder = as_place(path)
        description = read_description(folder) if (folder / DESCRIPTION).exists() else {}
        if not description and (folder / PROGRESS).is_dir():
            raise CCRError(f"{folder} was begun but not finished: run the same `ccr embed` again, it continues")
        matrix = _matrix(folder, description)
        if data is not None and "source" in description:
            description["source"] = {**description["source"], "path": str(as_place(data).resolve())}
        return cls(folder, matrix, description)

    def __len__(self) -> int:
        return len(self._matrix) if self._rows is None else len(self._rows)

    def __repr__(self) -> str:
        made_by = self.encoder or "unknown encoder"
        return f"EmbeddingStore({str(self.path)!r}: {len(self)} x {self.shape[1]} {self.dtype}, {made_by})"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self._matrix.dimension

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._matrix.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        """Rows as a NumPy array: one row (d,) for an integer, else a matrix. A slice within one shard stays mapped.

        `index`: an integer from -m to m - 1, a slice, numbers of rows, a mask (m,), or a pair of one of these and
        an index of columns.
        """
        if isinstance(index, tuple):
            rows, columns = index
            return self[rows] if columns is Ellipsis else self[rows][..., columns]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if self._rows is None and step == 1 and start < stop:
                return self._matrix.span(start, stop)
            index = np.arange(start, stop, step)
        wanted = np.asarray(index)
        if wanted.dtype == bool:
            if wanted.shape != (len(self),):
                raise IndexError(f"a mask must have one entry for each of {len(self)} rows, got shape {wanted.shape}")
            wanted = np.flatnonzero(wanted)
        if wanted.size and not np.issubdtype(wanted.dtype, np.integer):
            raise IndexError(f"rows are chosen by numbers, slices or a mask, got {wanted.dtype}")
        rows = self._matrix.take(self._matrix_rows(wanted.reshape(-1).astype(np.int64)))
        return rows[0] if wanted.ndim == 0 else rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        rows = self[:]
        return np.array(rows, dtype=dtype) if copy or (dtype is not None and rows.dtype != dtype) else np.asarray(rows)

    @property
    def X(self) -> np.ndarray:
        """All rows (m, d) as one array: mapped when they lie in one shard, else in memory."""
        return self[:]

    @property
    def labels(self) -> np.ndarray:
        """Label of each row (m,), None where there is none."""
        return self._column("label")

    @property
    def y(self) -> np.ndarray:
        """Labels (m,) as texts, for `fit`; every row must have one."""
        labels = self.labels
        missing = np.flatnonzero(labels == None)  # noqa: E711 (elementwise)
        if len(missing):
            raise CCRError(
                f"every row needs a label, got none for {len(missing)} of {len(self)}, such as "
                f"{self.paths[missing[0]]!r}: embed a data set with labels"
            )
        return labels.astype(str)

    @property
    def splits(self) -> np.ndarray:
        """Split of each row (m,): train, val or test; None where there is none."""
        return self._column("split")

    @property
    def trainable(self) -> np.ndarray:
        """Mask (m,) of the rows that may be trained on: those of `train`, or, where there are none, all but `test` and
        `val`."""
        splits = self.splits
        trained = splits == "train"
        return trained if trained.any() else (splits != "test") & (splits != "val")

    @property
    def training(self) -> EmbeddingStore:
        """The rows that a fit trains on: of a whole store those that are `trainable`, of a selection all."""
        free = self.trainable
        return self if self._parent is not None or free.all() or not free.any() else self.select(rows=free)

    @property
    def validation(self) -> EmbeddingStore | None:
        """The labelled rows of the whole store's split `val`, where this store is all its rows that may be trained on;
        None for other selections, and where there are none."""
        whole = self._parent or self
        own = np.arange(len(self)) if self._rows is None else self._rows
        if "val" not in set(whole.splits) or not np.array_equal(np.sort(own), np.flatnonzero(whole.trainable)):
            return None
        return whole.select("val").with_labels()

    @property
    def groups(self) -> np.ndarray:
        """Numbers of the groups of images that belong into one part of every split (m,): those of the group that
        `ccr embed --group` gave them, and copies."""
        contents = [content or f"row {row}" for row, content in enumerate(self._column("content"))]
        keys = [str(key) for key in joined(contents, self._column("group").tolist())]
        return np.asarray(np.unique(keys, return_inverse=True)[1])

    @property
    def looks(self) -> np.ndarray:
        """The perceptual hash of each row's image (m,), None in stores of older versions: `near_copies`."""
        return self._column("look")

    @property
    def paths(self) -> np.ndarray:
        """Path of each row's image within its data set (m,)."""
        return self._column("image_path")

    @property
    def contents(self) -> np.ndarray:
        """Hash of each row's image file (m,), None where none was kept."""
        return self._column("content")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, in the data set's order."""
        known = self.description.get("classes")
        if known is None:
            return tuple(sorted({label for label in self.labels if label is not None}))
        return tuple(dict.fromkeys(label_text(name) or name for name in known))

    @property
    def encoder(self) -> str | None:
        """Spec of the encoder that made the store; None for a folder that does not say."""
        return self.description.get("encoder", {}).get("spec")

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the encoder's space; None for a folder that does not say."""
        return self.description.get("encoder", {}).get("fingerprint")

    def check_encoder(self, fingerprint: str | None) -> None:
        """An error when another encoder made the store than the one with this `fingerprint`; a warning when
        one of them is not known.
        """
        if self.fingerprint is None or fingerprint is None:
            warnings.warn(
                f"which encoder made {self.path} cannot be checked: make sure that its concepts come from the same one",
                CCRWarning,
                stacklevel=2,
            )
        elif self.fingerprint != fingerprint:
            raise CCRError(
                f"{self.path} was made by the encoder {self.encoder!r} ({self.fingerprint}), not by {fingerprint}: "
                "embeddings of two encoders cannot be compared; embed the images again or use the other model"
            )

    def with_labels(self) -> EmbeddingStore | None:
        """The rows that have a label, as a store of their own; None where none has."""
        known = self.labels != None  # noqa: E711 (elementwise)
        return self if known.all() else self.select(rows=known) if known.any() else None

    def select(self, split: str | None = None, *, rows: Any = None) -> EmbeddingStore:
        """A part of the rows as a store of its own.

        Parameters
        ----------
        split : only the rows of this split, such as "train".
        rows : only these of them: numbers from 0 in the order wanted, or a mask.
        """
        chosen = np.arange(len(self))
        if split is not None:
            chosen = np.flatnonzero(self.splits == split)
            if not len(chosen):
                have = ", ".join(sorted({str(name) for name in self.splits if name})) or "none"
                raise CCRError(f"{self.path} has no rows in the split {split!r}; it has {have}")
        if rows is not None:
            chosen = chosen[np.asarray(rows)]
        selected = self._matrix_rows(chosen)
        return EmbeddingStore(self.path, self._matrix, self.description, rows=selected, parent=self._parent or self)

    def image(self, row: int) -> Image.Image:
        """The image of row `row` (0 to m - 1), read again from where it was embedded."""
        content = self.content(row)
        with self._rereading(row):
            return decode(content)

    def content(self, row: int) -> Content:
        """The file or the pixels of the image of row `row`, read again from where it was embedded.

        It must have the hash that the store notes: a store from elsewhere cannot have other pictures shown.
        """
        source = self.description.get("source")
        if source is None:
            raise CCRError(f"{self.path} does not say where its images are: only stores made by `ccr embed` do")
        with self._rereading(row):
            content = locate(source, str(self.paths[row])).read()
            if content_hash(content) != self._column("content")[row]:
                raise BadImage("it is not the image that was embedded; embed the data set again")
            return content

    @contextmanager
    def _rereading(self, row: int) -> Iterator[None]:
        try:
            yield
        except BadImage as error:
            key, place = str(self.paths[row]), self.description.get("source", {}).get("path")
            raise CCRError(f"the image {key!r} of {place} cannot be read again: {error}") from error

    def release(self) -> None:
        """Let go of the pages that were read: mapped files count as this process's memory."""
        self._matrix.release()

    def verify(self) -> None:
        """Raise an error if a file of the store is not the one that was written (reads everything)."""
        for number, shard in enumerate(self.description.get("shards", [])):
            for part, path_of in (("img_emb", embeddings_path), ("metadata", metadata_path)):
                file = path_of(self.path, number)
                digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
                if digest != shard[part]:
                    raise FormatError(f"{file} is missing or not what was written: embed the data set again")

    def _matrix_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of this store's rows, from -m to m - 1, as numbers of the matrix's rows."""
        if len(rows) and (rows.max() >= len(self) or rows.min() < -len(self)):
            raise IndexError(
                f"rows go from 0 to {len(self) - 1}, got {rows.max() if rows.max() >= len(self) else rows.min()}"
            )
        rows = np.where(rows < 0, rows + len(self), rows)
        return rows if self._rows is None else self._rows[rows]

    def _column(self, name: str) -> np.ndarray:
        """A column of this store's rows; those of the whole store are read once."""
        whole = self._parent or self
        if name not in whole._columns:
            together = ("label", "split") if name in ("label", "split") else (name,)  # both, before a fit
            whole._columns |= read_columns(self.path, self._matrix.lengths, together)
        column = whole._columns[name]
        return column if self._rows is None else column[self._rows]


def _matrix(folder: AnyPath, description: dict[str, Any]) -> ShardedMatrix:
    """The embeddings in a folder. Where there are few shards every one is looked at; of many, and in an object store,
    the description says what they are, and each is checked when it is first read."""
    lengths = described_lengths(description) if description else []
    if description and (isinstance(folder, Place) or len(lengths) > LOOKED_AT):
        with format_errors(
            folder / DESCRIPTION, "describe the store as ccr does", "copy the store again or embed again"
        ):
            form = Form(int(description["encoder"]["dimension"]), np.dtype(str(description["dtype"])))
        return ShardedMatrix([embeddings_path(folder, shard) for shard in range(len(lengths))], lengths, form)
    files: Sequence[AnyPath]
    if isinstance(folder, Place):
        names = [entry.name for entry in (folder / "img_emb").list() if NAMED.fullmatch(entry.name)]
        files = [embeddings_path(folder, shard) for shard in range(len(names))]
    else:
        files = numbered(folder / "img_emb", "img_emb_*.npy")
    if not files:
        raise FormatError(f"{folder} is not an embedding store, having no img_emb/img_emb_0.npy: run `ccr embed`")
    matrix = ShardedMatrix.open(files)
    if description:
        check_lengths(folder, description, matrix.lengths)
    return matrix
