"""Whatever people hold numbers in, as NumPy arrays; without importing torch, for the light runtime reads rows by it."""

from __future__ import annotations

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
