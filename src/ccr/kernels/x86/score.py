"""Active entries of rows x (b, d) under a dictionary (n, d): the one dense product of Algorithm 2 (docs/method.md).

Few scores are active. Where it is faster, all are computed in bytes first, more than three times as fast as in floats;
those that could reach the threshold, by a bound on the rounding (`rounding` has the proof), are then computed in
floats, and these decide.
"""

from __future__ import annotations

import numpy as np

from ccr.kernels.plain.arguments import ONE_SIDED, TWO_SIDED, Criterion, Dropout, Entries
from ccr.kernels.plain.rows import copy_into, dot
from ccr.kernels.plain.select import mixed_bits, select_active
from ccr.kernels.x86.arguments import NORM, PRODUCT, SCALE, RoundedRows, RowBlock
from ccr.kernels.x86.rounding import ROW_MOST, SPREAD, DictionaryInPanels, largest_scale, padded_row, round_row
from ccr.kernels.x86.tiles import PANEL, ROWS, SHIFT, TilePanel, TileRows, byte_line, byte_tile, float_tile
from ccr.kernels.x86.variants import compiled, inlined
from ccr.kernels.x86.vectors import LANES, address, bit_count, dot_rows, fetch_array, lowest_bit

#: Rows that `code_rows` works on at once: a core's own cache holds them, and a larger dictionary is read once for all.
BLOCK = 32 * ROWS
#: Variance of an error that is uniform within (-1/2, 1/2), times SPREAD^2.
VARIANCE = np.float32(SPREAD**2 / 12.0)
#: Rows of norms between these are rounded; squares of others vanish or overflow.
SHORTEST, LONGEST = np.float32(1e-15), np.float32(1e15)
#: Rows are asked for again so many before their scores are computed in floats.
SOON = 2
#: Numbers of a dictionary that stays in a core's own cache, 2 MB of them.
CACHED = 2**19
#: Allowance for the rounding of floats, relative to a row's norm.
SLACK = 1e-5


@inlined
def _round_row(row, screen, padding, out, about):  # type: ignore[no-untyped-def]
    """A row as bytes, and what is known of it, as `RoundedRows` has it."""
    width = len(screen.row_noise)
    start = padded_row(row, width, padding)
    about[SCALE] = largest_scale(start, width, ROW_MOST, about)
    about[NORM] = np.sqrt(about[NORM])
    if about[NORM] > SHORTEST and about[NORM] < LONGEST:
        about[PRODUCT] = round_row(
            start, width, about[SCALE], screen.row_noise, screen.concept_noise, np.int64(SHIFT), out
        )
    else:
        out[:] = 0


@compiled
def round_rows(x, rows, screen, rounded):  # type: ignore[no-untyped-def]
    """Round the rows x[rows], and keep their bytes."""
    padding = np.zeros(len(screen.row_noise), np.float32)
    for row in rows:
        _round_row(x[row], screen, padding, rounded.quads[row], rounded.about[row])


@inlined
def _rows_in_bytes(block, threshold, screen, quads, shifts, reaches, slacks, spreads):  # type: ignore[no-untyped-def]
    """Rows as bytes, with what `byte_tile` wants to know of each; those beyond the last reach nothing."""
    x, rows, kept_quads, kept_about = block.x, block.rows, block.rounded.quads, block.rounded.about
    width, keeps = len(screen.row_noise), len(kept_quads) > 0
    padding, fresh = np.zeros(width, np.float32), np.empty(3, np.float32)
    both = dot(screen.row_noise, screen.concept_noise)
    reaches[:], slacks[:] = np.float32(np.inf), np.float32(0.0)
    spreads[:], shifts[:] = np.float32(0.0), np.float32(0.0)
    quads[len(rows) :] = 0
    for number in range(len(rows)):
        row = rows[number]
        about = kept_about[row] if keeps else fresh
        if keeps:
            copy_into(quads[number], kept_quads[row])
        else:
            _round_row(x[row], screen, padding, quads[number], about)
        scale, norm = about[SCALE], np.float64(about[NORM])
        if norm > SHORTEST and norm < LONGEST:
            shifts[number] = both - about[PRODUCT]
            reaches[number], slacks[number] = threshold * scale, SLACK * norm * scale
            length = norm * scale + np.sqrt(np.float64(width)) / 2.0  # of the bytes without noise, at most
            spreads[number] = VARIANCE * np.float32(length * length)
        else:
            reaches[number] = -np.float32(np.inf)  # every score is n_exact at


@inlined
def _mark_rows(block, screen, factors, criterion):  # type: ignore[no-untyped-def]
    """Screening: the scores of the rows that could be active, as bits (rows, words)."""
    panels, depth = screen.quads.shape[:2]
    at_once = 1 if len(block.rows) == 1 else ROWS
    quads = np.empty(((len(block.rows) + at_once - 1) // at_once * at_once, depth), np.int32)
    shifts, reaches, slacks, spreads = np.empty((4, len(quads) + LANES), np.float32)
    _rows_in_bytes(block, np.float64(criterion.bound), screen, quads, shifts, reaches, slacks, spreads)
    marks = np.zeros((len(quads), 8 * ((panels * PANEL + 63) // 64)), np.uint8)
    x, later, (kept_quads, kept_about), asked = block.x, block.later, block.rounded, 0
    for number in range(panels):
        scale = screen.scales[number]
        panel = TilePanel(
            address(screen.quads[number:]), depth, address(screen.starts[number:]), address(screen.offsets[number:]),
            address(factors[number * PANEL :]), scale, VARIANCE * scale * scale,
        )  # fmt: skip
        for row in range(0, len(quads), at_once):
            if asked < len(later):
                _fetch_row(x, kept_quads, kept_about, later[asked])
                asked += 1
            rows = TileRows(
                address(quads[row:]), depth, address(shifts[row:]), address(reaches[row:]), address(slacks[row:]),
                address(spreads[row:]), address(marks[row, number * (PANEL // 8) :]), marks.shape[1],
            )  # fmt: skip
            if at_once == 1:
                byte_line(rows, panel, criterion.kind == TWO_SIDED)
            else:
                byte_tile(rows, panel, criterion.kind == TWO_SIDED)
    return marks.view(np.int64)


@inlined
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


@inlined
def _fetch_row(x, quads, about, row):  # type: ignore[no-untyped-def]
    """Ask for a row, and for its bytes."""
    fetch_array(x[row])
    if len(quads) > 0:
        fetch_array(about[row])
        fetch_array(quads[row])


@inlined
def _all_candidates(marks, n):  # type: ignore[no-untyped-def]
    """The concepts, of n, that are marked in each row, row after row, and where each row's begin."""
    ends, count = np.zeros(len(marks) + 1, np.int32), 0
    for row in range(len(marks)):
        for word in marks[row]:
            count += bit_count(word)
    chosen, count = np.empty(count, np.int32), 0
    for row in range(len(marks)):
        count += _candidates(marks[row], n, chosen[count:])
        ends[row + 1] = count
    return chosen, ends


@inlined
def _scores_by_concept(block, dictionary, chosen, ends, values):  # type: ignore[no-untyped-def]
    """Scores of each row with its candidates, into `values`, concept by concept: a dictionary that the cache does not
    hold is read once for all rows."""
    n, x, rows, count = len(dictionary), block.x, block.rows, ends[-1]
    places = np.zeros(n + 1, np.int32)
    for entry in range(count):
        places[chosen[entry] + 1] += 1
    for concept in range(n):
        places[concept + 1] += places[concept]
    sources, homes, scores = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.float32)
    for row in range(len(rows)):
        for entry in range(ends[row], ends[row + 1]):
            place = places[chosen[entry]]
            places[chosen[entry]] = place + 1
            sources[place], homes[place] = rows[row], entry
    start = 0
    for concept in range(n):  # each place is now where the next concept's begin
        stop = np.int64(places[concept])
        later = min(concept + SOON, n - 1)
        if places[later] > places[later - 1]:
            fetch_array(dictionary[later])
        dot_rows(dictionary[concept], x, sources, np.int64(start), stop, np.float32(1.0), scores)
        start = stop
    for entry in range(count):
        values[homes[entry]] = scores[entry]


@inlined
def _screened(block, panels, criterion, dropout, entries):  # type: ignore[no-untyped-def]
    x, rows, dictionary, factors = block.x, block.rows, panels.dictionary, panels.factors
    marks = _mark_rows(block, panels.screen, factors, criterion)
    chosen, ends = _all_candidates(marks[: len(rows)], len(dictionary))
    values = np.empty(len(chosen), np.float32)
    if dictionary.size > CACHED and len(chosen) > len(dictionary):
        _scores_by_concept(block, dictionary, chosen, ends, values)
    else:
        for row in range(len(rows)):
            fetch_array(x[rows[min(row + SOON, len(rows) - 1)]])
            start, stop = np.int64(ends[row]), np.int64(ends[row + 1])
            dot_rows(x[rows[row]], dictionary, chosen, start, stop, np.float32(1.0), values)
    pointers, indices, data = entries
    one_sided, capacity, total, active = criterion.kind == ONE_SIDED, len(indices), 0, 0
    pointers[0] = 0
    for row in range(len(rows)):
        for entry in range(ends[row], ends[row + 1]):  # without branches, which could not be foreseen
            value, concept = values[entry], panels.first + chosen[entry]
            bound = criterion.bound * factors[chosen[entry]]
            passes = (value > bound if one_sided else abs(value) >= bound) & (value != np.float32(0.0))
            stays = passes & (mixed_bits(dropout.first + row, concept, dropout.salt) >= np.uint64(dropout.below))
            if total < capacity:
                indices[total] = concept
                data[total] = value
            active += np.int64(passes)
            total += np.int64(stays)
        pointers[row + 1] = total
    return active, np.int64(ends[-1])


@inlined
def _scored(block, floats, factors, criterion, dropout, entries):  # type: ignore[no-untyped-def]
    b, d, panels = len(block.rows), block.x.shape[1], len(floats)
    rows = np.zeros(((b + ROWS - 1) // ROWS * ROWS, d), np.float32)
    for row in range(b):
        copy_into(rows[row], block.x[block.rows[row]])
    scores = np.empty((len(rows), panels * PANEL), np.float32)
    for panel in range(panels):
        for row in range(0, len(rows), ROWS):
            float_tile(
                address(rows[row:]), d, address(floats[panel:]), d, address(scores[row:]), scores.shape[1],
                panel * PANEL,
            )  # fmt: skip
    # Columns beyond the last concept are zero, and zeros are never active.
    active = select_active(scores[:b], criterion, factors, dropout, entries)
    return active, b * panels * PANEL


@compiled
def active_entries(block, panels, criterion, dropout, entries):  # type: ignore[no-untyped-def]
    """Active entries of a block of rows, as `select_active` gives them, by panels that `pack_concepts` made: those of
    bytes if there are any. Returns how many scores are active, left out ones included, and how many were computed in
    floats."""
    if len(panels.screen.quads) > 0:
        return _screened(block, panels, criterion, dropout, entries)
    return _scored(block, panels.floats, panels.factors, criterion, dropout, entries)


@compiled
def code_panels(x, panels, criterion, entries):  # type: ignore[no-untyped-def]
    """Active entries of all rows of x, some at a time so that they stay in the cache, as `active_entries` does;
    returns how many scores were computed in floats."""
    rows, ends, count, n_exact = np.arange(len(x)).astype(np.int32), np.empty(BLOCK + 1, np.int32), 0, 0
    nothing = RoundedRows(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32))
    entries.pointers[0] = 0
    for start in range(0, len(x), BLOCK):
        stop, rest = min(start + BLOCK, len(x)), min(count, len(entries.indices))
        block = RowBlock(x, rows[start:stop], rows[:0], nothing)
        here = Entries(ends, entries.indices[rest:], entries.data[rest:])
        _, floating = active_entries(block, panels, criterion, Dropout(0, 0, np.uint64(0)), here)
        for row in range(start, stop):
            entries.pointers[row + 1] = count + ends[row - start + 1]
        count += ends[stop - start]
        n_exact += floating
    return n_exact


def code_rows(x: np.ndarray, packed: DictionaryInPanels, criterion: Criterion, entries: Entries) -> int:
    """Active entries of all rows of x; what does not fit into `entries.indices` is counted in the pointers but not
    written. Returns how many scores were computed in floats."""
    return int(code_panels(x, packed.panels, criterion, entries))
