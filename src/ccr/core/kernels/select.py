"""Which scores of a row are active (METHOD 2 and 3). Few are: vector instructions mark them, eight marks are looked at
as one word, and only words that are not zero are taken apart."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled

#: Entries of a piece, known to the compiler.
PIECE = 64
#: What makes an entry active.
TWO_SIDED, ONE_SIDED, TOP = 0, 1, 2


@compiled
def _any_above(piece, bound):  # type: ignore[no-untyped-def]
    found = np.uint8(0)
    for column in range(PIECE):
        found |= np.uint8(abs(piece[column]) > bound)
    return found != 0


@compiled
def _mark(scores, bound, positive, marks):  # type: ignore[no-untyped-def]
    """marks[i] = whether entry i passes the bound, a byte each."""
    if positive:
        for column in range(len(scores)):
            marks[column] = scores[column] > bound
    else:
        for column in range(len(scores)):
            marks[column] = abs(scores[column]) >= bound


@compiled
def _sift_down(heap, size):  # type: ignore[no-untyped-def]
    """Put the first entry of a heap (smallest first) in its place."""
    value, place = heap[0], 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


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
    """32 well-mixed bits, the same as `ccr.core.refine.dense.hash32` gives."""
    mask = np.uint64(0xFFFFFFFF)
    bits = np.uint64(row) * np.uint64(0x9E3779B1) ^ np.uint64(concept) * np.uint64(0x85EBCA6B) ^ np.uint64(salt)
    bits &= mask
    bits = ((bits ^ (bits >> np.uint64(16))) * np.uint64(0x7FEB352D)) & mask
    bits = ((bits ^ (bits >> np.uint64(15))) * np.uint64(0x846CA68B)) & mask
    return bits ^ (bits >> np.uint64(16))


@compiled
def select_active(scores, kind, bound, length, first, dropped, salt, pointers, indices, data):  # type: ignore[no-untyped-def]
    """Active entries of the scores (b, n), columns rising: row r at pointers[r]:pointers[r + 1] of `indices`, `data`.

    `kind` is TWO_SIDED (|s| >= bound), ONE_SIDED (s > bound) or TOP (the `length` largest |s|, of equal ones the
    first); zeros and NaN are never active. Of the active ones those are left out whose `mixed_bits` of
    (first + row, column) are below `dropped`. Returns how many are active, left out ones included; what does not
    fit into `indices` is counted in `pointers` but not written.
    """
    b, n = scores.shape
    room, place, active = len(indices), 0, 0
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
        _mark(line, bound, kind == ONE_SIDED, marks)
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
                if dropped > 0 and mixed_bits(first + row, column, salt) < np.uint64(dropped):
                    continue
                if place < room:
                    indices[place] = column
                    data[place] = value
                place += 1
        pointers[row + 1] = place
    return active
