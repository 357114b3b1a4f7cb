"""Close calls: scores that lie within rounding of what decides are computed again in float64.

Kernels add up in float32, and every form that a model is exported to in an order of its own, so that a score within
rounding of the threshold would be active here and not there. Decided in float64, from the embedding as it was given, it
is the same everywhere (Close calls, docs/method.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from ccr.core.coding.entries import ActiveEntries
from ccr.core.coding.rules import Encode, Rule, ThresholdRule, TopRule

#: Scores this near to what decides are doubtful: seven times the largest error that scores of the float32 kernels were
#: seen to have on real embeddings (`python -m benchmarks.shipping`).
CLOSE = 4e-6

#: From the numbers of some rows to those rows (k, d), placed in float64.
Exact = Callable[[np.ndarray], np.ndarray]
#: From embeddings (b, d), and a way to read some of them exactly, to their codes.
Decide = Callable[[torch.Tensor, Exact], ActiveEntries]


def decider(rule: Rule, dictionary: np.ndarray) -> Decide:
    """The function from embeddings to codes over the dictionary's rows (n, d), with close calls decided in float64;
    rules that solve a problem for every image have none."""
    # Below CLOSE, what is dropped or kept is as good as zero.
    if isinstance(rule, ThresholdRule) and bool((rule.bounds > CLOSE).any()):
        return _threshold(rule, dictionary)
    if isinstance(rule, TopRule) and rule.length < len(dictionary):
        return _top(rule, dictionary)
    return as_it_falls(rule.encoder(dictionary))


def as_it_falls(encode: Encode) -> Decide:
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

    def decide(x: torch.Tensor, exact: Exact) -> ActiveEntries:
        codes = encode(x)
        bound = bounds[codes.indices] if rule.factors is not None else bounds
        doubtful = np.flatnonzero((codes.data if rule.positive else np.abs(codes.data)) < bound + CLOSE)
        if not len(doubtful):
            return codes
        rows, which = np.unique(np.searchsorted(codes.pointers, doubtful, side="right") - 1, return_inverse=True)
        concepts = dictionary[codes.indices[doubtful]].astype(np.float64)
        scores = np.einsum("ij,ij->i", exact(rows)[which], concepts)
        own = bound[doubtful] if rule.factors is not None else bound
        gone = scores <= own if rule.positive else np.abs(scores) < own
        kept = np.ones(len(codes.data), bool)
        kept[doubtful[gone]] = False
        return _only(codes, kept)

    return decide


def _top(rule: TopRule, dictionary: np.ndarray) -> Decide:
    encode, length = TopRule(rule.length + 1).encoder(dictionary), rule.length

    def decide(x: torch.Tensor, exact: Exact) -> ActiveEntries:
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
    """Where each row's smallest number stands, of equals the last."""
    return np.asarray(sizes.shape[1] - 1 - sizes[:, ::-1].argmin(axis=1))


def _choose_again(codes: ActiveEntries, rows: np.ndarray, scores: np.ndarray, length: int) -> None:
    """Write the `length` largest of the scores (k, n), of equals the first, into these rows of the codes."""
    best = np.sort(np.argsort(-np.abs(scores), axis=1, kind="stable")[:, :length], axis=1)
    places = codes.pointers[rows, None] + np.arange(length)
    codes.indices[places] = best
    codes.data[places] = np.take_along_axis(scores, best, axis=1)


def _only(codes: ActiveEntries, kept: np.ndarray) -> ActiveEntries:
    """The entries that are kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return ActiveEntries(before[codes.pointers].astype(codes.pointers.dtype), codes.indices[kept], codes.data[kept])
