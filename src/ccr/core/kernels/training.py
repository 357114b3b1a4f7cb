"""Many steps of METHOD 3 by any number of threads, without a word between them and Python.

All threads call `train` with the same arguments. A step has phases, each cut into items: rows of the batch in chunks
(codes, loss and slopes), chunks again (their entries sorted by concept), and concepts in panels (gradient, momentum,
projection). The head of many classes does not fit into the cache: then logits are computed concept by concept for a
few classes at a time, in a phase of their own before that of the slopes.

A thread takes the next item with a ticket, (phase, item) in one shared word; whoever finishes a phase's last item does
what must be done once and opens the next phase. Which thread does what changes no number.
"""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled, part
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.packing import pack_concepts
from ccr.core.kernels.score import active_entries
from ccr.core.kernels.shared import let_others_run, shared_add, shared_read, shared_write
from ccr.core.kernels.step import SIZE_DECAY, by_concept, count_concepts, head_slopes, move_concepts, slope_of
from ccr.core.kernels.tiles import LINE, PANEL, address, fetch_ahead
from ccr.core.kernels.vectors import copy_into, spread_row

#: Shared words: (phase << 32) + next item, and how many items of the phase are done.
TICKET, DONE = 0, 8  # in two cache lines
#: Rows of the chunk so many after this one are asked for.
LATER = 2
#: Rows of the head are asked for so many before they are read.
AHEAD = 8
#: Looks at a word before a waiting thread lets others run.
PATIENCE = 2000
CODE, SORT, LOGITS, SLOPES, MOVE = 0, 1, 2, 3, 4
#: Classes of an item of LOGITS.
CLASSES = 4 * LANES


@compiled
def step_salt(key, step):  # type: ignore[no-untyped-def]
    """The same as `ccr.core.refine.dense.step_salt`."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B1) + np.uint64(step) * np.uint64(0x85EBCA77) + np.uint64(0x165667B1)
    return mixed & np.uint64(0xFFFFFFFF)


@compiled
def _add(total, values):  # type: ignore[no-untyped-def]
    for place in range(len(total)):
        total[place] += values[place]


@part
def _code(chunk, begin, end, parameters, manner, lesson, room):  # type: ignore[no-untyped-def]
    """Codes, loss and slopes of a chunk of the batch, which is rows begin:end of the lesson."""
    size = room.pointers.shape[1] - 1
    first, last = chunk * size, min((chunk + 1) * size, end - begin)
    pointers, indices, codes = room.pointers[chunk], room.indices[chunk], room.codes[chunk]
    rows = lesson.rows[begin:]
    active, looked = active_entries(
        lesson.x, rows[first:last], rows[first + LATER * size :][:size], lesson.kept, parameters.dictionary,
        room.screen, room.floats, manner.kind, np.float32(parameters.threshold[0]), manner.top, first, manner.dropped,
        step_salt(manner.key, parameters.steps[0]), pointers, indices, codes,
    )  # fmt: skip
    entries = pointers[last - first]
    for entry in range(entries):
        codes[entry] *= np.float32(manner.keep)
    room.sums[chunk, 1], room.sums[chunk, 2] = active, looked
    counts = room.counts[chunk]
    counts[:] = 0
    count_concepts(indices, entries, counts)
    if len(room.logits) > 0:
        return
    bias_slope = room.bias_slopes[chunk]
    bias_slope[:] = np.float32(0.0)
    room.sums[chunk, 0] = head_slopes(
        pointers, indices, codes, np.float32(manner.keep), lesson.y[begin + first : begin + last],
        lesson.share[begin + first : begin + last], parameters.weights, parameters.bias, manner.refine,
        room.slopes[first:last], bias_slope, room.through[chunk],
    )  # fmt: skip


@part
def _logits(item, batch, parameters, room):  # type: ignore[no-untyped-def]
    """Logits of some classes, of all rows."""
    first, last = item * CLASSES, min((item + 1) * CLASSES, len(parameters.bias))
    tile, weights, n = room.logits[item], parameters.weights, len(parameters.weights)
    for row in range(batch):
        copy_into(tile[row], parameters.bias[first:last])
    for concept in range(n):
        ahead = min(concept + AHEAD, n - 1)
        fetch_ahead(address(weights[ahead, first:]), CLASSES * 4 // LINE)
        spread_row(
            weights[concept, first:last], room.sorted_codes, room.sorted_rows, np.int64(room.starts[concept]),
            np.int64(room.starts[concept + 1]), tile,
        )  # fmt: skip


@part
def _slopes(chunk, begin, end, parameters, manner, lesson, room):  # type: ignore[no-untyped-def]
    """Loss and slopes of a chunk, from its logits."""
    size = room.pointers.shape[1] - 1
    first, last = chunk * size, min((chunk + 1) * size, end - begin)
    width, extremes, loss = len(parameters.bias), np.empty(2, np.float32), 0.0
    bias_slope = room.bias_slopes[chunk]
    bias_slope[:] = np.float32(0.0)
    for row in range(first, last):
        slope = room.slopes[row]
        for item in range(len(room.logits)):
            start, stop = item * CLASSES, min((item + 1) * CLASSES, width)
            copy_into(slope[start:stop], room.logits[item, row, : stop - start])
        loss += slope_of(slope, lesson.y[begin + row], lesson.share[begin + row], bias_slope, extremes)
    room.sums[chunk, 0] = loss


@compiled
def _swap_and_add(counts, places):  # type: ignore[no-untyped-def]
    """counts, places = places, places + counts."""
    for place in range(len(counts)):
        count = counts[place]
        counts[place] = places[place]
        places[place] += count


@part
def _give_places(chunks, room):  # type: ignore[no-untyped-def]
    """Where each chunk's entries go when sorted, in the place of its counts."""
    n = room.counts.shape[1]
    places = np.zeros(n, np.int32)
    for chunk in range(chunks):
        _add(places, room.counts[chunk])
    room.starts[0] = 0
    for concept in range(n):
        room.starts[concept + 1] = room.starts[concept] + places[concept]
    copy_into(places, room.starts[:n])
    for chunk in range(chunks):
        _swap_and_add(room.counts[chunk], places)


@part
def _sum_up(chunks, batch, step, parameters, manner, lesson, room):  # type: ignore[no-untyped-def]
    """What the step saw; the bias and the threshold move."""
    loss, active, looked = 0.0, 0.0, 0.0
    slope = np.zeros(len(parameters.bias), np.float32)
    for chunk in range(chunks):
        loss += room.sums[chunk, 0]
        active += room.sums[chunk, 1]
        looked += room.sums[chunk, 2]
        _add(slope, room.bias_slopes[chunk])
    report = lesson.reports[step]
    report[0], report[1], report[2] = loss, active / batch, looked / batch
    parameters.steps[0] += 1
    _move_bias(slope, lesson.rates[step, 0], parameters, manner)
    if manner.refine and manner.held > 0.0:
        excess = min(active / batch / manner.held, 2.0) - 1.0
        parameters.threshold[0] *= 1.0 + manner.nudge * excess


@part
def _move_bias(slope, rate, parameters, manner):  # type: ignore[no-untyped-def]
    beta, steps = manner.momentum, parameters.steps[0]
    moment, square = parameters.bias_moment, 0.0
    for column in range(len(slope)):
        fresh = (1.0 - beta) * slope[column] if manner.adaptive else slope[column]
        moment[column] = beta * moment[column] + fresh
        square += np.float64(slope[column]) ** 2
    if manner.adaptive:
        size = SIZE_DECAY * parameters.bias_size[0] + (1.0 - SIZE_DECAY) * square / manner.classes
        parameters.bias_size[0] = size
        rate = rate / (1.0 - beta**steps) / (np.sqrt(size / (1.0 - SIZE_DECAY**steps)) + 1e-12)
    for column in range(len(slope)):
        parameters.bias[column] -= np.float32(rate * moment[column])


@part
def _move(panel, step, parameters, manner, lesson, room):  # type: ignore[no-untyped-def]
    """Step the concepts of a panel, and pack them anew."""
    n, steps = len(parameters.dictionary), parameters.steps[0]
    first, last = panel * PANEL, min((panel + 1) * PANEL, n)
    head_rate = lesson.rates[step, 0] / (manner.scale if manner.adaptive else 1.0)
    move_concepts(
        first, last, manner.classes, manner.adaptive, manner.momentum, 1.0 - manner.momentum**steps,
        1.0 - SIZE_DECAY**steps, room.starts, room.sorted_rows, room.sorted_sources, room.sorted_codes,
        room.sorted_through, room.slopes, lesson.x,
        parameters.weights, parameters.weight_moment, parameters.weight_size, np.float32(manner.penalty), head_rate,
        manner.refine, len(room.logits) > 0, np.float32(manner.keep), parameters.dictionary,
        parameters.dictionary_moment, parameters.dictionary_size, parameters.center, manner.radius,
        lesson.rates[step, 1],
    )  # fmt: skip
    if manner.refine:
        pack_concepts(first, last, parameters.dictionary, room.screen, room.floats)


@part
def _sort(chunk, begin, end, lesson, room):  # type: ignore[no-untyped-def]
    first = chunk * (room.pointers.shape[1] - 1)
    last = min(first + room.pointers.shape[1] - 1, end - begin)
    by_concept(
        first, room.pointers[chunk, : last - first + 1], room.indices[chunk], room.codes[chunk], room.through[chunk],
        lesson.rows[begin + first : begin + last], room.counts[chunk], room.sorted_rows, room.sorted_sources,
        room.sorted_codes, room.sorted_through,
    )  # fmt: skip


@compiled
def _next_phase(words, phase):  # type: ignore[no-untyped-def]
    """Wait until the phase is over."""
    looks = 0
    while shared_read(words, TICKET) >> 32 == phase:
        looks += 1
        if looks > PATIENCE:
            let_others_run()


@compiled
def train(words, parameters, manner, lesson, room):  # type: ignore[no-untyped-def]
    """Take all steps of the lesson; `words` (16,) begins as zeros. Returns when the last step is taken."""
    size, per_chunk = lesson.size, room.pointers.shape[1] - 1
    panels = (len(parameters.dictionary) + PANEL - 1) // PANEL
    wide = len(room.logits) > 0
    phases = 5 if wide else 3
    while True:
        ticket = shared_add(words, TICKET, 1)
        phase, item = ticket >> 32, ticket & 0xFFFFFFFF
        step, kind = phase // phases, phase % phases
        if step >= len(lesson.rates):
            return
        if not wide and kind == 2:
            kind = MOVE
        begin, end = step * size, min((step + 1) * size, len(lesson.rows))
        chunks = (end - begin + per_chunk - 1) // per_chunk
        items = panels if kind == MOVE else len(room.logits) if kind == LOGITS else chunks
        if item >= items:
            _next_phase(words, phase)
            continue
        if kind == CODE:
            _code(item, begin, end, parameters, manner, lesson, room)
        elif kind == SORT:
            _sort(item, begin, end, lesson, room)
        elif kind == LOGITS:
            _logits(item, end - begin, parameters, room)
        elif kind == SLOPES:
            _slopes(item, begin, end, parameters, manner, lesson, room)
        else:
            _move(item, step, parameters, manner, lesson, room)
        if shared_add(words, DONE, 1) + 1 == items:
            if kind == CODE:
                _give_places(chunks, room)
            if kind == SLOPES or (kind == CODE and not wide):
                _sum_up(chunks, end - begin, step, parameters, manner, lesson, room)
            shared_write(words, DONE, 0)
            shared_write(words, TICKET, (phase + 1) << 32)
