"""Reading X: arrays, memmaps, tensors and stores as checked unit rows, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ccr import kernels
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.utils.arrays import LazyModule, as_array, is_sparse, is_tensor, release, row_products
from ccr.utils.arrays import unit_rows as row_units
from ccr.utils.threads import Workers

if TYPE_CHECKING:
    import torch
    from scipy import sparse
else:
    torch = LazyModule("torch")
    sparse = LazyModule("scipy.sparse")

# Input X: an array, a memmap, a tensor or a table of numbers; read as float32, anything else is refused.

#: Rows whose largest number lies between these keep their precision as float32.
FLOAT32_RANGE = (1e-30, 1e30)


def one_row(x: Any) -> np.ndarray:
    """One embedding x (d,) as rows (1, d)."""
    rows = np.atleast_2d(as_array(x))
    if len(rows) != 1:
        raise CCRError(f"explain takes one embedding, got {len(rows)} rows: explain(X[i])")
    return rows


def in_memory(source: Any) -> bool:
    """Whether the rows are in memory, not behind a file."""
    base = source
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return isinstance(source, np.ndarray) or is_tensor(source)


def empty_rows(rows: int, columns: int) -> torch.Tensor:
    """Memory from NumPy, which asks for large pages where there are some: they are filled faster than torch's."""
    return torch.from_numpy(np.empty((rows, columns), np.float32))


def check_numeric(source: Any) -> None:
    kind = getattr(source.dtype, "kind", "f")  # torch's floating types have no kind
    if kind == "c" or (is_tensor(source) and source.is_complex()):
        raise CCRError(f"X must hold real numbers, got {source.dtype}. Complex data not supported: take its real part")
    if kind not in "fiub":
        raise CCRError(f"X must hold real numbers, got {source.dtype}: convert it to float32")


def check_finite(tensor: torch.Tensor, numbers: np.ndarray) -> None:
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        raise not_finite(numbers[int((~finite.all(dim=1)).nonzero()[0])])


def not_finite(row: int) -> CCRError:
    return CCRError(f"X must be finite, got NaN or infinity in row {row}: drop that image or embed it again")


def only_zeros(row: int) -> CCRError:
    return CCRError(f"row {row} of X is all zeros: embeddings need a norm above 0; embed that image again")


def in_range(rows: Any) -> Any:
    """Rows of numbers that float32 cannot hold, each divided by a power of two: its direction keeps every bit."""
    if is_tensor(rows):
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


def as_tensor(rows: Any) -> torch.Tensor:
    if is_tensor(rows):
        return rows.detach().to(device="cpu", dtype=torch.float32)
    if isinstance(rows, np.ndarray) and rows.dtype == np.float16 and rows.flags.writeable:
        return torch.from_numpy(_forward(rows)).float()  # faster than NumPy's conversion
    array = _forward(np.asarray(rows, dtype=np.float32))
    # torch warns about arrays it could write to but must not; it never writes here.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _forward(array: np.ndarray) -> np.ndarray:
    """The array as torch takes it. NumPy calls one row of a reversed matrix contiguous as it is; torch does not."""
    array = np.ascontiguousarray(array)
    return array if min(array.strides, default=0) >= 0 else array.copy()


#: About this many numbers are worked on at once; 4 MB in float32, so that they stay in the cache.
CHUNK_VALUES = 1_000_000
#: Up to this many bytes, rows in memory, or those of a file, are prepared once instead of batch by batch.
RESIDENT_BYTES, MAPPED_BYTES = 1 << 30, 1 << 27
#: After so many bytes read, pages of mapped files are let go.
RELEASE_BYTES = 1 << 26
#: Pieces whose moments are held at once.
MOMENT_PARTS = 16
#: Scattered rows that are read at once, of a file or by several threads.
SCATTERED_ROWS = 256


class Moments(NamedTuple):
    """Mean (d,) and covariance (d, d), float64."""

    mean: np.ndarray
    covariance: np.ndarray


class Embeddings:
    """X (m, d) read as finite float32 unit rows, optionally as directions from a mean, optionally in a metric:
    multiplied by a (d, d) matrix and made unit again.

    `normalize=False` reads the rows as they are, zeros included. The source is never copied whole, unless
    `make_resident` finds it small (then `prepared` holds it); a large memmap stays a memmap.
    """

    def __init__(
        self,
        X: Any,
        *,
        mean: np.ndarray | None = None,
        metric: np.ndarray | None = None,
        wide_metric: np.ndarray | None = None,
        normalize: bool = True,
    ) -> None:
        if is_sparse(X) or (is_tensor(X) and X.layout != torch.strided):
            dense = "X.toarray()" if is_sparse(X) else "X.to_dense()"
            raise CCRError(f"X must be dense, got a sparse matrix: embeddings have no zeros to leave out; use {dense}")
        self.source = X if hasattr(X, "shape") and hasattr(X, "dtype") else as_array(X)
        self.mean, self.metric = mean, metric
        self._wide_metric = wide_metric  # the metric in float64, where the caller has it
        self.normalize = normalize
        shape = tuple(self.source.shape)
        if len(shape) != 2:
            raise CCRError(
                f"X must be (images, dimensions), got shape {shape}. Reshape your data: one embedding is X[None, :]"
            )
        if 0 in shape:
            raise CCRError(f"X must have at least one row and one column, got shape {shape}")
        check_numeric(self.source)
        self.prepared: torch.Tensor | None = None
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

    def take(self, rows: np.ndarray, workers: Workers | None = None) -> torch.Tensor:
        """These rows, prepared, by the threads of `workers` if there are any."""
        if self.prepared is not None:
            return self.prepared.index_select(0, torch.from_numpy(rows))
        mapped = not in_memory(self.source)
        if not mapped and workers is None:
            return self._read(rows, rows)
        gathered = empty_rows(len(rows), self.shape[1])

        def read(start: int) -> None:
            part = rows[start : start + SCATTERED_ROWS]
            gathered[start : start + len(part)] = self._read(part, part)
            if mapped:
                release(self.source)  # every row brought its neighbourhood in the file with it

        (workers or Workers(1)).map(read, range(0, len(rows), SCATTERED_ROWS))
        return gathered

    def span(self, start: int, stop: int) -> torch.Tensor:
        """The rows start:stop, prepared."""
        if self.prepared is not None:
            return self.prepared[start:stop]
        return self._read(slice(start, stop), np.arange(start, stop))

    def exact(self, rows: np.ndarray) -> np.ndarray:
        """These few rows in float64, checked and prepared in it from what X holds, with NumPy alone."""
        values = self.source[rows]
        if is_tensor(values):
            values = values.detach().to("cpu", torch.float64).numpy()
        wide = np.asarray(values, np.float64)
        largest = np.abs(wide).max(axis=1)  # NaN where a number of the row is
        if not np.isfinite(largest).all():
            raise not_finite(rows[np.flatnonzero(~np.isfinite(largest))[0]])
        if not self.normalize:
            return wide
        if not largest.all():
            raise only_zeros(rows[np.flatnonzero(largest == 0)[0]])
        placed = row_units(wide)
        if self.mean is not None:
            placed = row_units(placed - self.mean)
        if self.metric is None:
            return placed
        if self._wide_metric is None:
            self._wide_metric = self.metric.astype(np.float64)
        return row_units(row_products(placed, self._wide_metric))

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
        return (sums.sum(dim=0).numpy() / len(self)).astype(np.float32)

    def moments(self) -> Moments:
        """Mean (d,) and covariance (d, d) of the prepared rows, float64, read in chunks.

        Measured from the first row: no digits are lost to a mean that is large beside the spread.
        """
        parts, d, origin = self._parts(), self.shape[1], self.span(0, 1)
        total, square = torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)

        def products(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
            rows = self.span(part.start, part.stop) - origin
            return rows.sum(dim=0, dtype=torch.float64), (rows.T @ rows).double()

        with Workers() as workers:
            for start in range(0, len(parts), MOMENT_PARTS):  # added up in order: the same bits whatever the threads
                for first, second in workers.map(products, parts[start : start + MOMENT_PARTS]):
                    total += first
                    square += second
        mean = total.numpy() / len(self)
        covariance = square.numpy() / len(self) - np.outer(mean, mean)
        return Moments(origin[0].double().numpy() + mean, covariance)

    def sample(self, most: int) -> Embeddings:
        """At most this many of the rows, evenly spaced, prepared and in memory."""
        rows = np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)
        return Embeddings.ready(self.take(rows))

    def make_resident(self) -> Embeddings:
        """Prepare every row now, if X is small enough, and smaller still if it is behind a file; training then reads
        faster."""
        m, d = self.shape
        most = RESIDENT_BYTES if in_memory(self.source) else MAPPED_BYTES
        if m * d * 4 <= most:
            rows = empty_rows(m, d)
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
        size = max(1, CHUNK_VALUES // (4 * self.shape[1]))
        return [slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    def _read(self, index: Any, numbers: np.ndarray) -> torch.Tensor:
        prepared = self._prepare(self.source[index], numbers)
        self._read_bytes += len(numbers) * self.shape[1] * 4
        if self._read_bytes > RELEASE_BYTES:
            self._read_bytes = 0
            release(self.source)
        return prepared

    def _prepare(self, rows: Any, numbers: np.ndarray) -> torch.Tensor:
        tensor = as_tensor(in_range(rows) if self.normalize else rows)
        if not self.normalize:
            check_finite(tensor, numbers)
            return tensor
        mean = np.zeros(0, np.float32) if self.mean is None else np.array(self.mean, np.float32)
        out = torch.empty(tensor.shape)
        bad, wrong = kernels.prepare_rows(tensor.contiguous().numpy(), mean, out.numpy())
        if wrong == kernels.NOT_FINITE:
            raise not_finite(numbers[bad])
        if wrong:
            raise only_zeros(numbers[bad])
        return out if self.metric is None else unit_rows(out @ torch.from_numpy(self.metric))
