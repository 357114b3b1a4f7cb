"""Codes of embeddings under a fitted rule, a few rows at a time, by all threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from scipy import sparse

from ccr.core.coding.close import Decide, decider
from ccr.core.coding.entries import ActiveEntries
from ccr.core.coding.rules import Rule
from ccr.core.inputs import CHUNK_VALUES, Embeddings
from ccr.core.threads import Workers

Result = TypeVar("Result")
#: Pieces whose codes `code_chunks` makes at once.
AHEAD = 16
#: Work is cut into about this many pieces, of at least so many rows, and a multiple of EVEN, because the kernels read a
#: large dictionary once for 192 rows or more.
SHARES, FEWEST_ROWS, EVEN = 16, 192, 64


def apply_rule(rule: Rule, X: Embeddings, dictionary: np.ndarray, decide: Decide | None = None) -> sparse.csr_matrix:
    """Codes of X under a fitted rule, float32 CSR; memory beyond the codes does not grow with m x n. `decide` is the
    rule's `decider` of the dictionary, if there is one already."""
    pieces = map_codes(rule, X, dictionary, lambda rows, codes: codes, decide=decide)
    lengths = np.concatenate([np.diff(piece.pointers) for piece in pieces])
    pointers = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    kind = np.int64 if pointers[-1] > np.iinfo(np.int32).max else np.int32
    indices = np.concatenate([piece.indices for piece in pieces]).astype(kind, copy=False)
    data = np.concatenate([piece.data for piece in pieces])
    return sparse.csr_matrix((data, indices, pointers.astype(kind)), shape=(len(X), len(dictionary)))


def code_chunks(
    rule: Rule, X: Embeddings, dictionary: np.ndarray, decide: Decide | None = None
) -> Iterator[sparse.csr_matrix]:
    """Codes of some rows of X after the other, in order; `decide` as in `apply_rule`."""
    with Workers():
        work = _coding(decide or decider(rule, dictionary), X, None, lambda rows, codes: codes)
    spans = _spans(len(X), dictionary)
    for start in range(0, len(spans), AHEAD):
        with Workers() as workers:
            pieces = workers.map(work, spans[start : start + AHEAD])
        for piece in pieces:
            shape = (len(piece.pointers) - 1, len(dictionary))
            yield sparse.csr_matrix((piece.data, piece.indices, piece.pointers), shape=shape)


def map_codes(
    rule: Rule,
    X: Embeddings,
    dictionary: np.ndarray,
    use: Callable[[slice, ActiveEntries], Result],
    *,
    rows: np.ndarray | None = None,
    workers: Workers | None = None,
    decide: Decide | None = None,
) -> list[Result]:
    """`use(part, codes)` of the codes of X, or of these `rows` of it, part by part in order.

    `workers` are those of a surrounding `with`; otherwise there are some for this call. `decide` is as in
    `apply_rule`, or `as_it_falls` for an encoder.
    """
    if workers is None:
        with Workers() as own:
            return map_codes(rule, X, dictionary, use, rows=rows, workers=own, decide=decide)
    spans = _spans(len(X) if rows is None else len(rows), dictionary)
    return workers.map(_coding(decide or decider(rule, dictionary), X, rows, use), spans)


def code_size(codes: sparse.csr_matrix) -> float:
    """Root mean square of the active entries of codes (m, n); 1 where there are none."""
    return root_mean_square(float(np.square(codes.data, dtype=np.float64).sum()), len(codes.data))


def root_mean_square(total: float, count: int) -> float:
    """Of `count` numbers whose squares add up to `total`; 1 where there are none, or only zeros."""
    return math.sqrt(total / count) or 1.0 if count else 1.0


def _spans(count: int, dictionary: np.ndarray) -> list[slice]:
    # Pieces for several threads to share, but none so small that starting it takes longer than the work.
    size = max(1, min(CHUNK_VALUES // max(dictionary.shape), max(FEWEST_ROWS, count // SHARES)))
    size = max(size - size % EVEN, min(size, EVEN))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _coding(
    decide: Decide, X: Embeddings, rows: np.ndarray | None, use: Callable[[slice, ActiveEntries], Result]
) -> Callable[[slice], Result]:
    def work(part: slice) -> Result:
        numbers = np.arange(part.start, part.stop) if rows is None else rows[part]
        x = X.span(part.start, part.stop) if rows is None else X.take(numbers)
        return use(part, decide(x, lambda close: X.exact(numbers[close])))

    return work
