"""Products of a few rows with a panel of columns, summed in registers: what a matrix product is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.cgutils import unpack_tuple
from numba.extending import intrinsic

from ccr.core.kernels.compiling import compiled
from ccr.core.kernels.plain.arguments import LANES, LINE
from ccr.core.kernels.x86.llvm import (
    BYTE,
    FLOAT,
    INT,
    LONG,
    SHORT,
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

#: A tile is ROWS rows by PANEL columns, two registers a row.
ROWS, PANEL = 6, 2 * LANES
#: Quads of bytes whose products are summed up in 16 bits before they are in 32.
BLOCK_QUADS = 32
#: What is added to the bytes of a row so that they are positive, as the instruction wants them.
ROW_SHIFT = 64


def _shorts_added(builder: Any, values: Any) -> Any:
    """Sums of neighbours, of 16-bit integers, in 32 bits. Compilers know it as one instruction (vpmaddwd with ones)."""
    wide = builder.sext(values, vector(INT, 2 * LANES))
    even, odd = (shuffled(builder, wide, wide, list(range(first, 2 * LANES, 2))) for first in (0, 1))
    return builder.add(even, odd)


def _byte_products(builder: Any, positive: Any, signed: Any) -> Any:
    """Sums of products of neighbours, of bytes, as 16-bit integers, into which they fit (vpmaddubsw)."""
    return called(builder, "llvm.x86.avx2.pmadd.ub.sw", vector(SHORT, 2 * LANES), [positive, signed])


def _row_starts(builder: Any, rows: Any, stride: Any, element: Any) -> list[Any]:
    return [at(builder, rows, element, builder.mul(stride, LONG(row))) for row in range(ROWS)]


def _columns(builder: Any, panel: Any, kind: Any, place: Any) -> list[Any]:
    first = builder.mul(place, LONG(2))
    return [load(builder, panel, kind, builder.add(first, LONG(half))) for half in (0, 1)]


def _blocks(builder: Any, depth: Any) -> Any:
    return builder.sdiv(builder.add(depth, LONG(BLOCK_QUADS - 1)), LONG(BLOCK_QUADS))


def _block_turns(builder: Any, block: Any, depth: Any) -> tuple[Any, Any]:
    """The pairs of quads that make a block."""
    begin = builder.mul(block, LONG(BLOCK_QUADS // 2))
    end, last = builder.add(begin, LONG(BLOCK_QUADS // 2)), builder.sdiv(depth, LONG(2))
    return begin, builder.select(builder.icmp_signed("<", end, last), end, last)


def _byte_sums(builder: Any, rows: Any, stride: Any, panel: Any, depth: Any, starts: Any) -> list[Any]:
    """The products of ROWS rows of quads, each `stride` quads after the one before, with a panel (depth, PANEL), as
    vectors of 32-bit integers; `starts` are those of `block_starts`, and `depth` is even."""
    lines, kind = _row_starts(builder, rows, stride, INT), vector(BYTE, 4 * LANES)

    def add(place: Any, sums: list[Any]) -> list[Any]:
        columns, new = _columns(builder, panel, kind, place), []
        for row, line in enumerate(lines):
            many = builder.bitcast(splat(builder, load(builder, line, INT, place)), kind)
            new += [builder.add(sums[2 * row + half], _byte_products(builder, many, columns[half])) for half in (0, 1)]
        return new

    def twice(turn: Any, sums: list[Any]) -> list[Any]:
        first = builder.mul(turn, LONG(2))
        return add(builder.add(first, LONG(1)), add(first, sums))

    def block(number: Any, totals: list[Any]) -> list[Any]:
        begin, end = _block_turns(builder, number, depth)
        fresh = _columns(builder, starts, vector(SHORT, 2 * LANES), number)
        sums = counted(builder, begin, end, fresh * ROWS, twice)
        return [builder.add(total, _shorts_added(builder, own)) for total, own in zip(totals, sums, strict=True)]

    return counted(builder, LONG(0), _blocks(builder, depth), [constant(INT, 0)] * (2 * ROWS), block)


@intrinsic
def block_starts(context, panel, depth, out):  # type: ignore[no-untyped-def]
    """What the sums of each block of a panel (depth, PANEL) of quads begin with, so that ROW_SHIFT in the bytes of
    rows does not count: -ROW_SHIFT times the sum of the concept's bytes. 16-bit integers, two for a concept."""
    signature = types.void(types.voidptr, types.int64, types.voidptr)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        panel, depth, out = arguments
        shift = constant(BYTE, ROW_SHIFT, 4 * LANES)

        def block(number: Any, nothing: list[Any]) -> list[Any]:
            def subtract(turn: Any, sums: list[Any]) -> list[Any]:
                for quad in (0, 1):
                    place = builder.add(builder.mul(turn, LONG(2)), LONG(quad))
                    columns = _columns(builder, panel, vector(BYTE, 4 * LANES), place)
                    sums = [
                        builder.sub(own, _byte_products(builder, shift, column))
                        for own, column in zip(sums, columns, strict=True)
                    ]
                return sums

            begin, end = _block_turns(builder, number, depth)
            sums = counted(builder, begin, end, [constant(SHORT, 0, 2 * LANES)] * 2, subtract)
            for half, own in enumerate(sums):
                store(builder, own, out, builder.add(builder.mul(number, LONG(2)), LONG(half)))
            return nothing

        counted(builder, LONG(0), _blocks(builder, depth), [], block)
        return context.get_dummy_value()

    return signature, emit


class TileRows(NamedTuple):
    """ROWS rows of a tile: where their quads begin, each `stride` quads after the one before, and for each row its
    shift, reach and spread (LANES numbers to read); marks go to the bytes at marks + row * marks_stride."""

    quads: Any
    stride: int
    shifts: Any
    reaches: Any
    spreads: Any
    marks: Any
    marks_stride: int


class TilePanel(NamedTuple):
    """A panel of a tile: where its quads (depth, PANEL) begin, the starts of its blocks and the offsets of its columns,
    its scale and spread."""

    quads: Any
    depth: int
    starts: Any
    offsets: Any
    scale: float
    spread: float


@intrinsic
def byte_tile(context, rows, panel, two_sided):  # type: ignore[no-untyped-def]
    """Which of ROWS x PANEL products of bytes could be large: product + shift of the row + offset of the column (its
    absolute value, if `two_sided`) >= reach of the row * scale - sqrt(spread of the row + spread), as bits of the row's
    marks, the first column lowest."""
    signature = types.void(rows, panel, types.boolean)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, stride, shifts, reaches, spreads, marks, marks_stride = unpack_tuple(builder, arguments[0])
        panel, depth, starts, offsets, scale, spread = unpack_tuple(builder, arguments[1])
        two_sided = arguments[2]
        sums, kind = _byte_sums(builder, rows, stride, panel, depth, starts), vector(FLOAT)
        shift, reach, own_spread = (load(builder, values, kind, LONG(0)) for values in (shifts, reaches, spreads))
        root = called(builder, f"llvm.sqrt.v{LANES}f32", kind, [builder.fadd(own_spread, splat(builder, spread))])
        bounds = builder.fsub(builder.fmul(reach, splat(builder, scale)), root)
        columns = _columns(builder, offsets, kind, LONG(0))
        flip = splat(builder, two_sided)
        for row in range(ROWS):
            own_shift, bound = (shuffled(builder, values, values, [row] * LANES) for values in (shift, bounds))
            line = at(builder, marks, BYTE, builder.mul(marks_stride, LONG(row)))
            for half in (0, 1):
                total = builder.sitofp(sums[2 * row + half], kind)
                total = builder.fadd(total, builder.fadd(columns[half], own_shift))
                size = builder.select(flip, called(builder, f"llvm.fabs.v{LANES}f32", kind, [total]), total)
                bits = builder.bitcast(builder.fcmp_unordered(">=", size, bound), ir.IntType(LANES))
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
        lines, kind = _row_starts(builder, rows, stride, FLOAT), vector(FLOAT)

        def add(place: Any, sums: list[Any]) -> list[Any]:
            columns, new = _columns(builder, panel, kind, place), []
            for row, line in enumerate(lines):
                many = splat(builder, load(builder, line, FLOAT, place))
                new += [multiply_add(builder, sums[2 * row + half], many, columns[half]) for half in (0, 1)]
            return new

        sums = counted(builder, LONG(0), depth, [constant(FLOAT, 0.0)] * (2 * ROWS), add)
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
        return at(builder, data, BYTE, LONG(0))

    return types.voidptr(array), emit


@intrinsic
def lowest_bit(context, word):  # type: ignore[no-untyped-def]
    """Which bit of a word that is not zero is the lowest set one."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), emit


@intrinsic
def fetch_ahead(context, start, lines):  # type: ignore[no-untyped-def]
    """Ask for memory that is needed soon, so many lines."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start, lines = arguments

        def ask(line: Any, nothing: list[Any]) -> list[Any]:
            place = at(builder, start, BYTE, builder.mul(line, LONG(LINE)))
            called(builder, "llvm.prefetch.p0", ir.VoidType(), [place, INT(0), INT(3), INT(1)])
            return nothing

        counted(builder, LONG(0), lines, [], ask)
        return context.get_dummy_value()

    return types.void(types.voidptr, types.int64), emit


@compiled
def fetch_array(array):  # type: ignore[no-untyped-def]
    """Ask for a contiguous array that is needed soon."""
    fetch_ahead(address(array), (array.size * array.itemsize + LINE - 1) // LINE)
