"""Whatever people hold numbers in, as NumPy arrays; without importing torch, which the light runtime and stores do
without."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

from ccr.errors import CCRError


def as_array(X: Any) -> np.ndarray:
    """Numbers of a tensor, wherever and of whatever kind it is, of a table, or of what NumPy takes."""
    if hasattr(X, "detach"):
        there = X.detach().cpu()
        return np.asarray(there.float() if str(there.dtype) == "torch.bfloat16" else there)  # NumPy has no bfloat16
    if hasattr(X, "to_numpy"):
        found = np.asarray(X.to_numpy())
        if found.dtype == object and hasattr(X, "convert_dtypes"):  # numbers of pandas that may be missing
            with suppress(TypeError, ValueError):
                return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
        return found
    try:
        return np.asarray(X)
    except ValueError as error:
        raise CCRError(f"X must be a matrix of numbers, got {type(X).__name__}: {error}") from None


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
