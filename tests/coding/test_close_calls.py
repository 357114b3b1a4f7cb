"""Close calls: scores within rounding of what decides are decided in float64, from rows as they were given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ccr.coding import ThresholdRule, TopRule, apply_rule, code_chunks
from ccr.coding.codes import CLOSE
from ccr.inputs import Embeddings

RNG = np.random.default_rng(0)
N, D, M = 60, 64, 700
DICTIONARY = (lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True))(RNG.normal(size=(N, D))).astype(
    np.float32
)
X = RNG.normal(size=(M, D)).astype(np.float32)
MEAN = (0.1 * RNG.normal(size=D)).astype(np.float32)
METRIC = (np.eye(D) + 0.1 * RNG.normal(size=(D, D))).astype(np.float32)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def exact_scores(given: np.ndarray = X) -> np.ndarray:
    """Every step in float64."""
    placed = unit(unit(given.astype(np.float64)) - MEAN.astype(np.float64)) @ METRIC.astype(np.float64)
    return np.asarray(unit(placed) @ DICTIONARY.astype(np.float64).T)


def embeddings(given: Any = X) -> Embeddings:
    return Embeddings(given, mean=MEAN, metric=METRIC)


@pytest.mark.parametrize("positive", [True, False])
def test_a_threshold_among_the_scores_is_decided_in_float64(positive: bool) -> None:
    """Thresholds at exact scores, rounded to float32: half of them on either side, nearer than float32 can tell."""
    scores = exact_scores()
    sizes = scores if positive else np.abs(scores)
    told = wrong = 0
    for row, column in zip(*np.nonzero((sizes > 0.1) & (sizes < 0.3)), strict=True):
        if (row + column) % 40:
            continue
        bound = float(np.float32(sizes[row, column]))
        rule = ThresholdRule(bound, positive, 8.0)
        active = apply_rule(rule, embeddings(), DICTIONARY).toarray() != 0
        assert np.array_equal(active, sizes > bound if positive else sizes >= bound)
        told += 1
        rough = rule.encoder(DICTIONARY)(embeddings().span(row, row + 1))
        wrong += (column in rough.indices) != active[row, column]
    assert told > 50
    assert wrong > 0, "float32 decides some of these otherwise, or this test shows nothing"


def test_values_are_those_of_the_kernels() -> None:
    rule = ThresholdRule(float(np.float32(exact_scores()[3].max())) - 1e-9, True, 8.0)
    plain = rule.encoder(DICTIONARY)(embeddings().span(0, M))
    codes = apply_rule(rule, embeddings(), DICTIONARY)
    both = np.isin(codes.data, plain.data)
    assert both.sum() >= len(codes.data) - 1
    assert np.abs(codes.toarray() - np.where(codes.toarray() != 0, exact_scores(), 0)).max() < CLOSE / 4


@pytest.mark.parametrize("length", [1, 5, N - 1, N])
def test_the_largest_are_chosen_in_float64(length: int) -> None:
    """Concepts in pairs that are a few units of the last place apart, so that many a row's last two are as near."""
    near = DICTIONARY.copy()
    near[1::2] = near[::2] * np.float32(1 + 1e-7) + RNG.normal(scale=2e-8, size=near[1::2].shape).astype(np.float32)
    placed = unit(unit(unit(X.astype(np.float64)) - MEAN) @ METRIC.astype(np.float64))
    scores = placed @ near.astype(np.float64).T
    expected = np.zeros(scores.shape, bool)
    np.put_along_axis(expected, np.argsort(-np.abs(scores), axis=1, kind="stable")[:, :length], True, axis=1)
    codes = apply_rule(TopRule(length), embeddings(), near)
    assert np.array_equal(codes.toarray() != 0, expected)
    assert codes.has_sorted_indices
    assert np.abs(codes.toarray() - np.where(expected, scores, 0)).max() < CLOSE / 4
    if length == 5:
        rough = TopRule(length).encoder(near)(embeddings().span(0, M))
        assert not np.array_equal(rough.indices, codes.indices), "or this test shows nothing"


def test_equal_scores_keep_the_first() -> None:
    twice = np.concatenate([DICTIONARY[:10], DICTIONARY[:10]])
    codes = apply_rule(TopRule(3), embeddings(), twice)
    assert (codes.indices.reshape(M, 3) < 10).sum() >= 2 * M, "of each pair the first comes first"
    assert ((codes.toarray() != 0).sum(axis=1) == 3).all()


def test_rows_of_every_kind_are_read_exactly() -> None:
    scale = 10.0 ** RNG.integers(-8, 8, size=(M, 1))
    wide = X.astype(np.float64) * scale
    expected = unit(unit(wide) - MEAN.astype(np.float64)) @ METRIC.astype(np.float64)
    rows = np.array([5, 2, 600])
    for given in (wide, torch.from_numpy(wide)):
        assert np.allclose(embeddings(given).exact(rows), unit(expected)[rows], atol=1e-14)
    ready = Embeddings.ready(torch.from_numpy(X))
    assert np.array_equal(ready.exact(rows), X[rows].astype(np.float64)), "rows that are prepared stay as they are"
    whole = np.array([[3, 4], [0, 1]])
    assert np.allclose(Embeddings(whole).exact(np.array([0])), [[0.6, 0.8]])


def test_chunks_and_some_rows_decide_alike() -> None:
    """A row's code does not depend on its company."""
    bound = float(np.float32(exact_scores()[3, 7]))
    rule = ThresholdRule(abs(bound), False, 8.0)
    whole = apply_rule(rule, embeddings(), DICTIONARY)
    parts = np.concatenate([part.toarray() for part in code_chunks(rule, embeddings(), DICTIONARY)])
    assert np.array_equal(parts, whole.toarray())
    alone = apply_rule(rule, embeddings(X[3:4]), DICTIONARY)
    assert np.array_equal(alone.toarray()[0] != 0, whole[3].toarray()[0] != 0)


@pytest.mark.parametrize("threshold", [0.0, CLOSE / 2, CLOSE])
def test_thresholds_as_small_as_rounding_keep_their_rule(threshold: float) -> None:
    for positive in (True, False):
        rule = ThresholdRule(threshold, positive)
        found = apply_rule(rule, embeddings(), DICTIONARY).toarray()
        assert np.array_equal(found, apply_rule(replace(rule), embeddings(), DICTIONARY).toarray())
        scores = exact_scores()
        sure = np.abs(np.abs(scores) - threshold) > CLOSE
        expected = scores > threshold if positive else np.abs(scores) >= threshold
        assert np.array_equal((found != 0)[sure], expected[sure])
