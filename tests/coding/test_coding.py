from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse

from ccr import HardThreshold, TopK, inputs
from ccr.coding import ThresholdRule, TopRule, calibrate, codes
from ccr.errors import CCRError, CCRWarning
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.metrics import explanation_length

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 15), st.integers(1, 8), st.integers(0, 10**6))


def data(m: int, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, D = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    return unit_rows(X).astype(np.float32), unit_rows(D).astype(np.float32)


@given(SHAPES, st.floats(0.0, 1.0), st.sampled_from(["both", "positive"]))
def test_threshold_against_numpy(shape: tuple[int, int, int, int], threshold: float, sign: str) -> None:
    X, D = data(*shape)
    codes = HardThreshold(threshold=threshold, sign=sign).encode(X, D)  # type: ignore[arg-type]
    scores = X @ D.T
    keep = scores > threshold if sign == "positive" else np.abs(scores) >= threshold
    # Entries within rounding of the threshold may fall on either side.
    clear = np.abs((scores if sign == "positive" else np.abs(scores)) - threshold) > 1e-6
    found = codes.toarray()
    assert np.array_equal((found != 0)[clear], (keep & (scores != 0))[clear])
    assert np.allclose(found[found != 0], scores[found != 0], atol=1e-6)


@given(SHAPES)
def test_top_k_against_numpy(shape: tuple[int, int, int, int]) -> None:
    X, D = data(*shape)
    k = 1 + shape[3] % len(D)
    codes = TopK(k).encode(X, D)
    scores = X @ D.T
    for row, found in zip(scores, codes.toarray(), strict=True):
        expected = np.zeros_like(row)
        order = np.argsort(-np.abs(row), kind="stable")[:k]
        expected[order] = row[order]
        assert np.sort(np.abs(found)) == pytest.approx(np.sort(np.abs(expected)), abs=1e-6)
    assert explanation_length(codes) <= k


def test_codes_are_csr_float32_and_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    X, D = data(200, 30, 8, 0)
    whole = HardThreshold(threshold=0.4, sign="both").encode(X, D)
    assert sparse.isspmatrix_csr(whole)
    assert whole.dtype == np.float32
    assert whole.has_canonical_format
    monkeypatch.setattr(inputs, "CHUNK_VALUES", 100)
    pieces = HardThreshold(threshold=0.4, sign="both").encode(X, D)
    assert np.array_equal(whole.indices, pieces.indices)
    assert np.allclose(whole.toarray(), pieces.toarray(), atol=1e-6)


def test_threshold_keeps_entries_at_the_threshold_and_positive_does_not() -> None:
    X, D = np.array([[0.5, -0.5, 0.25]], np.float32), np.eye(3, dtype=np.float32)
    assert HardThreshold(threshold=0.5, sign="both").encode(X, D).toarray().tolist() == [[0.5, -0.5, 0.0]]
    assert HardThreshold(threshold=0.5, sign="positive").encode(X, D).nnz == 0
    assert HardThreshold(threshold=0.5).sign == "positive"
    assert HardThreshold(threshold=0.25, sign="positive").encode(X, D).toarray().tolist() == [[0.5, 0.0, 0.0]]


@given(st.integers(0, 10**6), st.floats(1.0, 30.0), st.sampled_from(["both", "positive"]))
def test_length_is_reached_on_the_data_at_hand(seed: int, length: float, sign: str) -> None:
    X, D = data(300, 80, 16, seed)
    codes = HardThreshold(length=length, sign=sign).encode(X, D)  # type: ignore[arg-type]
    assert explanation_length(codes) == pytest.approx(length, abs=0.01)


@given(SHAPES, st.floats(0.0, 0.9), st.booleans())
def test_selected_entries_are_the_masked_ones(
    shape: tuple[int, int, int, int], threshold: float, positive: bool
) -> None:
    X, D = data(*shape)
    scores = np.round(X @ D.T, 1)  # ties and zeros
    for rule in (ThresholdRule(threshold, positive), TopRule(1 + shape[3] % len(D))):
        pointers, indices, values = rule.encoder(np.eye(len(D), dtype=np.float32))(torch.from_numpy(scores))
        codes = sparse.csr_matrix((values, indices, pointers), shape=scores.shape).toarray()
        mask = rule.mask(torch.from_numpy(scores)).numpy()
        if isinstance(rule, ThresholdRule):
            assert np.array_equal(codes, np.where(mask, scores, 0.0))
        else:  # of equal scores either may be kept
            assert np.allclose(np.sort(np.abs(codes)), np.sort(np.abs(np.where(mask, scores, 0.0))))
            assert np.array_equal(codes[codes != 0], scores[codes != 0])


def test_length_of_all_concepts_keeps_all() -> None:
    X, D = data(20, 7, 5, 0)
    assert HardThreshold(length=7, sign="both").encode(X, D).nnz == 140


def test_calibration_sees_large_data_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    X, D = data(500, 40, 16, 1)
    whole = calibrate(Embeddings(X), D, length=5)
    monkeypatch.setattr("ccr.coding.rules.CHUNK_VALUES", 400)
    assert calibrate(Embeddings(X), D, length=5) == pytest.approx(whole, abs=1e-7)


def test_positive_scores_may_not_suffice() -> None:
    X, D = data(50, 10, 5, 2)
    with pytest.warns(CCRWarning, match="cannot be reached with positive scores"):
        HardThreshold(length=9, sign="positive").encode(X, D)


def test_rule_is_nudged_toward_its_length_only_when_it_has_one() -> None:
    held = ThresholdRule(0.2, length=10.0)
    assert held.with_feedback(12.0).threshold > 0.2 > held.with_feedback(8.0).threshold
    assert held.with_feedback(10.0).threshold == 0.2
    assert ThresholdRule(0.2).with_feedback(50.0).threshold == 0.2


def test_zero_rows_and_tensors_are_coded() -> None:
    D = torch.eye(3)
    codes = TopK(2).encode(torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, -4.0]]), D)
    assert codes.toarray().tolist() == [[0.0, 0.0, 0.0], [3.0, 0.0, -4.0]]


@pytest.mark.parametrize(
    ("coder", "message"),
    [
        (HardThreshold(), "either a threshold or a length"),
        (HardThreshold(threshold=0.1, length=3), "either a threshold or a length"),
        (HardThreshold(threshold=-0.1), "threshold must be a number >= 0"),
        (HardThreshold(threshold=math.nan), "threshold must be a number >= 0"),
        (HardThreshold(length=0.5), "length must be between 1"),
        (HardThreshold(length=6), "length must be between 1 and the number of concepts, 5"),
        (HardThreshold(length=2, sign="negative"), "sign must be"),  # type: ignore[arg-type]
        (TopK(0), "length must be between 1"),
        (TopK(6), "length must be between 1"),
        (TopK(2.5), "whole number"),  # type: ignore[arg-type]
    ],
)
def test_bad_coders_are_refused(coder: HardThreshold | TopK, message: str) -> None:
    X, D = data(10, 5, 4, 0)
    with pytest.raises(CCRError, match=message):
        coder.encode(X, D)


@given(SHAPES, st.floats(0.5, 6.0), st.booleans(), st.floats(0.5, 1.5))
def test_a_rule_is_settled_by_the_scores_near_its_threshold_as_by_all(
    shape: tuple[int, int, int, int], length: float, positive: bool, away: float
) -> None:
    """The same threshold as from all scores, and the length that it gives; None where they are too few to tell."""
    X, D = data(*shape)
    assume(round(len(X) * length) > 0)  # so few rows have no threshold for it
    scores = X @ D.T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CCRWarning)
        exact = calibrate(Embeddings(X), D, length=length, positive=positive)
    rule = ThresholdRule(exact * away, positive, length)
    near = ThresholdRule(rule.nearby().bound, positive)
    found = scores[near.mask(torch.from_numpy(scores)).numpy()]
    settled = rule.recalibrated_by(found if positive else np.abs(found), len(X))
    if settled is None:
        assert len(found) <= round(len(X) * length)
        return
    again, mean = settled
    assert again == replace(rule, threshold=pytest.approx(exact, rel=1e-5, abs=1e-6))
    active = again.mask(torch.from_numpy(scores)).numpy().sum()
    assert mean == pytest.approx(active / len(X))


def test_a_rule_without_a_length_is_not_settled() -> None:
    assert ThresholdRule(0.2).recalibrated_by(np.ones(9, np.float32), 3) is None
    assert TopRule(2).recalibrated_by(np.ones(9, np.float32), 3) is None


@given(st.integers(1, 5000), st.sampled_from([(1, 1), (128, 512), (4523, 512), (30_000, 4), (2_000_000, 1)]))
def test_pieces_cover_all_rows_once_and_are_even(count: int, shape: tuple[int, int]) -> None:
    spans = codes._spans(count, np.empty(shape, np.bool_))
    assert [row for span in spans for row in range(span.start, span.stop)] == list(range(count))
    sizes = {span.stop - span.start for span in spans[:-1]}
    assert len(sizes) <= 1
    assert all(size % codes.EVEN == 0 or size < codes.EVEN for size in sizes)
