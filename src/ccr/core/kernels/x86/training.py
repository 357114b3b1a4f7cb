"""Many steps of Algorithm 2 by any number of threads, without a word between them and Python.

Each thread calls `train` with its number. A step has phases, each cut into items: rows of the batch in chunks (codes,
loss and slopes), the concepts of each thread (their entries sorted), and concepts in panels (gradient, momentum,
projection). The head of many classes does not fit into the cache: then logits are computed concept by concept for a
few classes at a time, in a phase of their own before that of the slopes. A head of few weights is gone through weight
by weight.

Every thread has a share of a phase's items, the same ones in every step, so that the concepts it moves stay in its own
cache; when it is through, it helps the others. It takes an item with a ticket, (phase, items taken) in one word of the
share; whoever finishes a phase's last item does what must be done once and opens the next phase. Which thread does what
changes no number.
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
    line_zeros,
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

#: Shared words, each in a cache line of its own: how many items of the phase are done, and from TICKETS on one for each
#: share, (phase << 32) + how many of its items are taken.
APART = 8
DONE, TICKETS = 0, APART
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


@part
def _find_starts(chunks, workspace):  # type: ignore[no-untyped-def]
    """Where the entries of each concept begin when sorted."""
    n, starts = workspace.counts.shape[1], workspace.entries.starts
    together = np.zeros(n, np.int32)
    for chunk in range(chunks):
        _add(together, workspace.counts[chunk])
    starts[0] = 0
    for concept in range(n):
        starts[concept + 1] = starts[concept] + together[concept]


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
def _sort(share, shares, begin, end, plan, workspace):  # type: ignore[no-untyped-def]
    """Sort the entries of the concepts that a share of the panels has, by concept and then by row."""
    n, size = workspace.counts.shape[1], workspace.pointers.shape[1] - 1
    panels = (n + PANEL - 1) // PANEL
    first, last = min(n, share * panels // shares * PANEL), min(n, (share + 1) * panels // shares * PANEL)
    positions = workspace.entries.starts[first:last].copy()
    for chunk in range((end - begin + size - 1) // size):
        top, bottom = chunk * size, min((chunk + 1) * size, end - begin)
        pointers = workspace.pointers[chunk, : bottom - top + 1]
        by_concept(
            first, top, Entries(pointers, workspace.indices[chunk], workspace.codes[chunk]), workspace.through[chunk],
            plan.rows[begin + top : begin + bottom], positions, workspace.entries,
        )  # fmt: skip


@compiled
def _wait(words, share, phase):  # type: ignore[no-untyped-def]
    """Wait until the share's tickets are no longer of this phase."""
    place, looks = TICKETS + APART * share, 0
    while shared_read(words, place) >> 32 == phase:
        looks += 1
        if looks > PATIENCE:
            let_others_run()


@compiled
def train(words, own, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Take all steps of the plan, as the thread of share `own`; `words` (APART * (shares + 1),) begins as zeros.
    Returns when the last step is taken."""
    size, per_chunk = plan.size, workspace.pointers.shape[1] - 1
    panels, shares = (len(parameters.dictionary) + PANEL - 1) // PANEL, len(words) // APART - 1
    wide = len(workspace.logits) > 0
    phases = 5 if wide else 3
    share, asked, own_phase, last_phase = own, 0, 0, 0
    while True:
        ticket = shared_add(words, TICKETS + APART * share, 1)
        phase, taken = ticket >> 32, ticket & 0xFFFFFFFF
        step, kind = phase // phases, phase % phases
        if step >= len(plan.rates):
            return
        if not wide and kind == 2:
            kind = MOVE
        begin, end = step * size, min((step + 1) * size, len(plan.rows))
        chunks = (end - begin + per_chunk - 1) // per_chunk
        items = chunks
        if kind == SORT:
            items = shares
        elif kind == LOGITS:
            items = len(workspace.logits)
        elif kind == MOVE:
            items = panels
        item = share * items // shares + taken
        if share == own:
            own_phase = phase
        if item >= (share + 1) * items // shares:
            share, asked = (share + 1) % shares, asked + 1
            if asked == shares:  # nothing is left to take
                _wait(words, own, own_phase)
                share, asked = own, 0
            continue
        if kind == CODE:
            _code(item, begin, end, parameters, settings, plan, workspace)
        elif kind == SORT:
            _sort(item, shares, begin, end, plan, workspace)
        elif kind == LOGITS:
            _logits(item, end - begin, parameters, workspace)
        elif kind == SLOPES:
            _slopes(item, begin, end, parameters, plan, workspace)
        else:
            _move(item, step, chunks, parameters, settings, plan, workspace)
        if shared_add(words, DONE, 1) + 1 == items:
            if kind == CODE:
                _find_starts(chunks, workspace)
            if kind == SLOPES or (kind == CODE and not wide):
                _sum_up(chunks, end - begin, step, parameters, settings, plan, workspace)
            shared_write(words, DONE, 0)
            for other in range(shares):
                shared_write(words, TICKETS + APART * other, (phase + 1) << 32)
            share = own
        elif phase != last_phase:
            share = own
        asked, last_phase = 0, phase


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
        words, sparse, now = line_zeros(APART * (workers.threads + 1), kind=np.int64), workspace.sparse, self.parameters
        pairs = ((sparse.values, now.weights), (sparse.moments, now.weight_moment))
        if self.allowed is not None:
            for few, every in pairs:
                few[:] = every[self.allowed]
        workers.map(lambda own: train(words, own, now, settings, plan, workspace), range(workers.threads))
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
