"""Rows rounded to 16-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.core.kernels.compiling import AVAILABLE, compiled, intrinsic
from ccr.core.kernels.llvm import LANES, called, counted, load, shuffled, store, vector
from ccr.core.kernels.tiles import address
from ccr.core.kernels.vectors import copy_into

if AVAILABLE:
    from llvmlite import ir
    from numba import types

    from ccr.core.kernels.llvm import FLOAT, INT, LONG, SHORT


@intrinsic
def _rounded(context, values, factor, vectors, out):  # type: ignore[no-untyped-def]
    """out = factor * values, rounded to 16-bit integers, 2 * LANES at a time."""
    signature = types.void(types.voidptr, types.float32, types.int64, types.voidptr)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        values, factor, vectors, out = arguments
        wide = vector(FLOAT, 2 * LANES)
        nothing = ir.Constant(wide, ir.Undefined)
        first = builder.insert_element(nothing, factor, INT(0))
        factors = shuffled(builder, first, nothing, [0] * (2 * LANES))

        def body(place: Any, nothing: list[Any]) -> list[Any]:
            scaled = builder.fmul(load(builder, values, wide, place), factors)
            whole = called(builder, f"llvm.rint.v{2 * LANES}f32", wide, [scaled])
            longs = builder.fptosi(whole, vector(INT, 2 * LANES))
            store(builder, builder.trunc(longs, vector(SHORT, 2 * LANES)), out, place)
            return nothing

        counted(builder, LONG(0), vectors, [], body)
        return context.get_dummy_value()

    return signature, emit


@compiled
def round_row(row, factor, out):  # type: ignore[no-untyped-def]
    """factor * row, which fits, rounded to 16-bit integers: two in each element of `out`, whose length is a multiple of
    LANES; zeros beyond the row."""
    vectors = len(row) // (2 * LANES)
    _rounded(address(row), factor, vectors, address(out))
    if 2 * LANES * vectors < len(row):
        rest = np.zeros(2 * LANES, np.float32)
        copy_into(rest, row[2 * LANES * vectors :])
        _rounded(address(rest), factor, np.int64(1), address(out[LANES * vectors :]))
