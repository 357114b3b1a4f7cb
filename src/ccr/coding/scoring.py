"""Active entries without all scores: a dictionary packed for the kernels, and a rule's selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ccr import kernels
from ccr.kernels import Entries
from ccr.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")


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


# Which entries of scores are active, in torch: for the rules, and for modules that are compiled or exported.
def threshold_mask(scores: torch.Tensor, threshold: torch.Tensor, positive: bool) -> torch.Tensor:
    """|s| >= threshold, or s > threshold when `positive`; zeros never (Algorithm 2, docs/method.md). The
    threshold is one number (), or one for each concept (n,)."""
    if positive:
        return scores > threshold
    return (scores.abs() >= threshold) & (scores != 0)


def top_mask(scores: torch.Tensor, length: int) -> torch.Tensor:
    """The `length` scores of largest absolute value in each row, of equals the first; zeros never."""
    size = scores.abs()
    bound = size.topk(length, dim=1).values[:, -1:]
    above, equal = size > bound, size == bound
    # Of equals the first ones, as the kernels take them; topk takes any.
    fits = equal & (equal.cumsum(dim=1) <= length - above.sum(dim=1, keepdim=True))
    return (above | fits) & (scores != 0)


#: Screening scores in bytes pays while at most this part of them must then be computed in floats.
FEW = 0.2
#: How far a row's norm may be from 1.
UNIT_TOLERANCE = 5e-6


class Panels:
    """A dictionary (n, d) packed for the kernels, which find the active entries of rows by it.

    `looked` is how many scores of a row could be active, if it is known. `pack` is called again when the rows moved.
    `seed` is that of the noise of a screening in bytes; None draws it afresh, so that rows cannot be built against it.
    The factors of the selection are packed too: later selections may have another bound, but the same factors.
    """

    def __init__(
        self, dictionary: np.ndarray, selection: Selection, looked: float | None = None, *, seed: int | None = None
    ) -> None:
        self.dictionary = dictionary
        self.wanted = screens(selection, len(dictionary), looked)
        self.screened = self.wanted and _unit(dictionary)
        # Numba would compile all kernels again for an array that cannot be written.
        writable = dictionary if dictionary.flags.writeable else dictionary.copy()
        self.packed = kernels.PackedConcepts(writable, screened=self.screened, seed=seed, factors=selection.factors)

    def pack(self) -> None:
        self.packed.pack()

    def entries(self, x: np.ndarray, selection: Selection) -> Entries:
        """The active entries of rows x (b, d)."""
        return self.examined(x, selection)[0]

    def encoder(self, selection: Selection) -> Callable[[torch.Tensor], Entries]:
        """The function from embeddings (b, d) to their codes under the selection."""
        return lambda x: self.entries(x.contiguous().numpy(), selection)

    def examined(self, x: np.ndarray, selection: Selection) -> tuple[Entries, int]:
        """The active entries of rows x (b, d), and how many scores were computed in floats to find them."""
        criterion = kernels.Criterion(selection.kind, np.float32(selection.bound), selection.length)
        pointers = np.empty(len(x) + 1, np.int32)
        capacity = selection.room(len(x), len(self.dictionary))
        while True:
            indices, data = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
            looked = kernels.code_rows(x, self.packed, criterion, Entries(pointers, indices, data))
            if pointers[-1] <= capacity:
                return Entries(pointers, indices[: pointers[-1]], data[: pointers[-1]]), looked
            capacity = int(pointers[-1])


def screens(selection: Selection, n: int, looked: float | None = None) -> bool:
    """Whether a product in bytes should come first: `looked` of n scores, or as many as are expected to be active, must
    be computed in floats all the same."""
    expected = selection.expected if looked is None else looked
    return kernels.SCREENS and selection.kind != kernels.TOP and expected <= FEW * n


def _unit(dictionary: np.ndarray) -> bool:
    """Whether all rows have norm 1, on which the bound of the screening rests."""
    return bool((np.abs(np.linalg.norm(dictionary, axis=1) - 1.0) <= UNIT_TOLERANCE).all())
