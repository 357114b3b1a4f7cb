"""Kernels against NumPy and torch, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from ccr.core import kernels
from ccr.core.coding import ThresholdRule, TopRule
from ccr.core.geometry import project_to_cap, unit_rows
from ccr.core.kernels import step
from ccr.core.kernels.select import mixed_bits
from ccr.core.refine.dense import dropped, hash32, step_salt
from ccr.core.threads import Workers


def scores(seed: int, rows: int = 6, n: int = 131) -> np.ndarray:
    """With ties, zeros and NaN."""
    rng = np.random.default_rng(seed)
    found = np.round(rng.normal(size=(rows, n)), 1).astype(np.float32)
    found[0] = 0.0
    found[1, ::7] = np.nan
    return found


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.3, 9.0]), st.booleans(), st.sampled_from([1, 7, 8, 131, 200]))
def test_threshold_selection_is_the_mask(seed: int, threshold: float, positive: bool, n: int) -> None:
    values, rule = scores(seed, n=n), ThresholdRule(threshold, positive)
    mask = rule.mask(torch.from_numpy(values)).numpy()
    pointers, indices, data = rule.select(values)
    assert np.array_equal(np.diff(pointers), mask.sum(axis=1))
    assert np.array_equal(indices, np.nonzero(mask)[1])
    assert np.array_equal(data, values[mask])


@given(st.integers(0, 1000), st.sampled_from([1, 3, 10, 64, 130]))
def test_top_selection_takes_the_largest_and_of_equal_ones_the_first(seed: int, length: int) -> None:
    values = np.nan_to_num(scores(seed))
    pointers, indices, data = TopRule(length).select(values)
    for row, line in enumerate(values):
        best = np.sort(np.argsort(-np.abs(line), kind="stable")[:length])
        best = best[line[best] != 0]
        part = slice(pointers[row], pointers[row + 1])
        assert np.array_equal(indices[part], best)
        assert np.array_equal(data[part], line[best])


def test_room_grows_when_more_is_active_than_expected() -> None:
    values = np.ones((50, 300), np.float32)
    pointers, indices, data = ThresholdRule(0.5, length=2.0).select(values)
    assert pointers[-1] == len(indices) == len(data) == 15_000


def test_dropout_is_the_dense_engines() -> None:
    rows, columns = torch.arange(40)[:, None].expand(40, 30), torch.arange(30)[None].expand(40, 30)
    salt = step_salt(123456789, 77)
    bits = np.array([[mixed_bits(r, c, salt) for c in range(30)] for r in range(40)], np.int64)
    assert np.array_equal(bits, hash32(rows, columns, salt=salt).numpy())
    keep = dropped(torch.ones(40, 30, dtype=torch.bool), 0.3, key=123456789, step=77).numpy() > 0
    found = (
        ThresholdRule(0.5)
        .selection()
        .entries(np.ones((20, 30), np.float32), first=20, dropped=int(0.3 * 2**32), salt=salt)
    )
    assert found.active == 600
    assert np.array_equal(found.indices, np.nonzero(keep[20:])[1])


@given(st.lists(st.floats(-200.0, 0.0, width=32), min_size=1, max_size=40), st.floats(-50.0, 50.0, width=32))
def test_exponentials_are_exact_to_rounding(values: list[float], shift: float) -> None:
    array = np.array(values, np.float32) + np.float32(shift)
    powers = np.empty(len(array), np.int32)
    expected = np.exp(np.maximum((array - np.float32(shift)).astype(np.float64), -87.0))
    step.exponentials(array, np.float32(shift), powers, powers.view(np.float32))
    assert np.allclose(array, expected, rtol=3e-7, atol=0.0)


@pytest.mark.parametrize("classes", [2, 3, 17, 100])
@pytest.mark.parametrize("active", [0, 1, 4, 11])
def test_head_slopes_are_the_derivatives(classes: int, active: int) -> None:
    rng = np.random.default_rng(classes + active)
    b, n = 9, 12
    codes = np.zeros((b, n), np.float32)
    for row in codes:
        row[rng.choice(n, active, replace=False)] = rng.normal(size=active)
    weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((n, classes), (classes,)))
    y, share = rng.integers(0, classes, b), rng.uniform(0.1, 1, b).astype(np.float32)
    pointers, indices, data = (np.ascontiguousarray(part) for part in ThresholdRule(0.0).select(codes))
    slopes, bias_slope, through = np.empty((b, classes), np.float32), np.zeros(classes, np.float32), np.empty_like(data)
    keep = np.float32(1.25)
    loss = kernels.head_slopes(
        pointers, indices, data, keep, y, share, weights, bias, True, slopes, bias_slope, through
    )  # fmt: skip
    logits = 1.25 * codes.astype(np.float64) @ weights + bias
    p = softmax(logits, axis=1)
    expected = (p - np.eye(classes)[y]) * share[:, None]
    assert loss == pytest.approx(-(share * np.log(p[np.arange(b), y])).sum(), rel=1e-5)
    assert np.allclose(slopes, expected, atol=1e-6)
    assert np.allclose(bias_slope, expected.sum(axis=0), atol=1e-6)
    assert np.allclose(through, 1.25 * (expected @ weights.T)[codes != 0], atol=1e-5)


def test_a_head_that_diverged_gives_nan_not_a_number() -> None:
    weights = np.full((1, 3), np.inf, np.float32)
    out, one = np.empty((1, 3), np.float32), np.ones(1, np.float32)
    pointers, indices, y = np.array([0, 1], np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64)
    loss = kernels.head_slopes(
        pointers, indices, one.copy(), np.float32(1), y, one, weights, np.zeros(3, np.float32), True, out,
        np.zeros(3, np.float32), one.copy(),
    )  # fmt: skip
    assert np.isnan(loss)


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
        kernels.cap_row(row, middle, radius, np.empty(d, np.float32))
    assert np.allclose(rows, expected, atol=2e-6)


def test_workers_keep_order_and_pass_on_errors_and_give_torch_its_threads_back() -> None:
    before = torch.get_num_threads()
    with Workers(3) as workers:
        assert torch.get_num_threads() == 1
        assert workers.map(lambda number: number**2, list(range(50))) == [number**2 for number in range(50)]
        with pytest.raises(ZeroDivisionError):
            workers.map(lambda number: 1 // (number - 7), list(range(20)))
    assert torch.get_num_threads() == before


def test_warming_up_is_quick_when_done_and_says_nothing() -> None:
    said: list[str] = []
    kernels.warm_up(said.append)
    said.clear()
    kernels.warm_up(said.append)
    assert said == []
