"""Active entries of rows x (b, d) under a dictionary (n, d), by their product in floats."""

from __future__ import annotations

import numpy as np
import torch

from ccr.core.kernels.plain.arguments import Criterion, Dropout, Entries
from ccr.core.kernels.plain.select import select_active

#: Rows whose scores are computed at once.
BLOCK = 128
NO_DROPOUT = Dropout(0, 0, np.uint64(0))


class PackedConcepts:
    """A dictionary as the products want it: as it is, with the `factors` (n,) of its concepts' bounds, None: 1. Nothing
    is screened, and no noise drawn from the `seed`."""

    def __init__(
        self, dictionary: np.ndarray, *, screened: bool, seed: int | None, factors: np.ndarray | None = None
    ) -> None:
        self.dictionary = dictionary
        self.factors = np.ones(len(dictionary), np.float32) if factors is None else factors

    def pack(self) -> None:
        """Take in the dictionary's rows, which moved."""


def scores_of(x: np.ndarray, dictionary: np.ndarray) -> np.ndarray:
    product: np.ndarray = (torch.from_numpy(x) @ torch.from_numpy(dictionary).T).numpy()
    return product


def code_rows(x: np.ndarray, packed: PackedConcepts, criterion: Criterion, entries: Entries) -> int:
    """Active entries of all rows of x; what does not fit into `entries.indices` is counted in the pointers but not
    written. Returns how many scores were computed in floats."""
    count, capacity = 0, len(entries.indices)
    entries.pointers[0] = 0
    for start in range(0, len(x), BLOCK):
        scores, rest = scores_of(x[start : start + BLOCK], packed.dictionary), min(count, capacity)
        pointers = entries.pointers[start : start + len(scores) + 1]
        here = Entries(pointers, entries.indices[rest:], entries.data[rest:])
        select_active(scores, criterion, packed.factors, NO_DROPOUT, here)
        pointers += np.int32(count)
        count = int(pointers[-1])
    return len(x) * len(packed.dictionary)
