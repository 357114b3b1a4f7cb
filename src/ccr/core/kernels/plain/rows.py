"""Embeddings made ready in one pass: checked, divided by their norm, measured from a mean."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled
from ccr.core.kernels.plain.vectors import copy_into, dot

#: What is wrong with a row.
NOT_FINITE, ZERO = 1, 2


@compiled
def _to_unit(row):  # type: ignore[no-untyped-def]
    """Divide a row by its norm, in place; zeros stay. What is wrong with it, 0 for nothing."""
    square = dot(row, row)
    if not (square > np.float32(1e-30) and square < np.float32(1e30)):
        # Scaled first, so that squares neither vanish nor overflow.
        largest = np.float32(0.0)
        for column in range(len(row)):
            if not np.isfinite(row[column]):
                return NOT_FINITE
            largest = max(largest, abs(row[column]))
        if largest == np.float32(0.0):
            return ZERO
        for column in range(len(row)):
            row[column] /= largest
        square = dot(row, row)
    norm = np.sqrt(square)
    for column in range(len(row)):
        row[column] /= norm
    return 0


@compiled
def prepare_rows(rows, mean, out):  # type: ignore[no-untyped-def]
    """out = the unit directions of the unit rows from `mean` (d,), of the rows themselves if `mean` has no entries.

    Returns the first row that is not finite or only zeros, and which of both; (-1, 0) when all is well. A unit row
    equal to the mean becomes zero.
    """
    for number in range(len(rows)):
        row = out[number]
        copy_into(row, rows[number])
        wrong = _to_unit(row)
        if wrong != 0:
            return number, wrong
        if len(mean) > 0:
            for column in range(len(row)):
                row[column] -= mean[column]
            _to_unit(row)
    return -1, 0
