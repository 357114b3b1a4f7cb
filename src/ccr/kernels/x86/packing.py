"""A dictionary's rows as the columns of panels: what `tiles` multiplies rows with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ccr.kernels.plain.arguments import line_zeros
from ccr.kernels.x86.arguments import PanelColumns, RoundedRows, Screen
from ccr.kernels.x86.rounding import CONCEPT_MOST, largest_scale, noise, padded, padded_row, round_row
from ccr.kernels.x86.tiles import PANEL, TILE, block_starts
from ccr.kernels.x86.variants import compiled
from ccr.kernels.x86.vectors import INT, LANES, LONG, address, at, counted, load, shuffled, store, vector


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
