"""Kernels against NumPy and torch, each by itself, in both tiers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import softmax

from ccr import kernels
from ccr.coding import Panels, ThresholdRule, TopRule
from ccr.geometry import project_to_cap, unit_rows
from ccr.kernels import FAR_BELOW, PADDING
from ccr.kernels.plain.arguments import Criterion, Dropout, Entries, StepSettings, StepState
from ccr.kernels.plain.rows import cap_row
from ccr.kernels.plain.select import mixed_bits, select_active
from ccr.kernels.plain.select import step_salt as kernel_salt
from ccr.refine.engines import dropped, hash32, step_salt
from ccr.utils.threads import Workers
from tests.kernels.kernel_tiers import TIERS, bytes_only, module, using


def scores(seed: int, rows: int = 6, n: int = 131) -> np.ndarray:
    """With ties, zeros and NaN."""
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(size=(rows, n)), 1).astype(np.float32)
    values[0] = 0.0
    values[1, ::7] = np.nan
    return values


def selected(
    rule: ThresholdRule | TopRule, values: np.ndarray, first: int = 0, dropped: int = 0, salt: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    kind, bound, length = rule.criterion()
    factors = np.ones(values.shape[1], np.float32) if rule.concept_factors is None else rule.concept_factors
    pointers, indices = np.empty(len(values) + 1, np.int32), np.empty(values.size, np.int32)
    data = np.empty(values.size, np.float32)
    active = select_active(
        values, Criterion(kind, np.float32(bound), length), factors, Dropout(first, dropped, np.uint64(salt)),
        Entries(pointers, indices, data),
    )  # fmt: skip
    return pointers, indices[: pointers[-1]], data[: pointers[-1]], active


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.3, 9.0]), st.booleans(), st.sampled_from([1, 7, 8, 131, 200]))
def test_threshold_selection_is_the_mask(seed: int, threshold: float, positive: bool, n: int) -> None:
    values, rule = scores(seed, n=n), ThresholdRule(threshold, positive)
    mask = rule.mask(torch.from_numpy(values)).numpy()
    pointers, indices, data, active = selected(rule, values)
    assert active == mask.sum()
    assert np.array_equal(np.diff(pointers), mask.sum(axis=1))
    assert np.array_equal(indices, np.nonzero(mask)[1])
    assert np.array_equal(data, values[mask])


@given(st.integers(0, 1000), st.sampled_from([1, 3, 10, 64, 130]))
def test_top_selection_takes_the_largest_and_of_equal_ones_the_first(seed: int, length: int) -> None:
    values = np.nan_to_num(scores(seed))
    pointers, indices, data, _ = selected(TopRule(length), values)
    for row, line in enumerate(values):
        best = np.sort(np.argsort(-np.abs(line), kind="stable")[:length])
        best = best[line[best] != 0]
        part = slice(pointers[row], pointers[row + 1])
        assert np.array_equal(indices[part], best)
        assert np.array_equal(data[part], line[best])


@pytest.mark.parametrize("tier", TIERS)
def test_memory_grows_when_more_is_active_than_expected(tier: str) -> None:
    same = np.full((300, 4), 0.5, np.float32)
    rule = ThresholdRule(0.5, length=2.0)
    criterion = rule.criterion()
    with using(tier):
        pointers, indices, data = Panels(same, rule).entries(same[:250].copy(), criterion)
    assert pointers[-1] == len(indices) == len(data) == 250 * 300
    assert np.array_equal(indices.reshape(250, 300), np.tile(np.arange(300), (250, 1)))


def test_dropout_is_the_dense_engines() -> None:
    rows, columns = torch.arange(40)[:, None].expand(40, 30), torch.arange(30)[None].expand(40, 30)
    salt = step_salt(123456789, 77)
    assert kernel_salt(123456789, 77) == salt
    bits = np.array([[mixed_bits(r, c, salt) for c in range(30)] for r in range(40)], np.int64)
    assert np.array_equal(bits, hash32(rows, columns, salt=salt).numpy())
    keep = dropped(torch.ones(40, 30, dtype=torch.bool), 0.3, seed=123456789, step=77).numpy() > 0
    ones = np.ones((20, 30), np.float32)
    _, indices, _, active = selected(ThresholdRule(0.5), ones, first=20, dropped=int(0.3 * 2**32), salt=salt)
    assert active == 600
    assert np.array_equal(indices, np.nonzero(keep[20:])[1])


def padded(array: np.ndarray, value: float = 0.0) -> np.ndarray:
    """With zeros, or another value, to the next multiple of PADDING columns."""
    beyond = [(0, 0)] * (array.ndim - 1) + [(0, -array.shape[-1] % PADDING)]
    return np.pad(array, beyond, constant_values=value).astype(np.float32)


@pytest.mark.parametrize("tier", TIERS)
@given(st.lists(st.floats(-200.0, 200.0, width=32), min_size=2, max_size=40), st.floats(0.0, 3.0, width=32), st.data())
def test_the_gradient_by_logits_is_that_of_cross_entropy(
    tier: str, values: list[float], share: float, data: st.DataObject
) -> None:
    logits, y = np.array(values, np.float32), data.draw(st.integers(0, len(values) - 1))
    line, p = padded(logits, FAR_BELOW), softmax(logits.astype(np.float64))
    total = np.ones_like(line)
    loss = module(tier, STEP[tier]).logit_gradient(line, y, np.float32(share), total)
    exact = logits.astype(np.float64)
    assert loss == pytest.approx(share * (np.logaddexp.reduce(exact) - exact[y]), rel=1e-5, abs=1e-6)
    # Near p = 1 a probability in float32 is right to 2 ** -24, and what is left of it to no more.
    assert np.allclose(
        line[: len(values)], share * (p - np.eye(len(values))[y]), rtol=1e-5, atol=2e-7 * max(1.0, share)
    )
    assert not line[len(values) :].any()
    assert np.array_equal(total, 1 + line)


def a_head(weights: np.ndarray, bias: np.ndarray) -> StepState:
    """StepState of which only the head is read."""
    line = np.zeros(len(weights), np.float32)
    return StepState(
        weights, weights, weights, line, padded(weights), padded(weights), line, padded(bias, FAR_BELOW), bias,
        np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros((0, PADDING), np.float32),
    )  # fmt: skip


#: Where each tier has its gradients.
STEP = {"plain": "training", "x86": "phases"}

SETTINGS = StepSettings(
    refine=True, adaptive=True, momentum=0.9, radius=0.1, penalty=0.0, scale=1.0, kind=kernels.TWO_SIDED, length=0,
    target_length=1.0, nudge=0.05, dropped=0, keep=1.25, seed=0, classes=2,
)  # fmt: skip


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("classes", [2, 3, 17, 100])
@pytest.mark.parametrize("active", [0, 1, 4, 11])
def test_head_gradients_are_the_derivatives(tier: str, classes: int, active: int) -> None:
    rng = np.random.default_rng(classes + active)
    b, n = 9, 12
    codes = np.zeros((b, n), np.float32)
    for row in codes:
        row[rng.choice(n, active, replace=False)] = rng.normal(size=active)
    weights, bias = rng.normal(size=(2, n, classes)).astype(np.float32)
    y, share = rng.integers(0, classes, b), rng.uniform(0.1, 1, b).astype(np.float32)
    shown = sparse.csr_matrix(codes)
    entries = Entries(shown.indptr, shown.indices, shown.data)
    grad_logits, grad_scores = padded(np.zeros((b, classes))), np.empty_like(entries.data)
    head = a_head(weights, bias[0])
    grad_bias = np.zeros_like(head.bias)
    loss = module(tier, STEP[tier]).head_gradients(
        entries, y, share, head, SETTINGS, grad_logits, grad_bias, grad_scores
    )
    logits = codes.astype(np.float64) @ weights + bias[0]
    p = softmax(logits, axis=1)
    expected = (p - np.eye(classes)[y]) * share[:, None]
    assert loss == pytest.approx(-(share * np.log(p[np.arange(b), y])).sum(), rel=1e-5)
    assert np.allclose(grad_logits, padded(expected), atol=1e-6)
    assert np.allclose(grad_bias, padded(expected.sum(axis=0)), atol=1e-6)
    assert np.allclose(grad_scores, 1.25 * (expected @ weights.T)[codes != 0], atol=1e-5)
    out = np.empty((b, classes), np.float32)
    module(tier, STEP[tier]).logits(*entries, weights, np.ascontiguousarray(bias[0]), out)
    assert np.allclose(out, logits, atol=1e-5)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bad", [[np.inf] * 3, [-np.inf] * 3, [np.nan] * 3, [1, np.nan, 2], [np.inf, 1, 2]])
def test_the_loss_of_a_head_that_diverged_is_not_a_number(tier: str, bad: list[float]) -> None:
    head = a_head(np.array([bad], np.float32), np.zeros(3, np.float32))
    one, out, y = np.ones(1, np.float32), np.empty((1, PADDING), np.float32), np.zeros(1, np.int64)
    entries = Entries(np.array([0, 1], np.int32), np.zeros(1, np.int32), one.copy())
    loss = module(tier, STEP[tier]).head_gradients(
        entries, y, one, head, SETTINGS, out, np.zeros_like(head.bias), one.copy()
    )
    assert not np.isfinite(loss)


@bytes_only
@pytest.mark.parametrize("width", [1, 7, 8, 31, 64, 100, 512, 515])
@pytest.mark.parametrize("entries", [0, 1, 3, 4, 9, 14])
def test_sums_over_rows_and_dot_products(width: int, entries: int) -> None:
    vectors, rng = module("x86", "vectors"), np.random.default_rng(width + entries)
    matrix, values = rng.normal(size=(20, width)).astype(np.float32), rng.normal(size=width).astype(np.float32)
    rows, factors = rng.integers(0, 20, entries + 4).astype(np.int32), rng.normal(size=entries + 4).astype(np.float32)
    part = slice(2, 2 + entries)
    total, out = values.copy(), np.full(entries + 4, 7.0, np.float32)
    vectors.add_rows(total, factors, matrix, rows, 2, 2 + entries)
    assert np.allclose(total, values + factors[part] @ matrix[rows[part]], atol=1e-5)
    vectors.dot_rows(values, matrix, rows, 2, 2 + entries, np.float32(2.0), out)
    assert np.allclose(out[part], 2.0 * matrix[rows[part]] @ values, atol=1e-3)
    assert (np.delete(out, np.arange(2, 2 + entries)) == 7.0).all()
    spread, own = padded(matrix), padded(values)
    total, out = own.copy(), np.full(entries + 4, 7.0, np.float32)
    vectors.dot_and_add_rows(own, factors, spread, rows, 2, 2 + entries, np.float32(2.0), out, total)
    assert np.allclose(out[part], 2.0 * matrix[rows[part]] @ values, atol=1e-3)
    assert np.allclose(total, own + factors[part] @ spread[rows[part]], atol=1e-5)
    assert (np.delete(out, np.arange(2, 2 + entries)) == 7.0).all()
    expected = spread.copy()
    np.add.at(expected, rows[part], factors[part][:, None] * own)
    vectors.spread_row(own, factors, rows, 2, 2 + entries, spread)
    assert np.allclose(spread, expected, atol=1e-5)


@given(
    st.integers(0, 1000), st.floats(0.0, 2.0), st.sampled_from([1e-25, 1e-3, 1.0, 1e25]), st.sampled_from([1, 2, 33])
)
def test_cap_is_project_to_cap(seed: int, radius: float, size: float, d: int) -> None:
    rng = np.random.default_rng(seed)
    center = unit_rows(rng.normal(size=(4, d))).astype(np.float32)
    rows = (center + rng.normal(size=(4, d))).astype(np.float32) * np.float32(size)
    rows[0], rows[1] = 0.0, -center[1]
    expected = project_to_cap(rows, center, radius)
    for row, middle in zip(rows, center, strict=True):
        with np.errstate(over="ignore", under="ignore"):
            square = row @ row
        cap_row(row, middle, radius, square)
    assert np.allclose(rows, expected, atol=2e-6)


def test_workers_keep_order_and_pass_on_errors_and_give_torch_its_threads_back() -> None:
    before = torch.get_num_threads()
    with Workers(3) as workers:
        assert torch.get_num_threads() == 1
        assert workers.map(lambda number: number**2, list(range(50))) == [number**2 for number in range(50)]
        with pytest.raises(ZeroDivisionError):
            workers.map(lambda number: 1 // (number - 7), list(range(20)))
    assert torch.get_num_threads() == before
