"""Active entries without all scores: a dictionary packed for the kernels, and a rule's selection."""

from __future__ import annotations

import numpy as np

from ccr.core import kernels
from ccr.core.coding.rules import ActiveEntries, Selection
from ccr.core.kernels.llvm import FAST_SHORTS
from ccr.core.kernels.tiles import PANEL

#: Screening scores in 16-bit integers pays while at most this part of them is active.
FEW = 0.2
#: How far a row's length may be from 1.
UNIT_TOLERANCE = 5e-6
#: Bytes of a cache line.
LINE = 64


class Panels:
    """A dictionary's rows as columns of panels, as `kernels.pack_concepts` makes them; for `kernels.code_rows`.

    `length` is the number of active entries a row that is expected. `pack` is called again when the rows moved.
    """

    def __init__(self, dictionary: np.ndarray, selection: Selection, length: float | None = None) -> None:
        n, d = dictionary.shape
        self.dictionary = dictionary
        self.wanted = screens(selection, n, length)
        self.screened = self.wanted and _unit(dictionary)
        panels = -(-n // PANEL)
        self.pairs = line_zeros(panels if self.screened else 0, (d + 1) // 2, PANEL, kind=np.int32)
        self.floats = line_zeros(0 if self.screened else panels, d, PANEL)
        self.pack()

    def pack(self) -> None:
        kernels.pack_concepts(0, len(self.dictionary), self.dictionary, self.pairs, self.floats)

    def entries(self, x: np.ndarray, selection: Selection) -> ActiveEntries:
        """The active entries of rows x (b, d)."""
        pointers = np.empty(len(x) + 1, np.int32)
        room = selection.room(len(x), len(self.dictionary))
        while True:
            indices, data = np.empty(room, np.int32), np.empty(room, np.float32)
            kernels.code_rows(
                x, self.dictionary, self.pairs, self.floats, selection.kind, np.float32(selection.bound),
                selection.length, pointers, indices, data,
            )  # fmt: skip
            if pointers[-1] <= room:
                return ActiveEntries(pointers, indices[: pointers[-1]], data[: pointers[-1]])
            room = int(pointers[-1])


def screens(selection: Selection, n: int, length: float | None = None) -> bool:
    """Whether a product in 16-bit integers should come first: `length` of n scores, or so many as are expected, are
    active."""
    expected = selection.expected if length is None else length
    return FAST_SHORTS and selection.kind != kernels.TOP and expected <= FEW * n


def _unit(dictionary: np.ndarray) -> bool:
    """Whether all rows have length 1, on which the bound of the screening rests."""
    return bool((np.abs(np.linalg.norm(dictionary, axis=1) - 1.0) <= UNIT_TOLERANCE).all())


def line_zeros(*shape: int, kind: type = np.float32) -> np.ndarray:
    """Zeros from the beginning of a cache line on; NumPy asks for large pages, where there are some, if it is much."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    found: np.ndarray = memory[start : start + size].view(kind).reshape(shape)
    found[...] = 0
    return found
