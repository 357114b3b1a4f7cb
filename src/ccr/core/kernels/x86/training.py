"""Many steps of Algorithm 2 by any number of threads, without a word between them and Python.

All threads call `train` with the same arguments. A step has phases, each cut into items: rows of the batch in chunks
(codes, loss and slopes), chunks again (their entries sorted by concept), and concepts in panels (gradient, momentum,
projection). The head of many classes does not fit into the cache: then logits are computed concept by concept for a
few classes at a time, in a phase of their own before that of the slopes. A head of few weights is gone through weight
by weight.

A thread takes the next item with a ticket, (phase, item) in one shared word; whoever finishes a phase's last item does
what must be done once and opens the next phase. Which thread does what changes no number.
"""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.plain.arguments import (
    LINE,
    BatchPlan,
    Criterion,
    Dropout,
    Entries,
    Parameters,
    StepSettings,
)
from ccr.core.kernels.plain.moving import move_bias, move_threshold, pace_of
from ccr.core.kernels.plain.select import step_salt
from ccr.core.kernels.plain.vectors import copy_into
from ccr.core.kernels.x86.arguments import RoundedRows, RowBlock, Workspace
from ccr.core.kernels.x86.compiling import compiled, part
from ccr.core.kernels.x86.memory import address, fetch_ahead
from ccr.core.kernels.x86.packing import PackedConcepts, pack_concepts, unrounded
from ccr.core.kernels.x86.score import active_entries
from ccr.core.kernels.x86.shared import let_others_run, shared_add, shared_read, shared_write
from ccr.core.kernels.x86.step import (
    by_concept,
    count_concepts,
    head_slopes,
    move_concepts,
    slope_of,
    sparse_head_slopes,
)
from ccr.core.kernels.x86.tiles import PANEL
from ccr.core.kernels.x86.vectors import spread_row
from ccr.core.kernels.x86.workspace import CLASSES, Allowed, allowed_weights, new_workspace
from ccr.core.threads import Workers

#: Shared words: (phase << 32) + next item, and how many items of the phase are done.
TICKET, DONE = 0, 8  # in two cache lines
#: Rows of the chunk so many after this one are asked for.
LATER = 2
#: Rows of the head are asked for so many before they are read.
AHEAD = 8
#: Looks at a word before a waiting thread lets others run.
PATIENCE = 2000
CODE, SORT, LOGITS, SLOPES, MOVE = 0, 1, 2, 3, 4


@compiled
def _add(total, values):  # type: ignore[no-untyped-def]
    for column in range(len(total)):
        total[column] += values[column]


@part
def _code(chunk, begin, end, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Codes, loss and slopes of a chunk of the batch, which is rows begin:end of the plan."""
    size = workspace.pointers.shape[1] - 1
    first, last = chunk * size, min((chunk + 1) * size, end - begin)
    codes = Entries(workspace.pointers[chunk], workspace.indices[chunk], workspace.codes[chunk])
    rows, salt = plan.rows[begin:], step_salt(settings.seed, parameters.steps[0])
    block = RowBlock(plan.x, rows[first:last], rows[first + LATER * size :][:size], workspace.rounded)
    criterion = Criterion(settings.kind, np.float32(parameters.threshold[0]), settings.length)
    dropout = Dropout(first, settings.dropped, salt)
    active, looked = active_entries(block, workspace.panels, criterion, dropout, codes)
    entries = codes.pointers[last - first]
    for entry in range(entries):
        codes.data[entry] *= np.float32(settings.keep)
    workspace.sums[chunk, 1], workspace.sums[chunk, 2] = active, looked
    counts = workspace.counts[chunk]
    counts[:] = 0
    count_concepts(codes.indices, entries, counts)
    if len(workspace.logits) > 0:
        return
    bias_slope, through = workspace.bias_slopes[chunk], workspace.through[chunk]
    bias_slope[:] = np.float32(0.0)
    y, share = plan.y[begin + first : begin + last], plan.share[begin + first : begin + last]
    if len(workspace.sparse.starts) > 0:
        workspace.sums[chunk, 0] = sparse_head_slopes(
            codes, y, share, parameters.bias, workspace.sparse, np.float32(settings.keep), chunk, bias_slope, through
        )
    else:
        workspace.sums[chunk, 0] = head_slopes(
            codes, y, share, parameters, settings, workspace.slopes[first:last], bias_slope, through
        )


@part
def _logits(item, batch, parameters, workspace):  # type: ignore[no-untyped-def]
    """Logits of some classes, of all rows."""
    first, last = item * CLASSES, min((item + 1) * CLASSES, len(parameters.bias))
    tile, weights, n = workspace.logits[item], parameters.weights, len(parameters.weights)
    entries = workspace.entries
    for row in range(batch):
        copy_into(tile[row], parameters.bias[first:last])
    for concept in range(n):
        ahead = min(concept + AHEAD, n - 1)
        fetch_ahead(address(weights[ahead, first:]), CLASSES * 4 // LINE)
        spread_row(
            weights[concept, first:last], entries.codes, entries.rows, np.int64(entries.starts[concept]),
            np.int64(entries.starts[concept + 1]), tile,
        )  # fmt: skip


@part
def _slopes(chunk, begin, end, parameters, plan, workspace):  # type: ignore[no-untyped-def]
    """Loss and slopes of a chunk, from its logits."""
    size = workspace.pointers.shape[1] - 1
    first, last = chunk * size, min((chunk + 1) * size, end - begin)
    width, loss = len(parameters.bias), 0.0
    bias_slope = workspace.bias_slopes[chunk]
    bias_slope[:] = np.float32(0.0)
    for row in range(first, last):
        slope = workspace.slopes[row]
        for item in range(len(workspace.logits)):
            start, stop = item * CLASSES, min((item + 1) * CLASSES, width)
            copy_into(slope[start:stop], workspace.logits[item, row, : stop - start])
        loss += slope_of(slope, plan.y[begin + row], plan.share[begin + row], bias_slope)
    workspace.sums[chunk, 0] = loss


@compiled
def _swap_and_add(counts, positions):  # type: ignore[no-untyped-def]
    """counts, positions = positions, positions + counts."""
    for concept in range(len(counts)):
        count = counts[concept]
        counts[concept] = positions[concept]
        positions[concept] += count


@part
def _give_positions(chunks, workspace):  # type: ignore[no-untyped-def]
    """Where each chunk's entries go when sorted, instead of its counts."""
    n, starts = workspace.counts.shape[1], workspace.entries.starts
    positions = np.zeros(n, np.int32)
    for chunk in range(chunks):
        _add(positions, workspace.counts[chunk])
    starts[0] = 0
    for concept in range(n):
        starts[concept + 1] = starts[concept] + positions[concept]
    copy_into(positions, starts[:n])
    for chunk in range(chunks):
        _swap_and_add(workspace.counts[chunk], positions)


@part
def _sum_up(chunks, batch, step, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """What the step saw; the bias and the threshold move."""
    loss, active, looked = 0.0, 0.0, 0.0
    slope = np.zeros(len(parameters.bias), np.float32)
    for chunk in range(chunks):
        loss += workspace.sums[chunk, 0]
        active += workspace.sums[chunk, 1]
        looked += workspace.sums[chunk, 2]
        _add(slope, workspace.bias_slopes[chunk])
    report = workspace.reports[step]
    report[0], report[1], report[2] = loss, active / batch, looked / batch
    move_bias(slope, plan.rates[step, 0], parameters, settings)
    move_threshold(active / batch, parameters, settings)


@part
def _move(panel, step, chunks, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Step the concepts of a panel, and pack them anew."""
    first, last = panel * PANEL, min((panel + 1) * PANEL, len(parameters.dictionary))
    pace = pace_of(plan.rates[step], parameters, settings)
    move_concepts(first, last, chunks, workspace, plan.x, parameters, settings, pace)
    if settings.refine:
        pack_concepts(first, last, workspace.panels)


@part
def _sort(chunk, begin, end, plan, workspace):  # type: ignore[no-untyped-def]
    first = chunk * (workspace.pointers.shape[1] - 1)
    last = min(first + workspace.pointers.shape[1] - 1, end - begin)
    pointers = workspace.pointers[chunk, : last - first + 1]
    by_concept(
        first, Entries(pointers, workspace.indices[chunk], workspace.codes[chunk]), workspace.through[chunk],
        plan.rows[begin + first : begin + last], workspace.counts[chunk], workspace.entries,
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
def train(words, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Take all steps of the plan; `words` (16,) begins as zeros. Returns when the last step is taken."""
    size, per_chunk = plan.size, workspace.pointers.shape[1] - 1
    panels = (len(parameters.dictionary) + PANEL - 1) // PANEL
    wide = len(workspace.logits) > 0
    phases = 5 if wide else 3
    while True:
        ticket = shared_add(words, TICKET, 1)
        phase, item = ticket >> 32, ticket & 0xFFFFFFFF
        step, kind = phase // phases, phase % phases
        if step >= len(plan.rates):
            return
        if not wide and kind == 2:
            kind = MOVE
        begin, end = step * size, min((step + 1) * size, len(plan.rows))
        chunks = (end - begin + per_chunk - 1) // per_chunk
        items = chunks
        if kind == LOGITS:
            items = len(workspace.logits)
        elif kind == MOVE:
            items = panels
        if item >= items:
            _next_phase(words, phase)
            continue
        if kind == CODE:
            _code(item, begin, end, parameters, settings, plan, workspace)
        elif kind == SORT:
            _sort(item, begin, end, plan, workspace)
        elif kind == LOGITS:
            _logits(item, end - begin, parameters, workspace)
        elif kind == SLOPES:
            _slopes(item, begin, end, parameters, plan, workspace)
        else:
            _move(item, step, chunks, parameters, settings, plan, workspace)
        if shared_add(words, DONE, 1) + 1 == items:
            if kind == CODE:
                _give_positions(chunks, workspace)
            if kind == SLOPES or (kind == CODE and not wide):
                _sum_up(chunks, end - begin, step, parameters, settings, plan, workspace)
            shared_write(words, DONE, 0)
            shared_write(words, TICKET, (phase + 1) << 32)


class Training:
    """Takes the steps of plans and moves the parameters; its memory stays from one plan to the next."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.rounded: tuple[np.ndarray, RoundedRows] | None = None
        self.workspace: Workspace | None = None
        self.allowed: Allowed | None = None

    def restricted(self, classes: int) -> None:
        """Take note that other weights, of so many classes, may move now."""
        self.allowed, self.workspace = allowed_weights(self.parameters, classes), None

    def take(
        self, plan: BatchPlan, settings: StepSettings, packed: PackedConcepts, workers: Workers, *, lasting: bool
    ) -> np.ndarray:
        """Take all steps of the plan; `lasting` says that the same x comes again. Returns, for each step, its loss and
        the means per row of active scores and of scores computed in floats."""
        if self.workspace is None or len(self.workspace.pointers) * self._chunk_rows() < plan.size:
            self.workspace = new_workspace(plan.size, self.parameters, packed.panels, self.allowed)
        rounded, reports = self._rounded_rows(plan.x, packed, lasting), np.zeros((len(plan.rates), 3))
        workspace = self.workspace._replace(panels=packed.panels, rounded=rounded, reports=reports)
        words, sparse, now = np.zeros(16, np.int64), workspace.sparse, self.parameters
        pairs = ((sparse.values, now.weights), (sparse.moments, now.weight_moment))
        if self.allowed is not None:
            for few, every in pairs:
                few[:] = every[self.allowed]
        workers.map(lambda _: train(words, self.parameters, settings, plan, workspace), range(workers.threads))
        if self.allowed is not None:
            for few, every in pairs:
                every[self.allowed] = few
        return reports

    def _chunk_rows(self) -> int:
        return 0 if self.workspace is None else self.workspace.pointers.shape[1] - 1

    def _rounded_rows(self, x: np.ndarray, packed: PackedConcepts, lasting: bool) -> RoundedRows:
        """Where rows that come again in every epoch keep their bytes, a quarter of what they take themselves."""
        if not lasting or len(packed.panels.screen.quads) == 0:
            self.rounded = None
            return unrounded(0, x.shape[1])
        # x itself is kept too: as long as it is, no other array can be at its address.
        if self.rounded is None or self.rounded[0].ctypes.data != x.ctypes.data or self.rounded[0].shape != x.shape:
            self.rounded = x, unrounded(*x.shape)
        return self.rounded[1]
