"""Active entries of rows x (b, d) under a dictionary (n, d), by their product in floats."""

from __future__ import annotations

import numpy as np
import torch

from ccr.kernels.compiling import compiled
from ccr.kernels.plain.arguments import ONE_SIDED, TOP, Criterion, Dropout, Entries

# Selection of a row's active scores (Algorithms 1 and 2, docs/method.md). Few are active: vector instructions mark
# them, eight marks are read as one word, and only nonzero words are taken apart.

#: Entries of a piece, a constant for the compiler.
PIECE = 64


@compiled
def _any_above(piece, bound):  # type: ignore[no-untyped-def]
    above = np.uint8(0)
    for column in range(PIECE):
        above |= np.uint8(abs(piece[column]) > bound)
    return above != 0


@compiled
def _mark(scores, bound, factors, positive, marks):  # type: ignore[no-untyped-def]
    """marks[i] = whether entry i passes the bound times its factor, a byte each."""
    if positive:
        for column in range(len(scores)):
            marks[column] = scores[column] > bound * factors[column]
    else:
        for column in range(len(scores)):
            marks[column] = abs(scores[column]) >= bound * factors[column]


@compiled
def _sift_down(heap, size):  # type: ignore[no-untyped-def]
    """Let the first entry of a heap (smallest first) sink to where it belongs."""
    value, parent = heap[0], 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = value


@compiled
def _top_bound(scores, heap):  # type: ignore[no-untyped-def]
    """The len(heap)-th largest |score|; 0 when there are not so many."""
    length, n = len(heap), len(scores)
    heap[:] = np.float32(0.0)
    for start in range(0, n, PIECE):
        stop = min(start + PIECE, n)
        if stop - start == PIECE and not _any_above(scores[start:stop], heap[0]):
            continue
        for column in range(start, stop):
            size = abs(scores[column])
            if size > heap[0]:
                heap[0] = size
                _sift_down(heap, length)
    return heap[0]


@compiled
def _above(scores, bound):  # type: ignore[no-untyped-def]
    count = 0
    for column in range(len(scores)):
        count += abs(scores[column]) > bound
    return count


@compiled
def mixed_bits(row, concept, salt):  # type: ignore[no-untyped-def]
    """32 well-mixed bits, the same as `ccr.refine.engines.hash32` gives."""
    mask = np.uint64(0xFFFFFFFF)
    bits = np.uint64(row) * np.uint64(0x9E3779B1) ^ np.uint64(concept) * np.uint64(0x85EBCA6B) ^ np.uint64(salt)
    bits &= mask
    bits = ((bits ^ (bits >> np.uint64(16))) * np.uint64(0x7FEB352D)) & mask
    bits = ((bits ^ (bits >> np.uint64(15))) * np.uint64(0x846CA68B)) & mask
    return bits ^ (bits >> np.uint64(16))


@compiled
def select_active(scores, criterion, factors, dropout, entries):  # type: ignore[no-untyped-def]
    """The entries of the scores (b, n) that the criterion makes active, its bound times the concept's factor (n,),
    without those that `dropout` leaves out; zeros and NaN are never active. Returns how many are active, left out ones
    included; what does not fit into `entries.indices` is counted in the pointers but not written."""
    b, n = scores.shape
    (kind, bound, length), (first, below, salt) = criterion, dropout
    pointers, indices, data = entries
    capacity, count, active = len(indices), 0, 0
    heap = np.empty(max(length, 1), np.float32)
    marks = np.zeros((n + 7) // 8 * 8, np.uint8)
    words = marks.view(np.uint64)  # eight marks at a time: most words are zero
    pointers[0] = 0
    for row in range(b):
        line = scores[row]
        equal = 0
        if kind == TOP:
            bound = _top_bound(line, heap)
            equal = length - _above(line, bound)  # so many of those at the bound still fit
        _mark(line, bound, factors, kind == ONE_SIDED, marks)
        for word in range(len(words)):
            if words[word] == 0:
                continue
            for column in range(8 * word, min(8 * word + 8, n)):
                value = line[column]
                if marks[column] == 0 or value == np.float32(0.0):
                    continue
                if kind == TOP and abs(value) == bound:
                    equal -= 1
                    if equal < 0:
                        continue
                active += 1
                if below > 0 and mixed_bits(first + row, column, salt) < np.uint64(below):
                    continue
                if count < capacity:
                    indices[count] = column
                    data[count] = value
                count += 1
        pointers[row + 1] = count
    return active


@compiled
def step_salt(seed, step):  # type: ignore[no-untyped-def]
    """The same as `ccr.refine.engines.step_salt`."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B1) + np.uint64(step) * np.uint64(0x85EBCA77) + np.uint64(0x165667B1)
    return mixed & np.uint64(0xFFFFFFFF)


#: Rows whose scores are computed at once.
BLOCK = 128
NO_DROPOUT = Dropout(0, 0, np.uint64(0))


class DictionaryInFloats:
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


def code_rows(x: np.ndarray, packed: DictionaryInFloats, criterion: Criterion, entries: Entries) -> int:
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
