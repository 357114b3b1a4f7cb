"""A dictionary's rows as the columns of panels: what `tiles` multiplies rows with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ccr.kernels.plain.arguments import line_zeros
from ccr.kernels.plain.rows import copy_into
from ccr.kernels.x86.arguments import PanelColumns, RoundedRows, Screen
from ccr.kernels.x86.tiles import PANEL, SHIFT, TILE, block_starts
from ccr.kernels.x86.variants import compiled
from ccr.kernels.x86.vectors import (
    ADDRESS,
    BYTE,
    COUNT,
    FLOAT,
    INT,
    LANES,
    LONG,
    address,
    at,
    called,
    constant,
    counted,
    emitting,
    load,
    shuffled,
    splat,
    store,
    totals,
    vector,
)

# Rows rounded to bytes, and why a product of bytes tells which scores could be active. A row x becomes q = round(s x
# + u), a concept, a unit row d, becomes p = round(t d + v), with scales s and t and noise u and v, uniform within
# (-1/2, 1/2), drawn once per column, for all rows u and for all concepts v. The score <x, d> is active if it reaches
# the threshold; screening computes <q - u, p - v> and looks at the score itself, in floats, if that product reaches
# s t times the threshold less SPREAD sigma, with sigma^2 = (L^2 + t^2) / 12 and L = s |x| + sqrt(w) / 2 for rows of
# w bytes (`score._round_rows`, `tiles.byte_tile`). Claim: whatever x and d are, if they do not depend on the noise,
# an active score is missed with a probability, over the noise, of at most exp(-SPREAD^2 / 2) = 6.1e-13. Proof. Let e
# = q - u - s x and f = p - v - t d. Rounding after adding uniform noise and taking the noise out again leaves an
# error that is uniform within (-1/2, 1/2), whatever the number was; so all errors are independent and uniform: <q -
# u, p - v> - s t <x, d> = t <e, d> + <f, q - u>. A uniform variable within (-1/2, 1/2) has E exp(l e) <= exp(l^2 /
# 24), as a normal one of variance 1/12. Given u, the second term hence has E exp(l <f, q - u>) <= exp(l^2 |q - u|^2
# / 24), and |q - u| <= s |x| + |e| <= L whatever u is; the first has E exp(l t <e, d>) <= exp(l^2 t^2 / 24), as |d|
# = 1. Together E exp(l error) <= exp(l^2 sigma^2 / 2), and by Chernoff's bound the error is below -k sigma with a
# probability of at most exp(-k^2 / 2). An active score is missed only if it is: on one side, which depends on the
# score's sign. (Floats add their own rounding: `score.SLACK`.) What that means for an epoch of ImageNet, 1.28
# million rows and 4,523 concepts: of 5.8e9 comparisons only those of active scores can miss, 47 per row or 6.0e7, so
# that 3.7e-5 misses are expected at most, one in 27,000 epochs; even if all 5.8e9 scores stood at the threshold, it
# would be 0.0035. A score above the threshold by m must be missed by SPREAD sigma + m: what can be lost at all is a
# concept that is nearly inactive, from the code of one row. Misses are not independent, because all rows share the
# noise, but their expected number does not care. The claim is about rows that do not depend on the noise. Who knows
# it can build a row whose roundings all point one way, and lose an active concept
# (`test_rows_built_against_a_known_noise`). So the noise of a training is drawn from its seed, and that of a
# prediction from the operating system, for each encoder anew. Answers do not depend on it, a miss apart: scores are
# computed in floats, to the bit the same whichever others are (`vectors.dot_rows`). (A training also counts the
# scores that it looks at and stops screening if they are many; so its steps do depend on it there, by the seed.)
# Without noise only the worst case would be safe, sqrt(w) / 2 (|q| + |p|): seven times as wide for 512 numbers and
# rows of the same scale.
#: Standard deviations (sigma above) within which the error of a product is taken to be.
SPREAD = 7.5
#: Offset of the seed of a fit's noise: other numbers are drawn from the fit's seed itself.
NOISE = 20250206
#: Numbers that are rounded at once: rows of bytes are a multiple as wide.
STEP = 4 * LANES
#: Largest bytes of rows and of concepts, the first so that `SHIFT` makes them positive.
ROW_MOST, CONCEPT_MOST = np.float32(SHIFT - 1), np.float32(127.0)
DOTS = TILE.dots
#: Numbers of a block that is summed up in 16 bits.
BLOCK = 128 if TILE.dots else 4 * TILE.block_quads
#: Bytes whose products are summed up together, half a block (two of each quad) in 16 bits or a row in 32, have at most
#: this length: then the sum fits, by Cauchy and Schwarz.
LONGEST_BYTES = np.float32(46_340.0 if TILE.dots else 181.0)


def noise(d: int, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The noise of rows and of concepts: as many numbers as bytes, zeros beyond d. It is that of a seed, or, for None,
    drawn afresh from the operating system."""
    numbers = np.zeros((2, padded(d)), np.float32)
    rng = np.random.default_rng(None if seed is None else [seed, NOISE])
    numbers[:, :d] = rng.uniform(-0.5, 0.5, (2, d))
    return numbers[0], numbers[1]


def padded(d: int) -> int:
    """Bytes of a row of d numbers."""
    return -(-d // STEP) * STEP


def _larger(builder: Any, one: Any, two: Any) -> Any:
    """The larger numbers of each lane; where one is NaN, those of `two`."""
    return builder.select(builder.fcmp_ordered(">", one, two), one, two)


def _halves(builder: Any, sums: Any) -> Any:
    """Each lane's half of the sums of a block: lanes 0 and 1 of each four are one half, 2 and 3 the other."""
    for run in (1, 4, 8):
        if run < LANES:
            sums = builder.fadd(sums, shuffled(builder, sums, sums, [lane ^ run for lane in range(LANES)]))
    return sums


def _largest(builder: Any, values: Any) -> Any:
    """The largest of a vector's numbers, among which no NaN is (see `_larger`)."""
    return called(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", FLOAT, [values], fastmath=("nnan",))


@emitting(types.void, ADDRESS, COUNT, ADDRESS)
def _extents(builder, values, count, out):  # type: ignore[no-untyped-def]
    """Write three statistics of `count` numbers, a multiple of STEP, to `out`: the largest |number|, the largest sum of
    squares of half a block, the sum of all squares."""
    zero, kind = constant(FLOAT, 0.0), vector(FLOAT)
    per_block = BLOCK // LANES
    vectors = builder.sdiv(count, LONG(LANES))

    def block(number: Any, held: list[Any]) -> list[Any]:
        begin = builder.mul(number, LONG(per_block))
        end = builder.add(begin, LONG(per_block))
        end = builder.select(builder.icmp_signed("<", end, vectors), end, vectors)

        def add(turn: Any, sums: list[Any]) -> list[Any]:
            most, *squares = sums
            for part in range(4):
                place = builder.add(builder.mul(turn, LONG(4)), LONG(part))
                value = load(builder, values, kind, place)
                most = _larger(builder, called(builder, f"llvm.fabs.v{LANES}f32", kind, [value]), most)
                squares[part] = builder.fadd(squares[part], builder.fmul(value, value, ("contract",)), ("contract",))
            return [most, *squares]

        quarter = LONG(4)
        most, *squares = counted(
            builder, builder.sdiv(begin, quarter), builder.sdiv(end, quarter), [held[0], *[zero] * 4], add
        )
        square = builder.fadd(builder.fadd(squares[0], squares[1]), builder.fadd(squares[2], squares[3]))
        return [most, _larger(builder, _halves(builder, square), held[1]), builder.fadd(held[2], square)]

    blocks = builder.sdiv(builder.add(vectors, LONG(per_block - 1)), LONG(per_block))
    most, half, square = counted(builder, LONG(0), blocks, [zero] * 3, block)
    for place, largest in enumerate((most, half)):
        store(builder, _largest(builder, largest), out, LONG(place))
    store(builder, totals(builder, [square])[0], out, LONG(2))


def _within_bytes(builder: Any, values: Any) -> Any:
    """Values of bytes as they are; of NaN and others too, because an integer of those is anything that LLVM likes."""
    low, high = constant(FLOAT, -128.0), constant(FLOAT, 127.0)
    values = builder.select(builder.fcmp_ordered(">", values, low), values, low)
    return builder.select(builder.fcmp_ordered("<", values, high), values, high)


@emitting(types.float32, ADDRESS, types.float32, ADDRESS, ADDRESS, COUNT, COUNT, ADDRESS)
def _rounded(builder, values, factor, noise, weights, shift, count, out):  # type: ignore[no-untyped-def]
    """q = round(factor * values + noise), of `count` numbers, a multiple of STEP; q + shift as bytes at out. Returns
    <q, weights>, NaN if a number is."""
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
        low, high = (shuffled(builder, one, two, list(range(2 * LANES))) for one, two in (quarters[:2], quarters[2:]))
        ints = shuffled(builder, low, high, list(range(STEP)))
        store(builder, builder.trunc(ints, vector(BYTE, STEP)), out, step, align=1)
        return new

    steps = builder.sdiv(count, LONG(STEP))
    sums = counted(builder, LONG(0), steps, [constant(FLOAT, 0.0)] * 4, body)
    together = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
    return totals(builder, [together])[0]


@compiled
def padded_row(row, width, room):  # type: ignore[no-untyped-def]
    """Address of the row, if it is so wide; otherwise of its copy in `room`, with zeros beyond it."""
    if len(row) == width:
        return address(row)
    copy_into(room, row)
    return address(room)


@compiled
def largest_scale(start, width, most, out):  # type: ignore[no-untyped-def]
    """The largest scale with which no byte of the row exceeds `most`, nor bytes summed up together LONGEST_BYTES;
    infinite for zeros. `out` (3,) is written over, its last number with the row's square sum."""
    _extents(start, width, address(out))
    together, square = (np.float32(width), out[2]) if DOTS else (np.float32(BLOCK // 2), out[1])
    # Rounding and noise make each number larger by at most 1.
    return min((most - np.float32(1.0)) / out[0], (LONGEST_BYTES - np.sqrt(together)) / np.sqrt(square))


@compiled
def round_row(start, width, scale, noise, weights, shift, out):  # type: ignore[no-untyped-def]
    """Bytes of a row, four in each element of `out`, with `shift` added; their product with the weights, without
    it."""
    return _rounded(start, scale, address(noise), address(weights), shift, width, address(out))


class DictionaryInPanels:
    """A dictionary's rows as the columns of panels, in bytes if scores are `screened`, otherwise in floats, with the
    `factors` (n,) of its concepts' bounds, None: 1. The noise of the bytes is that of the `seed`, or drawn afresh for
    None."""

    def __init__(
        self, dictionary: np.ndarray, *, screened: bool, seed: int | None, factors: np.ndarray | None = None
    ) -> None:
        n, d = dictionary.shape
        count, width, (row_noise, concept_noise) = -(-n // PANEL), padded(d), noise(d, seed)
        in_bytes, in_floats = (count, 0) if screened else (0, count)
        screen = Screen(
            quads=line_zeros(in_bytes, width // 4, PANEL, kind=np.int32),
            starts=line_zeros(in_bytes, TILE.blocks(width // 4), PANEL, kind=np.int32),
            offsets=line_zeros(in_bytes, PANEL), scales=line_zeros(in_bytes),
            row_noise=row_noise, concept_noise=concept_noise,
        )  # fmt: skip
        columns = line_zeros(count * PANEL)
        columns[:n] = 1.0 if factors is None else factors
        self.panels = PanelColumns(dictionary, screen, line_zeros(in_floats, d, PANEL), columns, 0)
        self.pack()

    def pack(self) -> None:
        """Take in the dictionary's rows, which moved."""
        pack_concepts(0, len(self.panels.dictionary), self.panels)


def unrounded(m: int, d: int) -> RoundedRows:
    """Space for the bytes of m rows, none of which is rounded yet."""
    return RoundedRows(line_zeros(m, padded(d) // 4, kind=np.int32), line_zeros(m, 4))


@compiled
def pack_concepts(first, last, panels):  # type: ignore[no-untyped-def]
    """Rows first:last of the dictionary, `first` the first of a panel, into the columns of the panels."""
    for start in range(first, last, PANEL):
        rows, panel = panels.dictionary[start : min(start + PANEL, last)], start // PANEL
        if len(panels.screen.quads) > 0:
            _pack_bytes(rows, panel, panels.screen)
        if len(panels.floats) > 0:
            _into_columns(rows, panels.floats[panel])


@compiled
def _pack_bytes(rows, panel, screen):  # type: ignore[no-untyped-def]
    """At most PANEL rows into a panel of the screen, with one scale."""
    width = len(screen.row_noise)
    quads, padding = np.empty((PANEL, width // 4), np.int32), np.zeros(width, np.float32)
    extents = np.empty(3, np.float32)
    scale = np.float32(np.inf)
    for row in range(len(rows)):
        scale = min(scale, largest_scale(padded_row(rows[row], width, padding), width, CONCEPT_MOST, extents))
    for row in range(len(rows)):
        start = padded_row(rows[row], width, padding)
        screen.offsets[panel, row] = -round_row(
            start, width, scale, screen.concept_noise, screen.row_noise, np.int64(0), quads[row]
        )
    _into_columns(quads[: len(rows)], screen.quads[panel])
    block_starts(address(screen.quads[panel]), width // 4, address(screen.starts[panel]))
    screen.scales[panel] = scale


@emitting(types.void, ADDRESS, COUNT, COUNT, ADDRESS)
def transpose(builder, rows, stride, blocks, out):  # type: ignore[no-untyped-def]
    """The columns of LANES rows, each `stride` elements of 32 bits after the one before, LANES * blocks columns: column
    c into the LANES elements at out + c * PANEL."""
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


@compiled
def _into_columns(rows, panel):  # type: ignore[no-untyped-def]
    """panel[:, :len(rows)] = the transpose of at most PANEL rows, of as many columns as the panel is deep."""
    depth, whole = len(panel), len(rows) // LANES * LANES
    blocks = depth // LANES
    for row in range(0, whole, LANES):
        transpose(address(rows[row:]), rows.shape[1], blocks, address(panel[0, row:]))
        for place in range(blocks * LANES, depth):
            for lane in range(LANES):
                panel[place, row + lane] = rows[row + lane, place]
    for row in range(whole, len(rows)):
        for place in range(depth):
            panel[place, row] = rows[row, place]
