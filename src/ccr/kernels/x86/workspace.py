"""Memory that the steps of a training use again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ccr.kernels.plain.arguments import SortedEntries, StepState, line_zeros
from ccr.kernels.x86.arguments import PanelColumns, SparseHead, Workspace
from ccr.kernels.x86.rounding import unrounded
from ccr.kernels.x86.tiles import ROWS
from ccr.kernels.x86.vectors import LANES

#: A batch is cut into about so many chunks, of at most so many rows.
CHUNKS, MOST_ROWS = 12, 32 * ROWS
#: Weights beyond which the head is taken a few classes at a time, CLASSES: more do not stay in the cache.
WIDE_HEAD, CLASSES = 1_000_000, 4 * LANES
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
    """As many entries as there are scores: most are never touched, and then take no memory, unlike those of NumPy,
    which asks for large pages."""
    return torch.empty(shape, dtype=kind).numpy()
