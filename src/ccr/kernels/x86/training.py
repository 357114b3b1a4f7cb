"""Many steps of Algorithm 2 by any number of threads, without a word between them and Python.

Each thread calls `train` with its number. A step has `phases`, each cut into items. Every thread has a share of a
phase's items, the same ones in every step, so that the concepts that it moves, and where threads share concepts
(`Division`) also codes over, stay in its own cache. When it is through, it helps the others. It takes an item with a
ticket, (phase, items taken) in one word of the share; the thread that finishes a phase's last item does what must be
done once and opens the next phase. Which thread does what changes no number.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import torch

from ccr.kernels.plain.arguments import BatchPlan, SortedEntries, StepSettings, StepState, line_zeros
from ccr.kernels.x86 import phases
from ccr.kernels.x86.arguments import (
    SCALE,
    PanelColumns,
    RoundedRows,
    SparseHead,
    Workspace,
    let_others_run,
    shared_add,
    shared_read,
    shared_write,
)
from ccr.kernels.x86.phases import CLASSES
from ccr.kernels.x86.rounding import DictionaryInPanels, unrounded
from ccr.kernels.x86.score import round_rows
from ccr.kernels.x86.tiles import PANEL, ROWS
from ccr.kernels.x86.variants import compiled
from ccr.utils.threads import Workers

#: A batch is cut into about so many chunks, of at most so many rows.
CHUNKS, MOST_ROWS = 12, 32 * ROWS
#: Weights beyond which the head is taken a few classes at a time (`CLASSES`): more do not stay in the cache.
WIDE_HEAD = 1_000_000
#: A head of which at most this part may move is a sparse one.
FEW_WEIGHTS = 1 / 32


class Allowed(NamedTuple):
    """Weights by their concept, rising, and class."""

    concepts: np.ndarray
    columns: np.ndarray


def new_workspace(
    size: int, owners: int, parameters: StepState, panels: PanelColumns, allowed: Allowed | None
) -> Workspace:
    """Workspace for batches of `size` rows, coded over the concepts of so many owners; `allowed` are the weights of a
    sparse head."""
    n, width = len(parameters.dictionary), len(parameters.bias)
    rows = min(MOST_ROWS, ROWS * -(-size // (ROWS * CHUNKS)))
    chunks = -(-size // rows)
    places = owners * chunks
    by_place, all_scores = (places, rows * n), size * n
    entries = SortedEntries(
        starts=line_zeros(n + 1, kind=np.int32), rows=_untouched(all_scores, kind=torch.int32),
        sources=_untouched(all_scores, kind=torch.int32), codes=_untouched(all_scores),
        grad_scores=_untouched(all_scores),
    )  # fmt: skip
    wide = allowed is None and n * width >= WIDE_HEAD
    return Workspace(
        panels=panels, rounded=unrounded(0, parameters.dictionary.shape[1]), reports=np.zeros((0, 3)),
        owners=np.zeros(1, np.int64), pointers=np.zeros((places, rows + 1), np.int32),
        indices=_untouched(*by_place, kind=torch.int32), codes=_untouched(*by_place), grad_scores=_untouched(*by_place),
        grad_logits=line_zeros(size if allowed is None else 0, width), grad_biases=line_zeros(chunks, width),
        sums=line_zeros(places, 3, kind=np.float64), counts=line_zeros(chunks, n, kind=np.int32), entries=entries,
        logits=line_zeros(-(-width // CLASSES) if wide else 0, size, CLASSES), sparse=_sparse_head(n, chunks, allowed),
    )  # fmt: skip


def allowed_weights(parameters: StepState, classes: int) -> Allowed | None:
    """Positions of the weights that may move, if they are few; None: the head is treated as dense."""
    mask = parameters.allowed[:, :classes]
    if len(mask) == 0 or np.count_nonzero(mask) > FEW_WEIGHTS * mask.size:
        return None
    concepts, columns = np.nonzero(mask)
    return Allowed(concepts, columns)


def _sparse_head(n: int, chunks: int, allowed: Allowed | None) -> SparseHead:
    """The weights themselves come with every plan."""
    if allowed is None:
        none, nothing = np.zeros(0, np.int32), line_zeros(0)
        return SparseHead(none, none, nothing, nothing, line_zeros(0, 0))
    count = len(allowed.columns)
    starts = np.searchsorted(allowed.concepts, np.arange(n + 1)).astype(np.int32)
    columns = allowed.columns.astype(np.int32)
    return SparseHead(starts, columns, line_zeros(count), line_zeros(count), line_zeros(chunks, count))


def _untouched(*shape: int, kind: torch.dtype = torch.float32) -> np.ndarray:
    """Memory for as many entries as there are scores: most are never touched, and then take none, unlike those of
    NumPy, which asks for large pages."""
    return torch.empty(shape, dtype=kind).numpy()


# Division of coding among threads, by rows or by concepts, chosen by measured times.

#: Plans on which each way is tried, and the share of time that dividing concepts must save: less may be chance.
TRIALS, GAIN = 4, 0.05


class Division:
    """Either one owner has all concepts, and threads share the rows; or every thread owns concepts, for all rows. The
    first reads each row once, the second finds the concepts in the cache of the core that moved them. Which is faster
    depends on how large that cache is and how far it is from one core to the other, so both are tried in turns, and the
    second stays if it is clearly faster. It changes no number."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, int], list[float]] = {}

    def owners(self, most: int) -> int:
        """How many owners the concepts have in the next plan, where there may be up to `most`."""
        ways = sorted({1, max(1, most)})
        tries = [self.seconds.get((most, count), []) for count in ways]
        fewest = min(len(seconds) for seconds in tries)
        if len(ways) == 1 or fewest < TRIALS:
            return ways[[len(seconds) for seconds in tries].index(fewest)]
        rows, concepts = (min(seconds) for seconds in tries)
        return ways[int(concepts < (1.0 - GAIN) * rows)]

    def took(self, most: int, owners: int, seconds: float) -> None:
        """Take note that a plan with so many owners took so many seconds per row."""
        tries = self.seconds.setdefault((most, owners), [])
        if len(tries) < TRIALS:
            tries.append(seconds)


def first_concepts(owners: int, n: int) -> np.ndarray:
    """The first concept of each owner, and n; owners have whole panels."""
    panels = -(-n // PANEL)
    return np.array([number * panels // owners * PANEL for number in range(owners)] + [n])


#: Shared words, each in a cache line of its own: how many items of the phase are done, and from TICKETS on one for each
#: share, (phase << 32) + how many of its items are taken.
APART = 8
DONE, TICKETS = 0, APART
#: Looks at a word before a waiting thread lets others run.
PATIENCE = 2000
CODE, HEAD, SORT, LOGITS, GRADIENTS, UPDATE = range(6)
#: The phases of a step in their order, with a head of many classes and without.
WIDE, NARROW = np.array([CODE, SORT, LOGITS, GRADIENTS, UPDATE]), np.array([CODE, HEAD, SORT, UPDATE])
#: Rows that a thread rounds at once.
AT_ONCE = 1024


@compiled
def _wait(words, share, phase):  # type: ignore[no-untyped-def]
    """Wait until the share's tickets are no longer of this phase."""
    place, looks = TICKETS + APART * share, 0
    while shared_read(words, place) >> 32 == phase:
        looks += 1
        if looks > PATIENCE:
            let_others_run()


@compiled
def train(words, thread, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Take all steps of the plan, as the thread of share `own`; `words` (APART * (shares + 1),) begins as zeros.
    Returns when the last step is taken."""
    panels, shares = (len(parameters.dictionary) + PANEL - 1) // PANEL, len(words) // APART - 1
    order = WIDE if len(workspace.logits) > 0 else NARROW
    share, asked, own_phase, last_phase = thread, 0, 0, 0
    while True:
        ticket = shared_add(words, TICKETS + APART * share, 1)
        phase, taken = ticket >> 32, ticket & 0xFFFFFFFF
        step, kind = phase // len(order), order[phase % len(order)]
        if step >= len(plan.rates):
            return
        begin, end = step * plan.size, min((step + 1) * plan.size, len(plan.rows))
        chunks = phases.chunks_of(begin, end, workspace)
        items = chunks
        if kind == CODE:
            items = chunks * (len(workspace.owners) - 1)
        elif kind == SORT:
            items = shares
        elif kind == LOGITS:
            items = len(workspace.logits)
        elif kind == UPDATE:
            items = panels
        item = share * items // shares + taken
        if share == thread:
            own_phase = phase
        if item >= (share + 1) * items // shares:
            share, asked = (share + 1) % shares, asked + 1
            if asked == shares:  # nothing is left to take
                _wait(words, thread, own_phase)
                share, asked = thread, 0
            continue
        if kind == CODE:
            phases.code(item // chunks, item % chunks, begin, end, parameters, settings, plan, workspace)
        elif kind == HEAD:
            phases.logits_and_gradients(item, begin, end, parameters, settings, plan, workspace)
        elif kind == SORT:
            phases.sort(item, shares, begin, end, plan, workspace)
        elif kind == LOGITS:
            phases.tile_logits(item, end - begin, parameters, workspace)
        elif kind == GRADIENTS:
            phases.gradients_of_chunk(item, begin, end, parameters, plan, workspace)
        else:
            phases.update(item, step, chunks, parameters, settings, plan, workspace)
        if shared_add(words, DONE, 1) + 1 == items:
            if kind == CODE:
                phases.find_starts(chunks, workspace)
            elif kind in (HEAD, GRADIENTS):
                phases.sum_up(chunks, end - begin, step, parameters, settings, plan, workspace)
            shared_write(words, DONE, 0)
            for other in range(shares):
                shared_write(words, TICKETS + APART * other, (phase + 1) << 32)
            share = thread
        elif phase != last_phase:
            share = thread
        asked, last_phase = 0, phase


class X86Steps:
    """Takes the steps of plans and moves the parameters; its memory stays from one plan to the next."""

    def __init__(self, parameters: StepState) -> None:
        self.parameters = parameters
        self.rounded: tuple[np.ndarray, RoundedRows] | None = None
        self.workspace: Workspace | None = None
        self.allowed: Allowed | None = None
        self.division = Division()

    def restricted(self, classes: int) -> None:
        """Take note that other weights, of so many classes, may move now."""
        self.allowed, self.workspace = allowed_weights(self.parameters, classes), None

    def take(
        self, plan: BatchPlan, settings: StepSettings, packed: DictionaryInPanels, workers: Workers, *, lasting: bool
    ) -> np.ndarray:
        """Take all steps of the plan; `lasting` says that the same x comes again. Returns, for each step, its loss and
        the means per row of active scores and of scores computed in floats."""
        # Scores in floats are coded over all concepts: the largest of a row may be sought.
        most = max(1, min(workers.threads, len(packed.panels.screen.quads)))
        if self.workspace is None or not self._fits(plan.size, most):
            self.workspace = new_workspace(plan.size, most, self.parameters, packed.panels, self.allowed)
        owners, reports = self.division.owners(most), np.zeros((len(plan.rates), 3))
        workspace = self.workspace._replace(
            panels=packed.panels, rounded=self._rounded_rows(plan, packed, workers, lasting), reports=reports,
            owners=first_concepts(owners, len(self.parameters.dictionary)),
        )  # fmt: skip
        words, sparse, now = line_zeros(APART * (workers.threads + 1), kind=np.int64), workspace.sparse, self.parameters
        pairs = ((sparse.values, now.weights), (sparse.moments, now.weight_moment))
        if self.allowed is not None:
            for few, every in pairs:
                few[:] = every[self.allowed]
        begin = time.perf_counter()
        workers.map(lambda own: train(words, own, now, settings, plan, workspace), range(workers.threads))
        self.division.took(most, owners, (time.perf_counter() - begin) / len(plan.rows))
        if self.allowed is not None:
            for few, every in pairs:
                every[self.allowed] = few
        return reports

    def _fits(self, size: int, owners: int) -> bool:
        """Whether the workspace has space for batches of `size` rows."""
        assert self.workspace is not None
        enough = len(self.workspace.entries.rows) >= size * len(self.parameters.dictionary)
        return enough and len(self.workspace.pointers) >= owners * len(self.workspace.grad_biases)

    def _rounded_rows(
        self, plan: BatchPlan, packed: DictionaryInPanels, workers: Workers, lasting: bool
    ) -> RoundedRows:
        """Rows that come again in every epoch keep their bytes, a quarter of what they take themselves."""
        x, screen = plan.x, packed.panels.screen
        if not lasting or len(screen.quads) == 0:
            self.rounded = None
            return unrounded(0, x.shape[1])
        # x itself is kept too: as long as it is, no other array can be at its address.
        if self.rounded is None or self.rounded[0].ctypes.data != x.ctypes.data or self.rounded[0].shape != x.shape:
            self.rounded = x, unrounded(*x.shape)
        rounded = self.rounded[1]
        fresh = plan.rows[rounded.about[plan.rows, SCALE] == 0.0]
        pieces = [fresh[start : start + AT_ONCE] for start in range(0, len(fresh), AT_ONCE)]
        workers.map(lambda rows: round_rows(x, rows, screen, rounded), pieces)
        return rounded
