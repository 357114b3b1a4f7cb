"""Algorithm 1 (docs/method.md): the squared-loss form that the theorems are about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.core.refine import refine_squared, squared_loss
from ccr.errors import CCRError


def instance(seed: int, n: int = 6, d: int = 8, k: int = 3, m: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = np.linalg.qr(rng.normal(size=(d, d)))[0][:n]
    beta = np.zeros((m, n))
    for row in beta:
        row[rng.choice(n, k, replace=False)] = rng.uniform(0.5, 1, k) * rng.choice([-1, 1], k)
    return true, beta, beta @ true


def perturbed(true: np.ndarray, size: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    error = rng.normal(size=true.shape)
    return true + size * error / np.linalg.norm(error, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
def test_loss_against_monte_carlo(seed: int) -> None:
    true, beta, X = instance(seed, m=1)
    D = perturbed(true, 0.3, seed)
    z = np.random.default_rng(9).normal(size=(400_000, 8))
    scores = X[0] @ D.T
    chosen = np.argsort(-np.abs(scores))[:3]
    guess = (z @ true[chosen].T) @ scores[chosen]
    expected = ((z @ X[0] - guess) ** 2).mean()
    assert squared_loss(D, X, beta, length=3).loss == pytest.approx(expected, rel=0.02)


@given(st.integers(0, 1000))
def test_gradient_against_finite_differences(seed: int) -> None:
    true, beta, X = instance(seed)
    D = perturbed(true, 0.05, seed)
    found = squared_loss(D, X, beta, length=3).gradient
    direction = np.random.default_rng(seed).normal(size=D.shape)
    step = 1e-6
    up = squared_loss(D + step * direction, X, beta, length=3).loss
    down = squared_loss(D - step * direction, X, beta, length=3).loss
    assert (found * direction).sum() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-7)


def test_the_truth_has_no_loss_and_stays() -> None:
    true, beta, X = instance(0)
    found = refine_squared(true, X, beta, length=3, radius=0.1, rate=0.1, steps=5)
    assert np.allclose(found.losses, 0.0)
    assert np.allclose(found.dictionary, true)


@given(st.integers(0, 1000), st.floats(0.001, 0.3))
def test_iterates_stay_in_the_ball_and_losses_are_recorded(seed: int, radius: float) -> None:
    true, beta, X = instance(seed)
    start = perturbed(true, 0.2, seed)
    seen: list[np.ndarray] = []
    found = refine_squared(
        start, X, beta, length=3, radius=radius, rate=0.2, steps=6, watch=lambda _, D: seen.append(D)
    )
    assert len(seen) == len(found.losses) == 7
    for step, D in enumerate(seen):
        assert np.linalg.norm(D - start, axis=1).max() <= radius + 1e-12
        assert found.losses[step] == pytest.approx(squared_loss(D, X, beta, length=3).loss)


def test_negative_rates_are_refused() -> None:
    true, beta, X = instance(0)
    with pytest.raises(CCRError, match="rate and steps"):
        refine_squared(true, X, beta, length=3, radius=0.1, rate=-0.1, steps=5)
