"""Active entries without all scores: a dictionary packed for the kernels, and a rule's selection."""

from __future__ import annotations

import numpy as np

from ccr.core import kernels
from ccr.core.coding.entries import ActiveEntries, Selection
from ccr.core.kernels.llvm import FAST_BYTES
from ccr.core.kernels.packing import empty_screen, line_zeros
from ccr.core.kernels.tiles import PANEL

#: Screening scores in bytes pays while at most this part of them must then be computed in floats.
FEW = 0.2
#: How far a row's length may be from 1.
UNIT_TOLERANCE = 5e-6


class Panels:
    """A dictionary's rows as columns of panels, as `kernels.pack_concepts` makes them; for `kernels.code_rows`.

    `looked` is how many scores of a row could be active, if it is known. `pack` is called again when the rows moved.
    """

    def __init__(self, dictionary: np.ndarray, selection: Selection, looked: float | None = None) -> None:
        n, d = dictionary.shape
        self.dictionary = dictionary
        self.wanted = screens(selection, n, looked)
        self.screened = self.wanted and _unit(dictionary)
        panels = -(-n // PANEL)
        self.screen = empty_screen(panels if self.screened else 0, d)
        self.floats = line_zeros(0 if self.screened else panels, d, PANEL)
        self.pack()

    def pack(self) -> None:
        kernels.pack_concepts(0, len(self.dictionary), self.dictionary, self.screen, self.floats)

    def entries(self, x: np.ndarray, selection: Selection) -> ActiveEntries:
        """The active entries of rows x (b, d)."""
        return self.examined(x, selection)[0]

    def examined(self, x: np.ndarray, selection: Selection) -> tuple[ActiveEntries, int]:
        """The active entries of rows x (b, d), and how many scores were computed in floats to find them."""
        pointers = np.empty(len(x) + 1, np.int32)
        room = selection.room(len(x), len(self.dictionary))
        while True:
            indices, data = np.empty(room, np.int32), np.empty(room, np.float32)
            looked = kernels.code_rows(
                x, self.dictionary, self.screen, self.floats, selection.kind, np.float32(selection.bound),
                selection.length, pointers, indices, data,
            )  # fmt: skip
            if pointers[-1] <= room:
                return ActiveEntries(pointers, indices[: pointers[-1]], data[: pointers[-1]]), int(looked)
            room = int(pointers[-1])


def screens(selection: Selection, n: int, looked: float | None = None) -> bool:
    """Whether a product in bytes should come first: `looked` of n scores, or as many as are expected to be active, must
    be computed in floats all the same."""
    expected = selection.expected if looked is None else looked
    return FAST_BYTES and selection.kind != kernels.TOP and expected <= FEW * n


def _unit(dictionary: np.ndarray) -> bool:
    """Whether all rows have length 1, on which the bound of the screening rests."""
    return bool((np.abs(np.linalg.norm(dictionary, axis=1) - 1.0) <= UNIT_TOLERANCE).all())
