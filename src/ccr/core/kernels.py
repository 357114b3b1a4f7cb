"""Compiled CPU kernels (numba). Each assumes valid input and works row by row on contiguous float32 arrays."""

from __future__ import annotations

import numpy as np
from numba import njit

#: The first call compiles for a second or so; the result is kept beside this file for later runs.
compiled = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def count_active(scores, threshold, positive, counts):  # type: ignore[no-untyped-def]
    """How many entries of each row pass the threshold (METHOD 3); zeros never do."""
    for row in range(scores.shape[0]):
        count = 0
        for column in range(scores.shape[1]):
            value = scores[row, column]
            count += (value > threshold) if positive else (abs(value) >= threshold and value != 0.0)
        counts[row] = count


@compiled
def fill_active(scores, threshold, positive, pointers, indices, data):  # type: ignore[no-untyped-def]
    """Columns and values of the entries that `count_active` counted, row after row."""
    for row in range(scores.shape[0]):
        place = pointers[row]
        for column in range(scores.shape[1]):
            value = scores[row, column]
            if (value > threshold) if positive else (abs(value) >= threshold and value != 0.0):
                indices[place] = column
                data[place] = value
                place += 1


@compiled
def fill_top(scores, length, indices, data, counts):  # type: ignore[no-untyped-def]
    """The `length` entries of largest absolute value of each row, columns rising, zeros left out; of equal ones the
    first. Row r is written at r * length, `counts[r]` says how many."""
    n = scores.shape[1]
    sizes = np.empty(n, scores.dtype)
    for row in range(scores.shape[0]):
        for column in range(n):
            sizes[column] = abs(scores[row, column])
        bound = np.partition(sizes, n - length)[n - length]
        above = 0
        for column in range(n):
            above += sizes[column] > bound
        equal = length - above  # so many of those at the bound still fit
        place = row * length
        for column in range(n):
            size = sizes[column]
            if size > bound or (size == bound and equal > 0):
                equal -= size == bound
                if size != 0.0:
                    indices[place] = column
                    data[place] = scores[row, column]
                    place += 1
        counts[row] = place - row * length
