"""Codes of embeddings under a fitted rule, a few rows at a time, by all threads; close calls decided in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ccr.coding.rules import Encode, Rule, ThresholdRule, TopRule
from ccr.inputs import CHUNK_VALUES, Embeddings
from ccr.kernels import Entries
from ccr.utils.arrays import LazyModule, row_products
from ccr.utils.threads import Workers

if TYPE_CHECKING:
    import torch
    from scipy import sparse
else:
    torch = LazyModule("torch")
    sparse = LazyModule("scipy.sparse")

# Close calls: scores within rounding of the threshold are computed again in float64. Kernels sum in float32, and
# every exported form of a model sums in its own order, so that such a score would be active in one and not in
# another. Decided in float64, from the embedding as given, it is the same everywhere (Close calls, docs/method.md).

#: Tolerance of close calls: scores this near to the threshold are doubtful. Seven times the largest error seen in
#: scores of the float32 kernels on real embeddings (`python -m benchmarks.shipping`).
CLOSE = 4e-6

#: From the numbers of some rows to those rows (k, d), placed in float64.
Exact = Callable[[np.ndarray], np.ndarray]
#: From embeddings (b, d), and a way to read some of them exactly, to their codes.
Decide = Callable[["torch.Tensor", Exact], Entries]


def decider(rule: Rule, dictionary: np.ndarray) -> Decide:
    """The function from embeddings to codes over the dictionary's rows (n, d), with close calls decided in float64;
    rules that solve a problem for every image have none."""
    # Below CLOSE, what is dropped or kept is as good as zero.
    if isinstance(rule, ThresholdRule) and bool((rule.bounds > CLOSE).any()):
        return _threshold(rule, dictionary)
    if isinstance(rule, TopRule) and rule.length < len(dictionary):
        return _top(rule, dictionary)
    return no_tie_break(rule.encoder(dictionary))


def no_tie_break(encode: Encode) -> Decide:
    """The same codes, close calls decided by whatever float32 rounds to."""
    return lambda x, exact: encode(x)


def _threshold(rule: ThresholdRule, dictionary: np.ndarray) -> Decide:
    # A common threshold is lowered by as much as makes the highest one lower by CLOSE; others are lowered less, so that
    # theirs are lowered one by one.
    lower = np.maximum(rule.bounds.astype(np.float64) - CLOSE, 0.0)
    encode = (
        replace(rule, threshold=rule.threshold - CLOSE)
        if rule.factors is None
        else ThresholdRule.by_concept(lower, rule.positive, rule.length)
    ).encoder(dictionary)
    bounds = rule.bounds.astype(np.float64)  # of float32, as the kernels compare

    def decide(x: torch.Tensor, exact: Exact) -> Entries:
        codes = encode(x)
        bound = bounds[codes.indices] if rule.factors is not None else bounds
        doubtful = np.flatnonzero((codes.data if rule.positive else np.abs(codes.data)) < bound + CLOSE)
        if not len(doubtful):
            return codes
        rows, which = np.unique(np.searchsorted(codes.pointers, doubtful, side="right") - 1, return_inverse=True)
        concepts = dictionary[codes.indices[doubtful]].astype(np.float64)
        scores = np.einsum("ij,ij->i", exact(rows)[which], concepts)
        bound_of_each = bound[doubtful] if rule.factors is not None else bound
        gone = scores <= bound_of_each if rule.positive else np.abs(scores) < bound_of_each
        kept = np.ones(len(codes.data), bool)
        kept[doubtful[gone]] = False
        return _only(codes, kept)

    return decide


def _top(rule: TopRule, dictionary: np.ndarray) -> Decide:
    encode, length = TopRule(rule.length + 1).encoder(dictionary), rule.length

    def decide(x: torch.Tensor, exact: Exact) -> Entries:
        codes = encode(x)
        (full,) = np.nonzero(np.diff(codes.pointers) == length + 1)  # others have fewer scores that are not zero
        if not len(full):
            return codes
        places = codes.pointers[full, None] + np.arange(length + 1)
        sizes = np.abs(codes.data[places])
        kept = np.ones(len(codes.data), bool)
        kept[places[np.arange(len(full)), _last_smallest(sizes)]] = False
        two = np.partition(sizes, 1, axis=1)[:, :2]
        (doubtful,) = np.nonzero(two[:, 1] - two[:, 0] < 2 * CLOSE)
        left = _only(codes, kept)
        if len(doubtful):
            _choose_again(left, full[doubtful], exact(full[doubtful]) @ dictionary.T.astype(np.float64), length)
        return left

    return decide


def _last_smallest(sizes: np.ndarray) -> np.ndarray:
    """Column of each row's smallest number, of equals the last."""
    return np.asarray(sizes.shape[1] - 1 - sizes[:, ::-1].argmin(axis=1))


def _choose_again(codes: Entries, rows: np.ndarray, scores: np.ndarray, length: int) -> None:
    """Write the `length` largest of the scores (k, n), of equals the first, into these rows of the codes."""
    best = np.sort(np.argsort(-np.abs(scores), axis=1, kind="stable")[:, :length], axis=1)
    places = codes.pointers[rows, None] + np.arange(length)
    codes.indices[places] = best
    codes.data[places] = np.take_along_axis(scores, best, axis=1)


def _only(codes: Entries, kept: np.ndarray) -> Entries:
    """The entries that are kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Entries(before[codes.pointers].astype(codes.pointers.dtype), codes.indices[kept], codes.data[kept])


#: Up to so many rows are coded with NumPy alone: before torch and the kernels are loaded, and without waking threads.
FEW_ROWS = 64


def few_codes(rule: ThresholdRule | TopRule, placed: np.ndarray, dictionary: np.ndarray) -> Entries:
    """Codes of a few rows (b, d), which are placed already, over the dictionary's rows (n, d), both float64: the same
    entries are active as `decider` finds."""
    scores = row_products(placed, dictionary.T)
    rows, columns = np.nonzero(rule.select(scores))
    pointers = np.searchsorted(rows, np.arange(len(placed) + 1)).astype(np.int32)
    return Entries(pointers, columns.astype(np.int32), scores[rows, columns].astype(np.float32))


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
    use: Callable[[slice, Entries], Result],
    *,
    rows: np.ndarray | None = None,
    workers: Workers | None = None,
    decide: Decide | None = None,
) -> list[Result]:
    """`use(part, codes)` of the codes of X, or of these `rows` of it, part by part in order.

    `workers` are those of a surrounding `with`; otherwise there are some for this call. `decide` is as in
    `apply_rule`, or `no_tie_break` for an encoder.
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
    """Root mean square from a sum of squares; 1.0 if empty or all zero."""
    return math.sqrt(total / count) or 1.0 if count else 1.0


def _spans(count: int, dictionary: np.ndarray) -> list[slice]:
    # Pieces for several threads to share, but none so small that starting it takes longer than the work.
    size = max(1, min(CHUNK_VALUES // max(dictionary.shape), max(FEWEST_ROWS, count // SHARES)))
    size = max(size - size % EVEN, min(size, EVEN))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _coding(
    decide: Decide, X: Embeddings, rows: np.ndarray | None, use: Callable[[slice, Entries], Result]
) -> Callable[[slice], Result]:
    def work(part: slice) -> Result:
        numbers = np.arange(part.start, part.stop) if rows is None else rows[part]
        x = X.span(part.start, part.stop) if rows is None else X.take(numbers)
        return use(part, decide(x, lambda close: X.exact(numbers[close])))

    return work
