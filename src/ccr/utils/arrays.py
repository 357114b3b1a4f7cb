"""Arrays of any library in, data frames out: without importing torch, SciPy, pandas or polars."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from ccr.errors import CCRError, MissingExtraError


# Lazy imports: torch, numba and SciPy take seconds to import, and reading a model needs none of them.
class LazyModule:
    """Proxy that imports a module when one of its names is used: `torch = LazyModule("torch")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(import_module(self._name), name)
        if not name.startswith("__"):
            setattr(self, name, attribute)  # the next use is that of a plain attribute
        return attribute


def import_extra(name: str, extra: str, need: str) -> Any:
    """The module of an optional part; an error that says what needs it, and names the extra that brings it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f'{need}: pip install "ccr-xai[{extra}]"') from error


# Conversion of tensors and tables to NumPy arrays, without importing torch, which the light runtime and stores do not
# need.
def as_array(X: Any) -> np.ndarray:
    """Numbers of a tensor, wherever and of whatever kind it is, of a table, or of what NumPy takes."""
    if hasattr(X, "detach"):
        there = X.detach().cpu()
        return np.asarray(there.float() if str(there.dtype) == "torch.bfloat16" else there)  # NumPy has no bfloat16
    if hasattr(X, "to_numpy"):
        values = np.asarray(X.to_numpy())
        if values.dtype == object and hasattr(X, "convert_dtypes"):  # numbers of pandas that may be missing
            with suppress(TypeError, ValueError):
                return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
        return values
    try:
        return np.asarray(X)
    except ValueError as error:
        raise CCRError(f"X must be a matrix of numbers, got {type(X).__name__}: {error}") from None


def is_tensor(X: Any) -> bool:
    """Whether X is a tensor of torch, which is not imported to see it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix of SciPy, which is not imported to see it."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(X))


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Every row divided by its Euclidean norm, whatever its scale; rows of zeros stay. `ccr.geometry.unit_rows`
    does the same with torch."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    if norms.size and norms.min() > 1e-18 and norms.max() < np.inf:
        return np.asarray(rows / norms)
    # Scaled first, so that squares neither vanish nor overflow.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0))


def row_products(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """rows (b, d) @ matrix (d, n), row by row, for a few rows: what a row gets does not depend on its neighbours, and a
    product with one row is over before a second thread of the BLAS has woken up. On a busy machine a product with 64
    rows at once waits for that thread: 112 ms instead of 2."""
    return np.array([row @ matrix for row in rows])


def softmax(logits: np.ndarray, axis: int = -1) -> np.ndarray:
    """Probabilities of logits, along an axis."""
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


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


KINDS = ("pandas", "polars")


def to_frame(columns: Mapping[str, Sequence[Any]], kind: str | None = None) -> Any:
    """A data frame of these columns; `kind` is "pandas" or "polars", None: the first of the two that is installed."""
    if kind not in (None, *KINDS):
        raise CCRError(f"a data frame is one of {' or '.join(KINDS)}, got {kind!r}")
    for name in KINDS if kind is None else (kind,):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.DataFrame(dict(columns))
    raise MissingExtraError(f"a data frame needs {kind or 'pandas or polars'}: pip install {kind or 'pandas'}")


def coded_frame(codes: Any, names: Any, kind: str, X: Any) -> Any:
    """Codes (m, n), CSR or dense, as a data frame with a column for each name, and the index of X if it has one.

    One of pandas has sparse columns; polars knows none, so that its frame is dense.
    """
    if kind == "pandas":
        pandas = import_module(kind)
        index = X.index if isinstance(X, pandas.DataFrame) else None
        if hasattr(codes, "tocsc"):
            return pandas.DataFrame.sparse.from_spmatrix(codes.tocsc(), index=index, columns=list(names))
        return pandas.DataFrame(codes, index=index, columns=list(names))
    dense = codes.toarray() if hasattr(codes, "toarray") else codes
    return to_frame({str(name): dense[:, column] for column, name in enumerate(names)}, kind)


def paths_of(given: Any) -> list[str]:
    """Paths in a list, a series, or a data frame's column "path"; one path alone is a list of one."""
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return [str(given)]
    if hasattr(given, "columns"):
        if "path" not in list(given.columns):
            raise CCRError(f'a data frame of photos needs a column "path", got {", ".join(map(str, given.columns))}')
        given = given["path"]
    return [str(path) for path in given]
