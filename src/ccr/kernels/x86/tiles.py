"""Products of a few rows with a panel of columns, summed in registers: what a matrix product is made of. Written once,
for registers of any width and for both ways to multiply bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.cgutils import unpack_tuple
from numba.extending import intrinsic

from ccr.kernels.x86.variants import VARIANT, Variant
from ccr.kernels.x86.vectors import (
    ADDRESS,
    BYTE,
    COUNT,
    FLOAT,
    INT,
    LONG,
    SHORT,
    at,
    called,
    constant,
    counted,
    emitting,
    load,
    multiplied_bytes,
    multiplied_pairs,
    multiply_add,
    shuffled,
    splat,
    store,
    vector,
)


class TileRows(NamedTuple):
    """The rows of a tile: where their quads begin, each `stride` quads after the one before, and for each row its
    shift, reach, slack and spread (a register of numbers to read); marks go to the bytes at marks + row *
    marks_stride."""

    quads: Any
    stride: int
    shifts: Any
    reaches: Any
    slacks: Any
    spreads: Any
    marks: Any
    marks_stride: int


class TilePanel(NamedTuple):
    """A panel of a tile: where its quads (depth, panel) begin, the starts of its blocks, the offsets and the factors of
    its columns, its scale and spread."""

    quads: Any
    depth: int
    starts: Any
    offsets: Any
    factors: Any
    scale: float
    spread: float


class Tile:
    """`rows` rows by `panel` columns, two registers a row: as many as there are registers for, 16, or 32 wide ones, if
    no fewer are asked for.

    Bytes of rows are positive, as the instructions want them, by `shift` that is added to them, and those of columns
    have a sign. An instruction that adds four products up in 32 bits (`dots`) needs nothing else. Without it two
    products are added up in 16 bits, and `block_quads` quads of them before they are in 32.
    """

    def __init__(self, variant: Variant, rows: int | None = None) -> None:
        self.lanes, self.dots = variant.lanes, variant.dots
        self.rows, self.panel = rows or (8 if self.lanes == 16 else 6), 2 * self.lanes
        self.shift = 128 if self.dots else 64
        self.block_quads = 2**40 if self.dots else 32

    def blocks(self, depth: int) -> int:
        """Number of blocks in `depth` quads."""
        return -(-depth // self.block_quads)

    def _bytes(self) -> Any:
        return vector(BYTE, 4 * self.lanes)

    def _zero(self) -> Any:
        """Initial value of sums of products."""
        return constant(INT, 0, self.lanes) if self.dots else constant(SHORT, 0, 2 * self.lanes)

    def _multiplied(self, builder: Any, sums: Any, positive: Any, signed: Any) -> Any:
        """sums + products of bytes, neighbours added up: four in 32 bits, or two in 16, into which they fit."""
        if self.dots:
            operands = (builder.bitcast(value, sums.type) for value in (positive, signed))
            return multiplied_bytes(builder, sums, *operands)
        return builder.add(sums, multiplied_pairs(builder, positive, signed))

    def _wide(self, builder: Any, sums: Any) -> Any:
        """Sums of a block in 32 bits. Compilers know the sum of neighbours as one instruction (vpmaddwd with ones)."""
        if self.dots:
            return sums
        wide = builder.sext(sums, vector(INT, 2 * self.lanes))
        even, odd = (shuffled(builder, wide, wide, list(range(first, 2 * self.lanes, 2))) for first in (0, 1))
        return builder.add(even, odd)

    def _row_starts(self, builder: Any, rows: Any, stride: Any, element: Any) -> list[Any]:
        return [at(builder, rows, element, builder.mul(stride, LONG(row))) for row in range(self.rows)]

    def _by_block(self, builder: Any, depth: Any, values: list[Any], body: Any) -> list[Any]:
        """values = body(block, first pair of quads, last pair, values) for each block of `depth` quads."""
        pairs, last = LONG(self.block_quads // 2), builder.sdiv(depth, LONG(2))

        def block(number: Any, held: list[Any]) -> list[Any]:
            begin = builder.mul(number, pairs)
            end = builder.add(begin, pairs)
            end = builder.select(builder.icmp_signed("<", end, last), end, last)
            return body(number, begin, end, held)

        if self.dots:
            return body(LONG(0), LONG(0), last, values)
        count = builder.sdiv(builder.add(last, builder.sub(pairs, LONG(1))), pairs)
        return counted(builder, LONG(0), count, values, block)

    def byte_sums(self, builder: Any, rows: TileRows, panel: TilePanel) -> list[Any]:
        """The products of the rows' bytes with the panel's, as vectors of 32-bit integers; the depth is even."""
        lines, kind = self._row_starts(builder, rows.quads, rows.stride, INT), self._bytes()

        def add(place: Any, sums: list[Any]) -> list[Any]:
            columns, new = columns_at(builder, panel.quads, kind, place), []
            for row, line in enumerate(lines):
                many = builder.bitcast(splat(builder, load(builder, line, INT, place), self.lanes), kind)
                new += [self._multiplied(builder, sums[2 * row + half], many, columns[half]) for half in (0, 1)]
            return new

        def twice(turn: Any, sums: list[Any]) -> list[Any]:
            first = builder.mul(turn, LONG(2))
            return add(builder.add(first, LONG(1)), add(first, sums))

        def block(number: Any, begin: Any, end: Any, totals: list[Any]) -> list[Any]:
            fresh = columns_at(builder, panel.starts, self._zero().type, number)
            sums = [self._wide(builder, one) for one in counted(builder, begin, end, fresh * self.rows, twice)]
            if self.dots:  # the only block
                return sums
            return [builder.add(total, own) for total, own in zip(totals, sums, strict=True)]

        return self._by_block(builder, panel.depth, [constant(INT, 0, self.lanes)] * (2 * self.rows), block)

    def store_starts(self, builder: Any, panel: Any, depth: Any, out: Any) -> None:
        """Emit the instructions of `block_starts`."""
        shift = constant(BYTE, self.shift - 256 if self.shift > 127 else self.shift, 4 * self.lanes)

        def block(number: Any, begin: Any, end: Any, nothing: list[Any]) -> list[Any]:
            def add(turn: Any, sums: list[Any]) -> list[Any]:
                for quad in (0, 1):
                    place = builder.add(builder.mul(turn, LONG(2)), LONG(quad))
                    columns = columns_at(builder, panel, self._bytes(), place)
                    sums = [
                        self._multiplied(builder, own, shift, column) for own, column in zip(sums, columns, strict=True)
                    ]
                return sums

            for half, own in enumerate(counted(builder, begin, end, [self._zero()] * 2, add)):
                place = builder.add(builder.mul(number, LONG(2)), LONG(half))
                store(builder, builder.sub(self._zero(), own), out, place)
            return nothing

        self._by_block(builder, depth, [], block)


def columns_at(builder: Any, panel: Any, kind: Any, place: Any) -> list[Any]:
    """The two registers of a panel's columns at a place of its depth."""
    first = builder.mul(place, LONG(2))
    return [load(builder, panel, kind, builder.add(first, LONG(half))) for half in (0, 1)]


def block_starts_of(tile: Tile) -> Any:
    @emitting(types.void, ADDRESS, COUNT, ADDRESS)
    def block_starts(builder, panel, depth, out):  # type: ignore[no-untyped-def]
        """Write the initial sums of each block of a panel (depth, PANEL) of quads: -SHIFT times the sum of the
        concept's bytes, which cancels SHIFT in the bytes of rows. An integer of 32 bits for a concept, or two of 16."""
        tile.store_starts(builder, panel, depth, out)

    return block_starts


def byte_tile_of(tile: Tile) -> Any:
    @intrinsic
    def byte_tile(context, rows, panel, two_sided):  # type: ignore[no-untyped-def]
        """Marks of the tile's products of bytes that could be large: product + shift of the row + offset of the column
        (its absolute value, if `two_sided`) >= (reach of the row * factor of the column - slack of the row) * scale -
        sqrt(spread of the row + spread), as bits of the row's marks, the first column lowest."""
        signature = types.void(rows, panel, types.boolean)

        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            own, panel = TileRows(*unpack_tuple(builder, arguments[0])), TilePanel(*unpack_tuple(builder, arguments[1]))
            _mark(tile, builder, own, panel, arguments[2])
            return context.get_dummy_value()

        return signature, emit

    return byte_tile


def _mark(tile: Tile, builder: Any, rows: TileRows, panel: TilePanel, two_sided: Any) -> None:
    lanes = tile.lanes
    sums, kind = tile.byte_sums(builder, rows, panel), vector(FLOAT, lanes)
    known = (rows.shifts, rows.reaches, rows.slacks, rows.spreads)
    shift, reach, slack, spread = (load(builder, each, kind, LONG(0)) for each in known)
    both = builder.fadd(spread, splat(builder, panel.spread, lanes))
    root = called(builder, f"llvm.sqrt.v{lanes}f32", kind, [both])
    scale = splat(builder, panel.scale, lanes)
    levels, less = builder.fmul(reach, scale), builder.fadd(builder.fmul(slack, scale), root)
    columns, factors = (columns_at(builder, each, kind, LONG(0)) for each in (panel.offsets, panel.factors))
    flip = splat(builder, two_sided, lanes)
    for row in range(tile.rows):
        own_shift, level, lower = (shuffled(builder, values, values, [row] * lanes) for values in (shift, levels, less))
        line = at(builder, rows.marks, BYTE, builder.mul(rows.marks_stride, LONG(row)))
        for half in (0, 1):
            total = builder.sitofp(sums[2 * row + half], kind)
            total = builder.fadd(total, builder.fadd(columns[half], own_shift))
            size = builder.select(flip, called(builder, f"llvm.fabs.v{lanes}f32", kind, [total]), total)
            bound = builder.fsub(builder.fmul(level, factors[half]), lower)
            bits = builder.bitcast(builder.fcmp_unordered(">=", size, bound), ir.IntType(lanes))
            store(builder, bits, line, LONG(half), align=1)


def float_tile_of(tile: Tile) -> Any:
    @emitting(types.void, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, COUNT)
    def float_tile(builder, rows, stride, panel, depth, out, out_stride, first):  # type: ignore[no-untyped-def]
        """ROWS x PANEL products of floats, row r into the floats at out + r * out_stride + first."""
        lines, kind = tile._row_starts(builder, rows, stride, FLOAT), vector(FLOAT, tile.lanes)

        def add(place: Any, sums: list[Any]) -> list[Any]:
            columns, new = columns_at(builder, panel, kind, place), []
            for row, line in enumerate(lines):
                many = splat(builder, load(builder, line, FLOAT, place), tile.lanes)
                new += [multiply_add(builder, sums[2 * row + half], many, columns[half]) for half in (0, 1)]
            return new

        zeros = [constant(FLOAT, 0.0, tile.lanes)] * (2 * tile.rows)
        sums = counted(builder, LONG(0), depth, zeros, add)
        for row in range(tile.rows):
            line = at(builder, out, FLOAT, builder.add(first, builder.mul(out_stride, LONG(row))))
            for half in (0, 1):
                store(builder, sums[2 * row + half], line, LONG(half))

    return float_tile


TILE = Tile(VARIANT)
#: A tile is ROWS rows by PANEL columns; SHIFT is added to the bytes of rows.
ROWS, PANEL, SHIFT = TILE.rows, TILE.panel, TILE.shift
block_starts, byte_tile, float_tile = (make(TILE) for make in (block_starts_of, byte_tile_of, float_tile_of))
#: The same for a single row, which would otherwise take as long as ROWS.
byte_line = byte_tile_of(Tile(VARIANT, rows=1))
