"""Reading X: arrays, memmaps, tensors and stores as checked unit rows, a few at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from ccr.core import kernels
from ccr.core.geometry import unit_rows
from ccr.core.team import ALONE, Team, part_of
from ccr.core.threads import Workers
from ccr.errors import CCRError

#: About this many numbers are worked on at once; 4 MB in float32, so that they stay in the cache.
CHUNK_VALUES = 1_000_000
#: Up to this many bytes, rows in memory are prepared once instead of batch by batch.
RESIDENT_BYTES = 1 << 30
#: After so many bytes read, pages of mapped files are let go.
RELEASE_BYTES = 1 << 26
#: Pieces whose moments are held at once.
MOMENT_PARTS = 16
#: Rows whose largest number lies between these keep their precision as float32.
FLOAT32_RANGE = (1e-30, 1e30)
#: Scattered rows of a file that are read at once.
SCATTERED_ROWS = 256


class Moments(NamedTuple):
    """Mean (d,) and covariance (d, d), float64."""

    mean: np.ndarray
    covariance: np.ndarray


class Embeddings:
    """X (m, d) read as finite float32 unit rows, optionally as directions from a mean, optionally in a metric:
    multiplied by a (d, d) matrix and made unit again. Means and moments of an X that is `shared_by` a team of processes
    (`ccr.core.team`) are found together, each reading its part.

    `normalize=False` reads the rows as they are, zeros included. The source is never
    copied whole, unless `make_resident` finds it small and in memory (then `prepared` holds it); a memmap stays a
    memmap.
    """

    def __init__(
        self, X: Any, *, mean: np.ndarray | None = None, metric: np.ndarray | None = None, normalize: bool = True
    ) -> None:
        if sparse.issparse(X) or (isinstance(X, torch.Tensor) and X.layout != torch.strided):
            dense = "X.toarray()" if sparse.issparse(X) else "X.to_dense()"
            raise CCRError(f"X must be dense, got a sparse matrix: embeddings have no zeros to leave out; use {dense}")
        self.source = X if hasattr(X, "shape") and hasattr(X, "dtype") else _as_array(X)
        self.mean, self.metric = mean, metric
        self.normalize = normalize
        shape = tuple(self.source.shape)
        if len(shape) != 2:
            raise CCRError(
                f"X must be (images, dimensions), got shape {shape}. Reshape your data: one embedding is X[None, :]"
            )
        if 0 in shape:
            raise CCRError(f"X must have at least one row and one column, got shape {shape}")
        _check_numeric(self.source)
        self.prepared: torch.Tensor | None = None
        self.team: Team = X.shared_by if hasattr(type(X), "shared_by") else ALONE
        self._read_bytes = 0

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, not behind a file."""
        return self.prepared is not None or in_memory(self.source)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.source.shape[0]), int(self.source.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def check_dimension(self, dimension: int) -> None:
        if self.shape[1] != dimension:
            raise CCRError(
                f"X must have the concepts' {dimension} dimensions, got {self.shape[1]}: embed images and concepts "
                "with the same encoder"
            )

    def take(self, rows: np.ndarray) -> torch.Tensor:
        """These rows, prepared."""
        if self.prepared is not None:
            return self.prepared.index_select(0, torch.from_numpy(rows))
        if in_memory(self.source):
            return self._read(rows, rows)
        gathered = _empty_rows(len(rows), self.shape[1])
        for start in range(0, len(rows), SCATTERED_ROWS):
            part = rows[start : start + SCATTERED_ROWS]
            gathered[start : start + len(part)] = self._read(part, part)
            release(self.source)  # every row brought its neighbourhood in the file with it
        return gathered

    def span(self, start: int, stop: int) -> torch.Tensor:
        """The rows start:stop, prepared."""
        if self.prepared is not None:
            return self.prepared[start:stop]
        return self._read(slice(start, stop), np.arange(start, stop))

    def exact(self, rows: np.ndarray) -> np.ndarray:
        """These few rows in float64, prepared in it from what X holds."""
        found = self.source[rows]
        if isinstance(found, torch.Tensor):
            found = found.detach().to("cpu", torch.float64).numpy()
        wide = np.asarray(found, np.float64)
        if not self.normalize:
            return wide
        placed = _directions(wide)
        if self.mean is not None:
            placed = _directions(placed - self.mean)
        return placed if self.metric is None else _directions(placed @ self._wide_metric)

    @cached_property
    def _wide_metric(self) -> np.ndarray:
        return np.asarray(self.metric, np.float64)

    def chunks(self, width: int = 1) -> Iterator[torch.Tensor]:
        """All rows in order, prepared, in pieces that stay small when multiplied up to `width` columns."""
        size = max(1, CHUNK_VALUES // max(width, self.shape[1]))
        for start in range(0, len(self), size):
            yield self.span(start, min(start + size, len(self)))

    def unit_mean(self) -> np.ndarray:
        """Mean of the unit rows, without centring (d,), float32."""
        plain, parts = Embeddings(self.source), self._parts()
        sums = torch.zeros(len(parts), self.shape[1], dtype=torch.float64)

        def add(number: int) -> None:
            # Into one block: a small result after every large piece would fragment the heap.
            torch.sum(plain.span(parts[number].start, parts[number].stop), 0, dtype=torch.float64, out=sums[number])

        with Workers() as workers:
            workers.map(add, range(len(parts)))
        return (self.team.sum(sums.sum(dim=0).numpy()) / len(self)).astype(np.float32)

    def moments(self) -> Moments:
        """Mean (d,) and covariance (d, d) of the prepared rows, float64, read in chunks."""
        parts, d = self._parts(), self.shape[1]
        total, square = torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)

        def products(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
            rows = self.span(part.start, part.stop)
            return rows.sum(dim=0, dtype=torch.float64), (rows.T @ rows).double()

        with Workers() as workers:
            for start in range(0, len(parts), MOMENT_PARTS):  # added up in order: the same bits whatever the threads
                for first, second in workers.map(products, parts[start : start + MOMENT_PARTS]):
                    total += first
                    square += second
        mean = self.team.sum(total.numpy()) / len(self)
        return Moments(mean, self.team.sum(square.numpy()) / len(self) - np.outer(mean, mean))

    def sample(self, most: int) -> Embeddings:
        """At most this many of the rows, evenly spaced, prepared and in memory."""
        rows = np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)
        return Embeddings.ready(self.take(rows))

    def make_resident(self) -> Embeddings:
        """Prepare every row now, if X is in memory already and small enough; training then reads faster."""
        m, d = self.shape
        if m * d * 4 <= RESIDENT_BYTES and in_memory(self.source):
            rows = _empty_rows(m, d)
            with Workers() as workers:
                workers.map(lambda part: rows[part].copy_(self.span(part.start, part.stop)), self._parts())
            self.prepared = rows
        return self

    @classmethod
    def ready(cls, rows: torch.Tensor) -> Embeddings:
        """Rows that are prepared already, read as they are."""
        embeddings = cls(rows, normalize=False)
        embeddings.prepared = rows
        return embeddings

    def _parts(self) -> list[slice]:
        size, own = max(1, CHUNK_VALUES // (4 * self.shape[1])), part_of(self.team, len(self))
        return [slice(start, min(start + size, own.stop)) for start in range(own.start, own.stop, size)]

    def _read(self, index: Any, numbers: np.ndarray) -> torch.Tensor:
        prepared = self._prepare(self.source[index], numbers)
        self._read_bytes += len(numbers) * self.shape[1] * 4
        if self._read_bytes > RELEASE_BYTES:
            self._read_bytes = 0
            release(self.source)
        return prepared

    def _prepare(self, rows: Any, numbers: np.ndarray) -> torch.Tensor:
        tensor = _as_tensor(_in_range(rows) if self.normalize else rows)
        if not self.normalize:
            _check_finite(tensor, numbers)
            return tensor
        mean = np.zeros(0, np.float32) if self.mean is None else np.array(self.mean, np.float32)
        out = torch.empty(tensor.shape)
        bad, wrong = kernels.prepare_rows(tensor.contiguous().numpy(), mean, out.numpy())
        if wrong == kernels.NOT_FINITE:
            raise _not_finite(numbers[bad])
        if wrong:
            raise _only_zeros(numbers[bad])
        return out if self.metric is None else unit_rows(out @ torch.from_numpy(self.metric))


def in_memory(source: Any) -> bool:
    """Whether the rows are in memory, not behind a file."""
    base = source
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return isinstance(source, (np.ndarray, torch.Tensor))


def release(source: Any) -> None:
    """Let go of the pages that were read of a mapped file: they count as this process's memory. Nothing is lost;
    they are read again when needed."""
    if hasattr(source, "release"):
        source.release()
    while isinstance(source, np.ndarray):
        if isinstance(source, np.memmap):
            mapping: Any = getattr(source, "_mmap", None)
            # Not of copy-on-write maps, whose changes live in those pages alone.
            if source.mode in ("r", "r+") and hasattr(mapping, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
                mapping.madvise(mmap.MADV_DONTNEED)
            return
        source = source.base


def _directions(rows: np.ndarray) -> np.ndarray:
    """Unit rows of any scale; zeros stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)  # so that squares neither vanish nor overflow
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0))


def _empty_rows(rows: int, columns: int) -> torch.Tensor:
    """Memory from NumPy, which asks for large pages where there are some: they are filled faster than torch's."""
    return torch.from_numpy(np.empty((rows, columns), np.float32))


def _as_array(X: Any) -> np.ndarray:
    if hasattr(X, "to_numpy"):
        return np.asarray(X.to_numpy())
    try:
        return np.asarray(X)
    except ValueError as error:
        raise CCRError(f"X must be a matrix of numbers, got {type(X).__name__}: {error}") from None


def _check_numeric(source: Any) -> None:
    kind = getattr(source.dtype, "kind", "f")  # torch's floating types have no kind
    if kind == "c" or (isinstance(source, torch.Tensor) and source.is_complex()):
        raise CCRError(f"X must hold real numbers, got {source.dtype}. Complex data not supported: take its real part")
    if kind not in "fiub":
        raise CCRError(f"X must hold real numbers, got {source.dtype}: convert it to float32")


def _check_finite(tensor: torch.Tensor, numbers: np.ndarray) -> None:
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        raise _not_finite(numbers[int((~finite.all(dim=1)).nonzero()[0])])


def _not_finite(row: int) -> CCRError:
    return CCRError(f"X must be finite, got NaN or infinity in row {row}: drop that image or embed it again")


def _only_zeros(row: int) -> CCRError:
    return CCRError(f"an embedding must point somewhere, got only zeros in row {row} of X: embed it again")


def _in_range(rows: Any) -> Any:
    """Rows of numbers that float32 cannot hold, each divided by a power of two: its direction keeps every bit."""
    if isinstance(rows, torch.Tensor):
        if rows.dtype != torch.float64:
            return rows
        rows = rows.detach().cpu().numpy()
    if np.dtype(rows.dtype).itemsize <= 4:
        return rows
    largest = np.abs(rows).max(axis=1)
    if np.all((largest > FLOAT32_RANGE[0]) & (largest < FLOAT32_RANGE[1])):
        return rows
    exponents = np.where(np.isfinite(largest), np.frexp(largest)[1], 1024)  # infinities stay, to be refused
    return np.ldexp(rows, -exponents[:, None])


def _as_tensor(rows: Any) -> torch.Tensor:
    if isinstance(rows, torch.Tensor):
        return rows.detach().to(device="cpu", dtype=torch.float32)
    if isinstance(rows, np.ndarray) and rows.dtype == np.float16 and rows.flags.writeable:
        return torch.from_numpy(np.ascontiguousarray(rows)).float()  # faster than NumPy's conversion
    array = np.ascontiguousarray(rows, dtype=np.float32)
    # torch warns about arrays it could write to but must not; it never writes here.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
