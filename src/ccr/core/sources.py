"""What X may be: an array, a memmap, a tensor, a table; looked at and read as float32, and refused if it is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ccr.errors import CCRError

#: Rows whose largest number lies between these keep their precision as float32.
FLOAT32_RANGE = (1e-30, 1e30)


def in_memory(source: Any) -> bool:
    """Whether the rows are in memory, not behind a file."""
    base = source
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return isinstance(source, (np.ndarray, torch.Tensor))


def directions(rows: np.ndarray) -> np.ndarray:
    """Unit rows of any scale; zeros stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)  # so that squares neither vanish nor overflow
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0))


def empty_rows(rows: int, columns: int) -> torch.Tensor:
    """Memory from NumPy, which asks for large pages where there are some: they are filled faster than torch's."""
    return torch.from_numpy(np.empty((rows, columns), np.float32))


def check_numeric(source: Any) -> None:
    kind = getattr(source.dtype, "kind", "f")  # torch's floating types have no kind
    if kind == "c" or (isinstance(source, torch.Tensor) and source.is_complex()):
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
    return CCRError(f"an embedding must point somewhere, got only zeros in row {row} of X: embed it again")


def in_range(rows: Any) -> Any:
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


def as_tensor(rows: Any) -> torch.Tensor:
    if isinstance(rows, torch.Tensor):
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
