"""Sums over rows and dot products, also of short rows, in registers."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from ccr.core.kernels.x86.compiling import compiled
from ccr.core.kernels.x86.llvm import (
    FLOAT,
    INT,
    LANES,
    LONG,
    at,
    constant,
    counted,
    load,
    multiply_add,
    splat,
    store,
    totals,
    vector,
)
from ccr.core.kernels.x86.memory import address

#: Rows that `dot_rows` multiplies at once: so many sums keep the multipliers busy; fewer where fewer are left.
GROUP, HALF = 8, 4
#: Numbers from which on rows are better read from end to end than a few columns at a time.
WIDE = 128


def _row(builder: Any, matrix: Any, stride: Any, rows: Any, entry: Any) -> Any:
    """Pointer to row rows[entry] of a matrix."""
    row = builder.sext(load(builder, rows, INT, entry), LONG)
    return at(builder, matrix, FLOAT, builder.mul(row, stride))


def _adding(vectors: int, lanes: int = LANES) -> Any:
    @intrinsic
    def add(context, total, factors, matrix, stride, rows, start, stop):  # type: ignore[no-untyped-def]
        """total[:w] += sum over e in start:stop of factors[e] * matrix[rows[e], :w], w = vectors * lanes."""
        pointer, number = types.voidptr, types.int64
        signature = types.void(pointer, pointer, pointer, number, pointer, number, number)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            total, factors, matrix, stride, rows, start, stop = arguments
            places = [LONG(number) for number in range(vectors)]

            def body(entry: Any, sums: list[Any]) -> list[Any]:
                factor = splat(builder, load(builder, factors, FLOAT, entry), lanes)
                row = _row(builder, matrix, stride, rows, entry)
                return [
                    multiply_add(builder, held, factor, load(builder, row, vector(FLOAT, lanes), place))
                    for held, place in zip(sums, places, strict=True)
                ]

            before = [load(builder, total, vector(FLOAT, lanes), place) for place in places]
            for place, value in zip(places, counted(builder, start, stop, before, body), strict=True):
                store(builder, value, total, place)
            return context.get_dummy_value()

        return signature, emit

    return add


def _adding_whole(count: int) -> Any:
    @intrinsic
    def add(context, total, factors, matrix, stride, rows, vectors):  # type: ignore[no-untyped-def]
        """total[:w] += sum over e in 0:count of factors[e] * matrix[rows[e], :w], w = vectors * LANES, with rows read
        from end to end, as memory likes it."""
        pointer, number = types.voidptr, types.int64
        signature = types.void(pointer, pointer, pointer, number, pointer, number)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            total, factors, matrix, stride, rows, vectors = arguments
            entries = [LONG(entry) for entry in range(count)]
            lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]
            shares = [splat(builder, load(builder, factors, FLOAT, entry)) for entry in entries]

            def body(place: Any, nothing: list[Any]) -> list[Any]:
                held = load(builder, total, vector(FLOAT), place)
                for share, line in zip(shares, lines, strict=True):
                    held = multiply_add(builder, held, share, load(builder, line, vector(FLOAT), place))
                store(builder, held, total, place)
                return nothing

            counted(builder, LONG(0), vectors, [], body)
            return context.get_dummy_value()

        return signature, emit

    return add


def _spreading(vectors: int) -> Any:
    @intrinsic
    def spread(context, values, factors, rows, start, stop, out, stride):  # type: ignore[no-untyped-def]
        """out[rows[e], :w] += factors[e] * values[:w] for e in start:stop, w = vectors * LANES."""
        pointer, number = types.voidptr, types.int64
        signature = types.void(pointer, pointer, pointer, number, number, pointer, number)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            values, factors, rows, start, stop, out, stride = arguments
            places = [LONG(number) for number in range(vectors)]
            own = [load(builder, values, vector(FLOAT), place) for place in places]

            def body(entry: Any, nothing: list[Any]) -> list[Any]:
                factor = splat(builder, load(builder, factors, FLOAT, entry))
                row = _row(builder, out, stride, rows, entry)
                held = [load(builder, row, vector(FLOAT), place) for place in places]
                for place, before, value in zip(places, held, own, strict=True):
                    store(builder, multiply_add(builder, before, factor, value), row, place)
                return nothing

            counted(builder, start, stop, [], body)
            return context.get_dummy_value()

        return signature, emit

    return spread


def _dotting(group: int) -> Any:
    @intrinsic
    def dots(context, values, matrix, stride, rows, count, vectors, factor, out):  # type: ignore[no-untyped-def]
        """out[e] = factor * <values[:w], matrix[rows[e], :w]> for e in 0:count, at most `group`, w = vectors * LANES.
        One sum per row, whatever the others are: the last row stands in for those that are missing."""
        pointer, number = types.voidptr, types.int64
        signature = types.void(pointer, pointer, number, pointer, number, number, types.float32, pointer)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            values, matrix, stride, rows, count, vectors, factor, out = arguments
            last, entries = builder.sub(count, LONG(1)), [LONG(entry) for entry in range(group)]
            entries = [builder.select(builder.icmp_signed("<", entry, last), entry, last) for entry in entries]
            lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]

            def body(place: Any, sums: list[Any]) -> list[Any]:
                own = load(builder, values, vector(FLOAT), place)
                return [
                    multiply_add(builder, held, own, load(builder, line, vector(FLOAT), place))
                    for held, line in zip(sums, lines, strict=True)
                ]

            sums = counted(builder, LONG(0), vectors, [constant(FLOAT, 0.0)] * group, body)
            for entry, value in zip(entries, totals(builder, sums), strict=True):
                store(builder, builder.fmul(factor, value), out, entry)
            return context.get_dummy_value()

        return signature, emit

    return dots


def _dotting_and_adding(count: int) -> Any:
    @intrinsic
    def both(context, values, factors, matrix, stride, rows, vectors, factor, out, total):  # type: ignore[no-untyped-def]
        """out[e] = factor * <values[:w], row e> and total[:w] += factors[e] * row e, for e in 0:count, w = vectors *
        LANES and row e = matrix[rows[e], :w], which is read once."""
        pointer, number = types.voidptr, types.int64
        signature = types.void(pointer, pointer, pointer, number, pointer, number, types.float32, pointer, pointer)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            values, factors, matrix, stride, rows, vectors, factor, out, total = arguments
            entries = [LONG(entry) for entry in range(count)]
            lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]
            shares = [splat(builder, load(builder, factors, FLOAT, entry)) for entry in entries]

            def body(place: Any, sums: list[Any]) -> list[Any]:
                own = load(builder, values, vector(FLOAT), place)
                held = load(builder, total, vector(FLOAT), place)
                found = [load(builder, line, vector(FLOAT), place) for line in lines]
                for share, line in zip(shares, found, strict=True):
                    held = multiply_add(builder, held, share, line)
                store(builder, held, total, place)
                return [multiply_add(builder, one, own, line) for one, line in zip(sums, found, strict=True)]

            sums = counted(builder, LONG(0), vectors, [constant(FLOAT, 0.0)] * count, body)
            for entry, value in enumerate(totals(builder, sums)):
                store(builder, builder.fmul(factor, value), out, LONG(entry))
            return context.get_dummy_value()

        return signature, emit

    return both


_add_8, _add_2, _add_1, _add_half = _adding(8), _adding(2), _adding(1), _adding(1, LANES // 2)
_add_whole_8 = _adding_whole(8)
_spread_4, _spread_1 = _spreading(4), _spreading(1)
_dots_8, _dots_4 = _dotting(GROUP), _dotting(HALF)
_both_4, _both_1 = _dotting_and_adding(4), _dotting_and_adding(1)


@compiled
def add_rows(total, factors, matrix, rows, start, stop):  # type: ignore[no-untyped-def]
    """total += sum over entries e in start:stop of factors[e] * matrix[rows[e]]."""
    width, stride, column = len(total), matrix.shape[1], 0
    if width >= WIDE and width % LANES == 0:
        while start + 8 <= stop:
            _add_whole_8(
                address(total), address(factors[start:]), address(matrix), stride, address(rows[start:]), width // LANES
            )
            start += 8
    while column + 8 * LANES <= width:
        _add_8(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += 8 * LANES
    while column + 2 * LANES <= width:
        _add_2(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += 2 * LANES
    if column + LANES <= width:
        _add_1(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += LANES
    if column + LANES // 2 <= width:
        _add_half(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += LANES // 2
    for rest in range(column, width):
        for entry in range(start, stop):
            total[rest] += factors[entry] * matrix[rows[entry], rest]


@compiled
def spread_row(values, factors, rows, start, stop, out):  # type: ignore[no-untyped-def]
    """out[rows[e], :w] += factors[e] * values for entries e in start:stop; w, the number of values, is a multiple of
    LANES."""
    width, stride, column = len(values), out.shape[1], 0
    while column + 4 * LANES <= width:
        _spread_4(
            address(values[column:]), address(factors), address(rows), start, stop, address(out[0, column:]), stride
        )
        column += 4 * LANES
    while column < width:
        _spread_1(
            address(values[column:]), address(factors), address(rows), start, stop, address(out[0, column:]), stride
        )
        column += LANES


@compiled
def dot_rows(values, matrix, rows, start, stop, factor, out):  # type: ignore[no-untyped-def]
    """out[e] = factor * <values, matrix[rows[e]]> for entries e in start:stop. The numbers of a row are added up in the
    same order whichever entries stand beside it: what bytes let through changes no bit of a score."""
    width, stride = len(values), matrix.shape[1]
    vectors, entry = width // LANES, start
    while stop - entry > HALF:
        count = min(GROUP, stop - entry)
        _dots_8(
            address(values), address(matrix), stride, address(rows[entry:]), count, vectors, factor,
            address(out[entry:]),
        )  # fmt: skip
        entry += count
    if entry < stop:
        _dots_4(
            address(values), address(matrix), stride, address(rows[entry:]), stop - entry, vectors, factor,
            address(out[entry:]),
        )  # fmt: skip
    if vectors * LANES < width:
        for entry in range(start, stop):
            for column in range(vectors * LANES, width):
                out[entry] += factor * values[column] * matrix[rows[entry], column]


@compiled
def dot_and_add_rows(values, factors, matrix, rows, start, stop, factor, out, total):  # type: ignore[no-untyped-def]
    """`dot_rows` and `add_rows` at once, for rows that the cache does not hold; their width is a multiple of LANES."""
    stride, vectors, entry = matrix.shape[1], len(values) // LANES, start
    while entry + 4 <= stop:
        _both_4(
            address(values), address(factors[entry:]), address(matrix), stride, address(rows[entry:]), vectors, factor,
            address(out[entry:]), address(total),
        )  # fmt: skip
        entry += 4
    while entry < stop:
        _both_1(
            address(values), address(factors[entry:]), address(matrix), stride, address(rows[entry:]), vectors, factor,
            address(out[entry:]), address(total),
        )  # fmt: skip
        entry += 1
