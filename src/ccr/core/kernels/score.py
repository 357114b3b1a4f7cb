"""Active entries of rows x (b, d) under a dictionary (n, d): the one dense product of METHOD 3.

Few scores are active. Where it is faster, all are computed in bytes first, more than three times as fast as in floats;
those that could reach the threshold, by a bound on the rounding (`rounding`), are then computed in floats, and these
decide. An active score is left out less than once in 10^12 times.
"""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.arguments import NORM, PRODUCT, SCALE, KeptRows
from ccr.core.kernels.compiling import compiled, part
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.rounding import ROW_MOST, SPREAD, largest_scale, padded_row, round_row
from ccr.core.kernels.select import ONE_SIDED, TWO_SIDED, mixed_bits, select_active
from ccr.core.kernels.tiles import (
    PANEL,
    ROW_SHIFT,
    ROWS,
    address,
    byte_tile,
    fetch_array,
    float_tile,
    lowest_bit,
)
from ccr.core.kernels.vectors import copy_into, dot, dot_rows

#: Rows that `code_rows` works on at once.
BLOCK = 16 * ROWS
#: Variance of an error that is uniform within (-1/2, 1/2), times SPREAD^2.
VARIANCE = np.float32(SPREAD**2 / 12.0)
#: Rows between these lengths are rounded; squares of others vanish or overflow.
SHORTEST, LONGEST = np.float32(1e-15), np.float32(1e15)
#: Rows are asked for again so many before their scores are computed in floats.
SOON = 2
#: Room for the rounding of floats, relative to a row's length.
SLACK = 1e-5


@part
def _round_row(row, screen, room, out, about):  # type: ignore[no-untyped-def]
    """A row as bytes, and what is known of it, as `KeptRows` has it."""
    width = len(screen.row_noise)
    start = padded_row(row, width, room)
    about[SCALE] = largest_scale(start, width, ROW_MOST, about)
    about[NORM] = np.sqrt(about[NORM])
    if about[NORM] > SHORTEST and about[NORM] < LONGEST:
        about[PRODUCT] = round_row(
            start, width, about[SCALE], screen.row_noise, screen.concept_noise, np.int64(ROW_SHIFT), out
        )
    else:
        out[:] = 0


@part
def _round_rows(x, rows, threshold, screen, kept, quads, shifts, reaches, spreads):  # type: ignore[no-untyped-def]
    """Rows as bytes, with what `byte_tile` wants to know of each; those beyond the last reach nothing."""
    width, keeps = len(screen.row_noise), len(kept.quads) > 0
    room, own = np.zeros(width, np.float32), np.empty(3, np.float32)
    both = dot(screen.row_noise, screen.concept_noise)
    reaches[:], spreads[:], shifts[:] = np.float32(np.inf), np.float32(0.0), np.float32(0.0)
    quads[len(rows) :] = 0
    for place in range(len(rows)):
        row = rows[place]
        about = kept.about[row] if keeps else own
        if keeps and about[SCALE] > np.float32(0.0):
            copy_into(quads[place], kept.quads[row])
        else:
            _round_row(x[row], screen, room, quads[place], about)
            if keeps:
                copy_into(kept.quads[row], quads[place])
        scale, norm = about[SCALE], np.float64(about[NORM])
        if norm > SHORTEST and norm < LONGEST:
            shifts[place] = both - about[PRODUCT]
            reaches[place] = (threshold - SLACK * norm) * scale
            length = norm * scale + np.sqrt(np.float64(width)) / 2.0  # of the bytes without noise, at most
            spreads[place] = VARIANCE * np.float32(length * length)
        else:
            reaches[place] = -np.float32(np.inf)  # every score is looked at


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
def _fetch_row(x, kept, row):  # type: ignore[no-untyped-def]
    """Ask for a row, and for its bytes."""
    fetch_array(x[row])
    if len(kept.quads) > 0:
        fetch_array(kept.about[row])
        fetch_array(kept.quads[row])


@part
def _screened(x, rows, later, kept, dictionary, screen, kind, bound, first, dropped, salt, pointers, indices, data):  # type: ignore[no-untyped-def]
    b, n = len(rows), len(dictionary)
    panels, depth = screen.quads.shape[:2]
    quads = np.empty(((b + ROWS - 1) // ROWS * ROWS, depth), np.int32)
    shifts, reaches, spreads = np.empty((3, len(quads) + LANES), np.float32)
    _round_rows(x, rows, np.float64(bound), screen, kept, quads, shifts, reaches, spreads)
    marks = np.zeros((len(quads), (panels * PANEL + 63) // 64), np.int64)
    line, asked = 8 * marks.shape[1], 0
    for panel in range(panels):
        scale = screen.scales[panel]
        spread = VARIANCE * scale * scale
        for row in range(0, len(quads), ROWS):
            if asked < len(later):
                _fetch_row(x, kept, later[asked])
                asked += 1
            byte_tile(
                address(quads[row:]), depth, address(shifts[row:]), address(reaches[row:]), address(spreads[row:]),
                kind == TWO_SIDED, address(screen.quads[panel:]), depth, address(screen.starts[panel:]),
                address(screen.offsets[panel:]), scale, spread, address(marks[row:]), line, panel * (PANEL // 8),
            )  # fmt: skip
    chosen, values = np.empty(n, np.int32), np.empty(n, np.float32)
    room, place, active, looked = len(indices), 0, 0, 0
    pointers[0] = 0
    for row in range(b):
        fetch_array(x[rows[min(row + SOON, b - 1)]])
        count = _candidates(marks[row], n, chosen)
        looked += count
        dot_rows(x[rows[row]], dictionary, chosen, np.int64(0), np.int64(count), np.float32(1.0), values)
        for entry in range(count):  # without branches, which could not be foreseen
            value, concept = values[entry], chosen[entry]
            passes = (value > bound if kind == ONE_SIDED else abs(value) >= bound) & (value != np.float32(0.0))
            stays = passes & (mixed_bits(first + row, concept, salt) >= np.uint64(dropped))
            if place < room:
                indices[place] = concept
                data[place] = value
            active += np.int64(passes)
            place += np.int64(stays)
        pointers[row + 1] = place
    return active, looked


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
    active = select_active(scores[:b], kind, bound, length, first, dropped, salt, pointers, indices, data)
    return active, b * panels * PANEL


@compiled
def active_entries(  # type: ignore[no-untyped-def]
    x, rows, later, kept, dictionary, screen, floats, kind, bound, length, first, dropped, salt, pointers, indices, data
):
    """Active entries of the rows x[rows], by panels that `pack_concepts` made of the dictionary; the rest as in
    `select_active`. Thresholds take the screen if it has panels. Rows x[later] are asked for meanwhile, because they
    come next; those that `kept` has room for are rounded once. Returns how many scores are active, left out ones
    included, and how many were computed in floats."""
    if len(screen.quads) > 0:
        return _screened(
            x, rows, later, kept, dictionary, screen, kind, bound, first, dropped, salt, pointers, indices, data
        )
    return _scored(x, rows, floats, kind, bound, length, first, dropped, salt, pointers, indices, data)


@compiled
def code_rows(x, dictionary, screen, floats, kind, bound, length, pointers, indices, data):  # type: ignore[no-untyped-def]
    """Active entries of all rows of x, some at a time so that they stay in the cache, as `active_entries` does;
    returns how many scores were computed in floats."""
    rows, ends, place, looked = np.empty(len(x), np.int32), np.empty(BLOCK + 1, np.int32), 0, 0
    nothing = KeptRows(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32))
    for row in range(len(x)):
        rows[row] = row
    pointers[0] = 0
    for start in range(0, len(x), BLOCK):
        stop = min(start + BLOCK, len(x))
        here = min(place, len(indices))
        _, floating = active_entries(
            x, rows[start:stop], rows[:0], nothing, dictionary, screen, floats, kind, bound, length, np.int64(0),
            np.int64(0), np.uint64(0), ends, indices[here:], data[here:],
        )  # fmt: skip
        for row in range(start, stop):
            pointers[row + 1] = place + ends[row - start + 1]
        place += ends[stop - start]
        looked += floating
    return looked
