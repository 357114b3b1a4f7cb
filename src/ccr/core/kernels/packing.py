"""A dictionary's rows as the columns of panels: what `tiles` multiplies rows with."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.arguments import KeptRows, Screen
from ccr.core.kernels.compiling import compiled
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.rounding import CONCEPT_MOST, largest_scale, noise, padded, padded_row, round_row
from ccr.core.kernels.tiles import BLOCK_QUADS, LINE, PANEL, address, block_starts, transpose


def line_zeros(*shape: int, kind: type = np.float32) -> np.ndarray:
    """Zeros from the beginning of a cache line on; NumPy asks for large pages, where there are some, if it is much."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    found: np.ndarray = memory[start : start + size].view(kind).reshape(shape)
    found[...] = 0
    return found


def empty_screen(panels: int, d: int) -> Screen:
    """Room for a dictionary in bytes, of so many panels."""
    width, (row_noise, concept_noise) = padded(d), noise(d)
    return Screen(
        quads=line_zeros(panels, width // 4, PANEL, kind=np.int32),
        starts=line_zeros(panels, -(-width // (4 * BLOCK_QUADS)), PANEL, kind=np.int32),
        offsets=line_zeros(panels, PANEL), scales=line_zeros(panels),
        row_noise=row_noise, concept_noise=concept_noise,
    )  # fmt: skip


def unrounded(m: int, d: int) -> KeptRows:
    """Room for the bytes of m rows, none of which is rounded yet."""
    return KeptRows(line_zeros(m, padded(d) // 4, kind=np.int32), line_zeros(m, 4))


@compiled
def pack_concepts(first, last, dictionary, screen, floats):  # type: ignore[no-untyped-def]
    """Rows first:last of the dictionary, `first` the first of a panel, into the columns of panels: as bytes into the
    screen, as they are into `floats` (panels, d, PANEL); the one without panels is left out."""
    for start in range(first, last, PANEL):
        rows, panel = dictionary[start : min(start + PANEL, last)], start // PANEL
        if len(screen.quads) > 0:
            _pack_bytes(rows, panel, screen)
        if len(floats) > 0:
            _into_columns(rows, floats[panel])


@compiled
def _pack_bytes(rows, panel, screen):  # type: ignore[no-untyped-def]
    """At most PANEL rows into a panel of the screen, with one scale."""
    width = len(screen.row_noise)
    quads, room, found = np.empty((PANEL, width // 4), np.int32), np.zeros(width, np.float32), np.empty(3, np.float32)
    scale = np.float32(np.inf)
    for row in range(len(rows)):
        scale = min(scale, largest_scale(padded_row(rows[row], width, room), width, CONCEPT_MOST, found))
    for row in range(len(rows)):
        start = padded_row(rows[row], width, room)
        screen.offsets[panel, row] = -round_row(
            start, width, scale, screen.concept_noise, screen.row_noise, np.int64(0), quads[row]
        )
    _into_columns(quads[: len(rows)], screen.quads[panel])
    block_starts(address(screen.quads[panel]), width // 4, address(screen.starts[panel]))
    screen.scales[panel] = scale


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
