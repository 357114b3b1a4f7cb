"""Embeddings placed where concepts are: checked, made unit rows, measured from a mean, in a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.arrays import as_array
from ccr.errors import CCRError


@dataclass(frozen=True, eq=False)
class Place:
    """Where images meet concepts: `mean` (d,) or None, and the matrix `whiten` (d, d) of the images' metric or None."""

    mean: np.ndarray | None
    whiten: np.ndarray | None

    def put(self, rows: np.ndarray, first: int = 0) -> np.ndarray:
        """Unit rows (b, d), float64; `first` is the number of the first row, for messages."""
        placed = _directions(rows, first)
        if self.mean is not None:
            placed = _unit(placed - self.mean)
        if self.whiten is not None:
            placed = _unit(placed @ self.whiten)
        return placed


def as_matrix(X: Any, dimension: int) -> np.ndarray:
    """X (m, d) as an array of numbers; a torch tensor or a data frame will do. Nothing is copied that need not be."""
    array = as_array(X)
    if array.ndim != 2 or 0 in array.shape:
        raise CCRError(f"X must be (images, dimensions), got shape {array.shape}: one embedding is X[None, :]")
    if array.dtype.kind not in "fiub":
        raise CCRError(f"X must hold real numbers, got {array.dtype}: convert it to float32")
    if array.shape[1] != dimension:
        raise CCRError(
            f"X must have the concepts' {dimension} dimensions, got {array.shape[1]}: embed images with the model's "
            "encoder"
        )
    return array


def _directions(rows: np.ndarray, first: int) -> np.ndarray:
    """Unit rows in float64; what points nowhere is refused."""
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)  # NaN where a number of the row is
    if not np.isfinite(largest).all():
        bad = first + int(np.flatnonzero(~np.isfinite(largest))[0])
        raise CCRError(f"X must be finite, got NaN or infinity in row {bad}: drop that image or embed it again")
    if not largest.all():
        bad = first + int(np.flatnonzero(largest == 0)[0])
        raise CCRError(f"an embedding must point somewhere, got only zeros in row {bad} of X: embed it again")
    return _unit(wide / largest)  # scaled first, so that squares neither vanish nor overflow


def _unit(rows: np.ndarray) -> np.ndarray:
    """Every row divided by its norm; zeros stay."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows / np.where(norms > 0, norms, 1.0)
