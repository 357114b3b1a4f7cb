"""Products of a few rows with a panel of columns, summed in registers: what a matrix product is made of."""

from __future__ import annotations

from typing import Any

from ccr.core.kernels.compiling import AVAILABLE, intrinsic
from ccr.core.kernels.llvm import (
    LANES,
    at,
    called,
    constant,
    counted,
    load,
    multiply_add,
    shuffled,
    splat,
    store,
    vector,
)

if AVAILABLE:
    from llvmlite import ir
    from numba import types

    from ccr.core.kernels.llvm import BYTE, FLOAT, INT, LONG, SHORT

#: A tile is ROWS rows by PANEL columns, two registers a row.
ROWS, PANEL = 6, 2 * LANES


def _pairs_added(builder: Any, left: Any, right: Any) -> Any:
    """Sums of products of neighbours, which compilers know as one instruction (vpmaddwd)."""
    wide = vector(INT, 2 * LANES)
    products = builder.mul(builder.sext(left, wide), builder.sext(right, wide))
    even, odd = (shuffled(builder, products, products, list(range(first, 2 * LANES, 2))) for first in (0, 1))
    return builder.add(even, odd)


def _tile(builder: Any, rows: Any, stride: Any, panel: Any, depth: Any, short: bool) -> list[Any]:
    """The products of ROWS rows, each `stride` elements after the one before, with a panel (depth, PANEL), as vectors.

    `short`: an element is a pair of 16-bit integers; otherwise it is a float.
    """
    element = INT if short else FLOAT
    column = vector(SHORT, 2 * LANES) if short else vector(FLOAT)
    starts = [at(builder, rows, element, builder.mul(stride, LONG(row))) for row in range(ROWS)]

    def add(place: Any, sums: list[Any]) -> list[Any]:
        first = builder.mul(place, LONG(2))
        columns = [load(builder, panel, column, builder.add(first, LONG(half))) for half in (0, 1)]
        new = []
        for row, start in enumerate(starts):
            many = splat(builder, load(builder, start, element, place))
            for half in (0, 1):
                total = sums[2 * row + half]
                if short:
                    product = _pairs_added(builder, builder.bitcast(many, column), columns[half])
                    new.append(builder.add(total, product))
                else:
                    new.append(multiply_add(builder, total, many, columns[half]))
        return new

    return counted(builder, LONG(0), depth, [constant(element, 0)] * (2 * ROWS), add)


@intrinsic
def short_tile(context, rows, stride, panel, depth, bounds, two_sided, out, out_stride, first):  # type: ignore[no-untyped-def]
    """Which of ROWS x PANEL products of 16-bit integers reach the row's bound (their absolute value, if `two_sided`):
    bits of the bytes at out + row * out_stride + first, the first column lowest."""
    pointer, number = types.voidptr, types.int64
    signature = types.void(pointer, number, pointer, number, pointer, types.boolean, pointer, number, number)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, stride, panel, depth, bounds, two_sided, out, out_stride, first = arguments
        sums = _tile(builder, rows, stride, panel, depth, short=True)
        zero, flip = constant(INT, 0), splat(builder, two_sided)
        for row in range(ROWS):
            bound = splat(builder, load(builder, bounds, INT, LONG(row)))
            line = builder.gep(out, [builder.add(first, builder.mul(out_stride, LONG(row)))])
            for half in (0, 1):
                total = sums[2 * row + half]
                negative = builder.and_(flip, builder.icmp_signed("<", total, zero))
                size = builder.select(negative, builder.sub(zero, total), total)
                bits = builder.bitcast(builder.icmp_signed(">=", size, bound), ir.IntType(LANES))
                store(builder, bits, line, LONG(half), align=1)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def float_tile(context, rows, stride, panel, depth, out, out_stride, first):  # type: ignore[no-untyped-def]
    """ROWS x PANEL products of floats, row r into the floats at out + r * out_stride + first."""
    pointer, number = types.voidptr, types.int64
    signature = types.void(pointer, number, pointer, number, pointer, number, number)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, stride, panel, depth, out, out_stride, first = arguments
        sums = _tile(builder, rows, stride, panel, depth, short=False)
        for row in range(ROWS):
            line = at(builder, out, FLOAT, builder.add(first, builder.mul(out_stride, LONG(row))))
            for half in (0, 1):
                store(builder, sums[2 * row + half], line, LONG(half))
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def transpose(context, rows, stride, blocks, out):  # type: ignore[no-untyped-def]
    """The columns of LANES rows, each `stride` elements of 32 bits after the one before, LANES * blocks columns: column
    c into the LANES elements at out + c * PANEL."""
    signature = types.void(types.voidptr, types.int64, types.int64, types.voidptr)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, stride, blocks, out = arguments
        starts = [at(builder, rows, INT, builder.mul(stride, LONG(row))) for row in range(LANES)]

        def block(place: Any, nothing: list[Any]) -> list[Any]:
            lines = [load(builder, start, vector(INT), place) for start in starts]
            run = 1
            while run < LANES:  # exchange blocks of run x run elements across the diagonal
                for row in range(LANES):
                    if row & run:
                        continue
                    one, two = lines[row], lines[row + run]
                    upper = [lane - run + LANES if lane & run else lane for lane in range(LANES)]
                    lower = [lane + LANES if lane & run else lane + run for lane in range(LANES)]
                    lines[row], lines[row + run] = (shuffled(builder, one, two, p) for p in (upper, lower))
                run *= 2
            first = builder.mul(place, LONG(PANEL * LANES))
            for column, line in enumerate(lines):
                store(builder, line, at(builder, out, INT, builder.add(first, LONG(PANEL * column))), LONG(0))
            return nothing

        counted(builder, LONG(0), blocks, [], block)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def address(context, array):  # type: ignore[no-untyped-def]
    """Where the elements of an array begin."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(data, BYTE.as_pointer())

    return types.voidptr(array), emit


@intrinsic
def lowest_bit(context, word):  # type: ignore[no-untyped-def]
    """Which bit of a word that is not zero is the lowest set one."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), emit


@intrinsic
def fetch_ahead(context, start, lines):  # type: ignore[no-untyped-def]
    """Ask for memory that is needed soon, so many lines of 64 bytes."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start, lines = arguments

        def ask(line: Any, nothing: list[Any]) -> list[Any]:
            place = builder.gep(start, [builder.mul(line, LONG(64))])
            called(builder, "llvm.prefetch.p0", ir.VoidType(), [place, INT(0), INT(3), INT(1)])
            return nothing

        counted(builder, LONG(0), lines, [], ask)
        return context.get_dummy_value()

    return types.void(types.voidptr, types.int64), emit
