"""Codes as the parts of a CSR matrix, and what the kernels need to know to select them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ActiveEntries(NamedTuple):
    """The parts of a CSR matrix of codes: row i has the columns `indices[pointers[i]:pointers[i + 1]]`."""

    pointers: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class Selection(NamedTuple):
    """A score rule as the kernels take it; see `kernels.select_active`."""

    kind: int
    bound: float
    length: int
    expected: float  # active entries per row, to make room for
    factors: np.ndarray | None = None  # (n,): the bound of each concept is `bound` times its factor; None: all are 1

    def room(self, rows: int, n: int) -> int:
        """Entries to make room for, of so many rows of n scores."""
        return 64 + int(rows * min(self.expected * 1.25, n))
