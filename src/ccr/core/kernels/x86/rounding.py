"""Rows rounded to bytes, with noise that makes the rounding of a product small and its size known.

A number z becomes q = round(s z + u), with the row's scale s and noise u, uniform within (-1/2, 1/2), drawn once for
each column. Whatever z is, the error q - u - s z is then uniform within (-1/2, 1/2) too, and those of the columns are
independent: errors of a product of two rows add up like random signs, and the chance of more than SPREAD standard
deviations is less than exp(-SPREAD^2 / 2). Without noise the errors of strange rows could all point one way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ccr.core.kernels.compiling import compiled
from ccr.core.kernels.plain.arguments import LANES
from ccr.core.kernels.plain.vectors import copy_into
from ccr.core.kernels.x86.llvm import (
    BYTE,
    FLOAT,
    INT,
    LONG,
    called,
    constant,
    counted,
    load,
    shuffled,
    splat,
    store,
    totals,
    vector,
)
from ccr.core.kernels.x86.tiles import BLOCK_QUADS, ROW_SHIFT, address

#: Standard deviations within which the error of a product is taken to be: it is not once in 10^12 times.
SPREAD = 7.5
#: Numbers that are rounded at once: rows of bytes are a multiple as wide.
STEP = 4 * LANES
#: Largest bytes of rows and of concepts, the first so that `ROW_SHIFT` makes them positive.
ROW_MOST, CONCEPT_MOST = np.float32(ROW_SHIFT - 1), np.float32(127.0)
#: Half the numbers of a block (two of each quad) as bytes have at most this length: then their sum of products with
#: those of another row fits into 16 bits, by Cauchy and Schwarz.
BLOCK_LENGTH = np.float32(181.0)
#: How much longer rounding and noise can make them: by 1 each.
BLOCK_ROUNDING = np.float32(np.sqrt(2.0 * BLOCK_QUADS))


def noise(d: int) -> tuple[np.ndarray, np.ndarray]:
    """The noise of rows and of concepts: as many numbers as bytes, zeros beyond d."""
    found = np.zeros((2, padded(d)), np.float32)
    found[:, :d] = np.random.default_rng(20250206).uniform(-0.5, 0.5, (2, d))
    return found[0], found[1]


def padded(d: int) -> int:
    """Bytes of a row of d numbers."""
    return -(-d // STEP) * STEP


@intrinsic
def _extents(context, values, count, out):  # type: ignore[no-untyped-def]
    """Of `count` numbers, a multiple of STEP, at out: the largest |number|, the largest square sum of half a block,
    the sum of all squares."""
    signature = types.void(types.voidptr, types.int64, types.voidptr)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        values, count, out = arguments
        zero, kind = constant(FLOAT, 0.0), vector(FLOAT)
        per_block = 4 * BLOCK_QUADS // LANES
        vectors = builder.sdiv(count, LONG(LANES))

        def larger(one: Any, two: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", one, two), one, two)

        def block(number: Any, held: list[Any]) -> list[Any]:
            begin = builder.mul(number, LONG(per_block))
            end = builder.add(begin, LONG(per_block))
            end = builder.select(builder.icmp_signed("<", end, vectors), end, vectors)

            def add(turn: Any, sums: list[Any]) -> list[Any]:
                most, *squares = sums
                for part in range(4):
                    place = builder.add(builder.mul(turn, LONG(4)), LONG(part))
                    own = load(builder, values, kind, place)
                    most = larger(called(builder, f"llvm.fabs.v{LANES}f32", kind, [own]), most)
                    squares[part] = builder.fadd(squares[part], builder.fmul(own, own, ("contract",)), ("contract",))
                return [most, *squares]

            quarter = LONG(4)
            most, *squares = counted(
                builder, builder.sdiv(begin, quarter), builder.sdiv(end, quarter), [held[0], *[zero] * 4], add
            )
            square = builder.fadd(builder.fadd(squares[0], squares[1]), builder.fadd(squares[2], squares[3]))
            half, run = square, 1
            while run < LANES:  # lanes 0 and 1 of each four are one half, 2 and 3 the other
                if run != 2:
                    half = builder.fadd(half, shuffled(builder, half, half, [lane ^ run for lane in range(LANES)]))
                run *= 2
            return [most, larger(half, held[1]), builder.fadd(held[2], square)]

        blocks = builder.sdiv(builder.add(vectors, LONG(per_block - 1)), LONG(per_block))
        most, half, square = counted(builder, LONG(0), blocks, [zero] * 3, block)
        for place, found in enumerate((most, half)):
            name = f"llvm.vector.reduce.fmax.v{LANES}f32"
            store(builder, called(builder, name, FLOAT, [found], fastmath=("nnan",)), out, LONG(place))
        store(builder, totals(builder, [square])[0], out, LONG(2))
        return context.get_dummy_value()

    return signature, emit


def _within_bytes(builder: Any, values: Any) -> Any:
    """Values of bytes as they are; of NaN and others too, because an integer of those is anything that LLVM likes."""
    low, high = constant(FLOAT, -128.0), constant(FLOAT, 127.0)
    values = builder.select(builder.fcmp_ordered(">", values, low), values, low)
    return builder.select(builder.fcmp_ordered("<", values, high), values, high)


@intrinsic
def _rounded(context, values, factor, noise, weights, shift, count, out):  # type: ignore[no-untyped-def]
    """q = round(factor * values + noise), of `count` numbers, a multiple of STEP; q + shift as bytes at out. Returns
    <q, weights>, NaN if a number is."""
    pointer, number = types.voidptr, types.int64
    signature = types.float32(pointer, types.float32, pointer, pointer, number, number, pointer)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        values, factor, noise, weights, shift, count, out = arguments
        kind, factors = vector(FLOAT), splat(builder, factor)
        shifts = splat(builder, builder.trunc(shift, INT))

        def body(step: Any, sums: list[Any]) -> list[Any]:
            quarters, new = [], []
            for part in range(4):
                place = builder.add(builder.mul(step, LONG(4)), LONG(part))
                moved = builder.fadd(
                    builder.fmul(load(builder, values, kind, place), factors, ("contract",)),
                    load(builder, noise, kind, place), ("contract",),
                )  # fmt: skip
                whole = called(builder, f"llvm.rint.v{LANES}f32", kind, [moved])
                weighted = builder.fmul(whole, load(builder, weights, kind, place), ("contract",))
                new.append(builder.fadd(sums[part], weighted, ("contract",)))
                quarters.append(builder.add(builder.fptosi(_within_bytes(builder, whole), vector(INT)), shifts))
            low, high = (
                shuffled(builder, one, two, list(range(2 * LANES))) for one, two in (quarters[:2], quarters[2:])
            )
            ints = shuffled(builder, low, high, list(range(STEP)))
            store(builder, builder.trunc(ints, vector(BYTE, STEP)), out, step, align=1)
            return new

        steps = builder.sdiv(count, LONG(STEP))
        sums = counted(builder, LONG(0), steps, [constant(FLOAT, 0.0)] * 4, body)
        together = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        return totals(builder, [together])[0]

    return signature, emit


@compiled
def padded_row(row, width, room):  # type: ignore[no-untyped-def]
    """Where the row begins, if it is so wide; otherwise where its copy in `room` does, with zeros beyond it."""
    if len(row) == width:
        return address(row)
    copy_into(room, row)
    return address(room)


@compiled
def largest_scale(start, width, most, out):  # type: ignore[no-untyped-def]
    """The largest scale with which no byte of the row exceeds `most`, nor half a block BLOCK_LENGTH; infinite for
    zeros. `out` (3,) is written over, its last number with the row's square sum."""
    _extents(start, width, address(out))
    return min((most - np.float32(1.0)) / out[0], (BLOCK_LENGTH - BLOCK_ROUNDING) / np.sqrt(out[1]))


@compiled
def round_row(start, width, scale, noise, weights, shift, out):  # type: ignore[no-untyped-def]
    """Bytes of a row, four in each element of `out`, with `shift` added; their product with the weights, without
    it."""
    return _rounded(start, scale, address(noise), address(weights), shift, width, address(out))
