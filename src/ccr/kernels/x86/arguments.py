"""Arguments of the x86 kernels beyond those of `ccr.kernels.plain.arguments`."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from ccr.kernels.plain.arguments import SortedEntries
from ccr.kernels.x86.vectors import INT, LONG, at, called, emitting


# Atomic words shared by threads: a thread that sees a write also sees the writes before it.
def _word(context: Any, builder: Any, signature: Any, array: Any, place: Any) -> Any:
    return at(builder, context.make_array(signature.args[0])(context, builder, array).data, LONG, place)


@intrinsic
def shared_add(context, words, place, value):  # type: ignore[no-untyped-def]
    """words[place] += value, at once for all threads; what was there before."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, value = arguments
        return builder.atomic_rmw("add", _word(context, builder, signature, array, place), value, "seq_cst")

    return types.int64(words, types.int64, types.int64), emit


@intrinsic
def shared_read(context, words, place):  # type: ignore[no-untyped-def]
    """words[place] as it was written last."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place = arguments
        return builder.load_atomic(_word(context, builder, signature, array, place), "seq_cst", 8, typ=LONG)

    return types.int64(words, types.int64), emit


@intrinsic
def shared_write(context, words, place, value):  # type: ignore[no-untyped-def]
    """words[place] = value."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, value = arguments
        # An exchange: what an atomic store is on x86; llvmlite's `store_atomic` wants a pointer that knows its type.
        builder.atomic_rmw("xchg", _word(context, builder, signature, array, place), value, "seq_cst")
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), emit


@emitting(types.void)
def let_others_run(builder):  # type: ignore[no-untyped-def]
    """Give up the rest of this thread's turn, where the system has a word for it."""
    if os.name == "posix":
        called(builder, "sched_yield", INT, [])


#: Columns of the facts about a row in bytes: its scale, the product of its bytes with the noise of concepts, its norm.
SCALE, PRODUCT, NORM = 0, 1, 2


class RoundedRows(NamedTuple):
    """Bytes of the rows of x, four in each element of `quads` (m, quads), and what is known of them, `about` (m, 4);
    rows of scale 0 are not rounded yet. Without any rows nothing is kept."""

    quads: np.ndarray
    about: np.ndarray


class RowBlock(NamedTuple):
    """The rows x[rows], and their bytes if `rounded` has space for them; x[later] come next and are asked for ahead."""

    x: np.ndarray
    rows: np.ndarray
    later: np.ndarray
    rounded: RoundedRows


class Screen(NamedTuple):
    """A dictionary in bytes, as the columns of panels (`pack_concepts`): four bytes of a concept in each element of
    `quads` (panels, quads, PANEL), `starts` (panels, blocks, PANEL) as `block_starts` makes them, `offsets` (panels,
    PANEL) that take the noise of rows out again, and the panels' `scales`; noise as in `rounding`."""

    quads: np.ndarray
    starts: np.ndarray
    offsets: np.ndarray
    scales: np.ndarray
    row_noise: np.ndarray
    concept_noise: np.ndarray


class PanelColumns(NamedTuple):
    """Rows of a dictionary (n, d) from concept `first` on, and the same as the columns of panels: in bytes, or in
    `floats` (panels, d, PANEL); the other one has no panels. The bound of each concept is the common one times its
    factor; there are as many `factors` as columns of panels."""

    dictionary: np.ndarray
    screen: Screen
    floats: np.ndarray
    factors: np.ndarray
    first: int


class SparseHead(NamedTuple):
    """A head of which few weights may move, those of concept j at starts[j]:starts[j + 1]: their classes (`columns`),
    the weights (`values`) and their momentum; `grads` (chunks, weights) are what each chunk adds to their gradient.
    Without starts the head is not sparse."""

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    moments: np.ndarray
    grads: np.ndarray


class Workspace(NamedTuple):
    """Memory of a step. Owner o has the concepts owners[o]:owners[o + 1]; `pointers`, `indices`, `codes`, `grad_scores`
    (derivatives by the score) and `sums` (of what is reported) have a place for each owner's part of each chunk's
    codes. `counts` (chunks, n) are by concept, all `entries` sorted by concept. `logits` (items, rows, CLASSES) has no
    items if the head is small, `grad_logits` (rows, W) no rows if it is `sparse`. `reports` (steps, 3) gets each step's
    loss, and means per row: active scores, scores computed in floats."""

    panels: PanelColumns
    rounded: RoundedRows
    reports: np.ndarray
    owners: np.ndarray
    pointers: np.ndarray
    indices: np.ndarray
    codes: np.ndarray
    grad_scores: np.ndarray
    grad_logits: np.ndarray
    grad_biases: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    entries: SortedEntries
    logits: np.ndarray
    sparse: SparseHead
