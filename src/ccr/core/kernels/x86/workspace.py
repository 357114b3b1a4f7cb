"""Memory that the steps of a training use again and again."""

from __future__ import annotations

import numpy as np
import torch

from ccr.core.kernels.plain.arguments import LANES, Parameters, SortedEntries, line_zeros
from ccr.core.kernels.x86.arguments import Panels, Workspace
from ccr.core.kernels.x86.packing import unrounded
from ccr.core.kernels.x86.tiles import ROWS

#: A batch is cut into about so many chunks, of at most so many rows.
CHUNKS, MOST_ROWS = 12, 32 * ROWS
#: Weights beyond which the head is taken a few classes at a time, CLASSES: more do not stay in the cache.
WIDE_HEAD, CLASSES = 1_000_000, 4 * LANES


def new_workspace(size: int, parameters: Parameters, panels: Panels) -> Workspace:
    """For batches of `size` rows."""
    n, width = len(parameters.dictionary), len(parameters.bias)
    rows = min(MOST_ROWS, ROWS * -(-size // (ROWS * CHUNKS)))
    chunks = -(-size // rows)
    by_chunk, all_scores = (chunks, rows * n), size * n
    entries = SortedEntries(
        starts=line_zeros(n + 1, kind=np.int32), rows=_untouched(all_scores, kind=torch.int32),
        sources=_untouched(all_scores, kind=torch.int32), codes=_untouched(all_scores),
        through=_untouched(all_scores),
    )  # fmt: skip
    return Workspace(
        panels=panels, rounded=unrounded(0, parameters.dictionary.shape[1]), reports=np.zeros((0, 3)),
        pointers=np.zeros((chunks, rows + 1), np.int32), indices=_untouched(*by_chunk, kind=torch.int32),
        codes=_untouched(*by_chunk), through=_untouched(*by_chunk), slopes=line_zeros(size, width),
        bias_slopes=line_zeros(chunks, width), sums=line_zeros(chunks, 3, kind=np.float64),
        counts=line_zeros(chunks, n, kind=np.int32), entries=entries,
        logits=line_zeros(-(-width // CLASSES) if n * width >= WIDE_HEAD else 0, size, CLASSES),
    )  # fmt: skip


def _untouched(*shape: int, kind: torch.dtype = torch.float32) -> np.ndarray:
    """As many entries as there are scores: most are never touched, and then take no memory, unlike those of NumPy,
    which asks for large pages."""
    return torch.empty(shape, dtype=kind).numpy()
