"""Active entries of rows x (b, d) under a dictionary (n, d): the one dense product of METHOD 3.

Few scores are active. Where it is faster, all are computed in 16-bit integers first; those that could reach the
threshold, by a bound on the rounding, are then computed in floats, and these decide. Nothing is lost: what is left out
cannot be active.
"""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled, part
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.rounding import round_row
from ccr.core.kernels.select import ONE_SIDED, TWO_SIDED, mixed_bits, select_active
from ccr.core.kernels.tiles import PANEL, ROWS, address, fetch_ahead, float_tile, lowest_bit, short_tile, transpose
from ccr.core.kernels.vectors import copy_into, dot, dot_rows

#: A number of size 1 as a 16-bit integer. Products of unit rows stay below its square, which fits into 32 bits.
UNIT = np.float32(32767.0)
MOST = np.int32(2**31 - 1)
#: Rows that `code_rows` works on at once.
BLOCK = 16 * ROWS


@compiled
def rounded_width(d):  # type: ignore[no-untyped-def]
    """Pairs that `round_row` makes of d numbers."""
    return (d + 2 * LANES - 1) // (2 * LANES) * LANES


@compiled
def pack_concepts(first, last, dictionary, pairs, floats):  # type: ignore[no-untyped-def]
    """Rows first:last of the dictionary, `first` the first of a panel, into the columns of panels: as pairs of 16-bit
    integers into `pairs` (panels, ceil(d / 2), PANEL), as they are into `floats` (panels, d, PANEL); the one without
    panels is left out."""
    d = dictionary.shape[1]
    rounded = np.zeros((PANEL, rounded_width(d)), np.int32)
    for start in range(first, last, PANEL):
        stop = min(start + PANEL, last)
        if len(pairs) > 0:
            for concept in range(start, stop):
                round_row(dictionary[concept], UNIT, rounded[concept - start])
            _into_columns(rounded[: stop - start], pairs[start // PANEL])
        if len(floats) > 0:
            _into_columns(dictionary[start:stop], floats[start // PANEL])


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


@part
def _round_rows(x, rows, threshold, rounded, bounds):  # type: ignore[no-untyped-def]
    """Rows as unit rows of 16-bit integers, and what their product with a concept's must reach to be looked at."""
    d = x.shape[1]
    off = np.sqrt(np.float64(d)) / 2.0 / np.float64(UNIT)  # how far rounding can move a unit row
    slack = off * (2.0 + off) + 1e-5
    for place in range(len(rounded)):
        if place >= len(rows):
            rounded[place] = 0
            bounds[place] = MOST
            continue
        row = x[rows[place]]
        norm = np.float64(np.sqrt(dot(row, row)))
        if norm > 1e-15 and norm < 1e15:
            round_row(row, UNIT / np.float32(norm), rounded[place])
            bound = (threshold / norm - slack) * np.float64(UNIT) ** 2
            bounds[place] = np.int32(max(min(bound, np.float64(MOST)), -np.float64(MOST)))
        else:
            rounded[place] = 0
            bounds[place] = -MOST  # its squares vanish or overflow: every score is looked at


@part
def _candidates(words, n, out):  # type: ignore[no-untyped-def]
    """The concepts, of n, whose bits are set in the words; how many."""
    count = 0
    for word in range(len(words)):
        bits = words[word]
        while bits != 0:
            concept = 64 * word + lowest_bit(bits)
            bits &= bits - 1
            if concept < n:
                out[count] = concept
                count += 1
    return count


@part
def _screened(x, rows, later, dictionary, pairs, kind, bound, first, dropped, salt, pointers, indices, data):  # type: ignore[no-untyped-def]
    b, n = len(rows), len(dictionary)
    depth, panels = pairs.shape[1], len(pairs)
    rounded = np.empty(((b + ROWS - 1) // ROWS * ROWS, rounded_width(x.shape[1])), np.int32)
    bounds = np.empty(len(rounded), np.int32)
    _round_rows(x, rows, np.float64(bound), rounded, bounds)
    marks = np.zeros((len(rounded), (panels * PANEL + 63) // 64), np.int64)
    line, asked = 8 * marks.shape[1], 0
    for panel in range(panels):
        for row in range(0, len(rounded), ROWS):
            if asked < len(later):
                fetch_ahead(address(x[later[asked]]), x.shape[1] * 4 // 64)
                asked += 1
            short_tile(
                address(rounded[row:]), rounded.shape[1], address(pairs[panel:]), depth, address(bounds[row:]),
                kind == TWO_SIDED, address(marks[row:]), line, panel * (PANEL // 8),
            )  # fmt: skip
    chosen, values = np.empty(n, np.int32), np.empty(n, np.float32)
    room, place, active = len(indices), 0, 0
    pointers[0] = 0
    for row in range(b):
        count = _candidates(marks[row], n, chosen)
        dot_rows(x[rows[row]], dictionary, chosen, np.int64(0), np.int64(count), np.float32(1.0), values)
        for entry in range(count):
            value = values[entry]
            if not (value > bound if kind == ONE_SIDED else abs(value) >= bound) or value == np.float32(0.0):
                continue
            active += 1
            if dropped > 0 and mixed_bits(first + row, chosen[entry], salt) < np.uint64(dropped):
                continue
            if place < room:
                indices[place] = chosen[entry]
                data[place] = value
            place += 1
        pointers[row + 1] = place
    return active


@part
def _scored(x, rows, floats, kind, bound, length, first, dropped, salt, pointers, indices, data):  # type: ignore[no-untyped-def]
    b, d, panels = len(rows), x.shape[1], len(floats)
    block = np.zeros(((b + ROWS - 1) // ROWS * ROWS, d), np.float32)
    for row in range(b):
        copy_into(block[row], x[rows[row]])
    scores = np.empty((len(block), panels * PANEL), np.float32)
    for panel in range(panels):
        for row in range(0, len(block), ROWS):
            float_tile(
                address(block[row:]), d, address(floats[panel:]), d, address(scores[row:]), scores.shape[1],
                panel * PANEL,
            )  # fmt: skip
    # Columns beyond the last concept are zero, and zeros are never active.
    return select_active(scores[:b], kind, bound, length, first, dropped, salt, pointers, indices, data)


@compiled
def active_entries(  # type: ignore[no-untyped-def]
    x, rows, later, dictionary, pairs, floats, kind, bound, length, first, dropped, salt, pointers, indices, data
):
    """Active entries of the rows x[rows], by panels that `pack_concepts` made of the dictionary; the rest, and what is
    returned, as in `select_active`. Thresholds take `pairs` if there are any. Rows x[later] are asked for meanwhile,
    because they come next."""
    if len(pairs) > 0:
        return _screened(x, rows, later, dictionary, pairs, kind, bound, first, dropped, salt, pointers, indices, data)
    return _scored(x, rows, floats, kind, bound, length, first, dropped, salt, pointers, indices, data)


@compiled
def code_rows(x, dictionary, pairs, floats, kind, bound, length, pointers, indices, data):  # type: ignore[no-untyped-def]
    """Active entries of all rows of x, some at a time so that they stay in the cache, as `active_entries` does."""
    rows, ends, place = np.empty(len(x), np.int32), np.empty(BLOCK + 1, np.int32), 0
    for row in range(len(x)):
        rows[row] = row
    pointers[0] = 0
    for start in range(0, len(x), BLOCK):
        stop = min(start + BLOCK, len(x))
        here = min(place, len(indices))
        active_entries(
            x, rows[start:stop], rows[:0], dictionary, pairs, floats, kind, bound, length, np.int64(0), np.int64(0),
            np.uint64(0), ends, indices[here:], data[here:],
        )  # fmt: skip
        for row in range(start, stop):
            pointers[row + 1] = place + ends[row - start + 1]
        place += ends[stop - start]
