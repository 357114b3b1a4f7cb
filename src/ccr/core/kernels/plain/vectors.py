"""Rows: copied, multiplied, added up."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled, fused, summing


@compiled
def copy_into(target, source):  # type: ignore[no-untyped-def]
    """The first len(source) elements; numba's own assignment brings half a second of compiling for its errors."""
    for column in range(len(source)):
        target[column] = source[column]


@summing
def dot(left, right):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for column in range(len(left)):
        total += left[column] * right[column]
    return total


@fused
def add_row(total, factor, row):  # type: ignore[no-untyped-def]
    """total += factor * row."""
    for column in range(len(total)):
        total[column] += factor * row[column]
