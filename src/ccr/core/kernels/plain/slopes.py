"""Derivatives by dictionary and head of a batch's codes, summed up and not yet stepped along."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled
from ccr.core.kernels.plain.vectors import add_row, dot


@compiled
def entry_slopes(pointers, indices, data, slopes, weights, through):  # type: ignore[no-untyped-def]
    """Derivatives of the loss by scores into `through` (entries,): those by logits `slopes` (b, C) through the weights
    (n, C), and times `data`, how many times as large a code is as its score."""
    for row in range(len(slopes)):
        for entry in range(pointers[row], pointers[row + 1]):
            through[entry] = data[entry] * dot(slopes[row], weights[indices[entry]])


@compiled
def sum_by_concept(first, last, starts, rows, values, matrix, out):  # type: ignore[no-untyped-def]
    """out[c] = sum of values[e] * matrix[rows[e]] over the entries e of concept c, for the concepts first:last."""
    for concept in range(first, last):
        out[concept, :] = np.float32(0.0)
        for entry in range(starts[concept], starts[concept + 1]):
            add_row(out[concept], values[entry], matrix[rows[entry]])


@compiled
def sum_allowed(first, last, starts, rows, values, slopes, begins, columns, out):  # type: ignore[no-untyped-def]
    """The same for a sparse head: only the weights `columns[begins[c]:begins[c + 1]]` of concept c, one after the other
    in `out`."""
    for concept in range(first, last):
        for weight in range(begins[concept], begins[concept + 1]):
            total = np.float32(0.0)
            for entry in range(starts[concept], starts[concept + 1]):
                total += values[entry] * slopes[rows[entry], columns[weight]]
            out[weight] = total
