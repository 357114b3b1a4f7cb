from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import check_grad
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from ccr.coding.heads import LinearHead, fit_softmax, softmax_objective
from ccr.errors import CCRError


def problem(classes: int, seed: int = 0, m: int = 300, n: int = 12) -> tuple[sparse.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = sparse.random(m, n, density=0.4, random_state=seed, data_rvs=rng.standard_normal, format="csr") * 0.1
    y = (codes @ rng.normal(size=(n, classes)) + 0.05 * rng.gumbel(size=(m, classes))).argmax(axis=1)
    return codes, y


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_fit_against_scikit_learn(classes: int, weighted: bool) -> None:
    codes, y = problem(classes)
    weight = np.random.default_rng(3).uniform(0.1, 2.0, len(y)) if weighted else np.ones(len(y))
    alpha = 1e-4
    head = fit_softmax(codes, y, classes=classes, alpha=alpha, sample_weight=weight, tol=1e-9)
    # scikit-learn minimises C * sum of weighted losses + |coef|^2 / 2; two classes share one row with opposite signs.
    C = 1.0 / (alpha * weight.sum())
    reference = LogisticRegression(C=C if classes > 2 else 2 * C, tol=1e-10, max_iter=10_000)
    reference.fit(codes, y, sample_weight=weight)
    assert np.allclose(head.probabilities(codes), reference.predict_proba(codes), atol=1e-4)


def test_gradient_against_finite_differences() -> None:
    codes, y = problem(3)
    weight = np.linspace(0.5, 1.5, len(y))
    shape = (3, codes.shape[1])

    def unpack(flat: np.ndarray) -> LinearHead:
        return LinearHead(flat[3:].reshape(shape), flat[:3])

    def loss(flat: np.ndarray) -> float:
        return softmax_objective(unpack(flat), codes, y, alpha=0.01, weight=weight)[0]

    def slope(flat: np.ndarray) -> np.ndarray:
        found = softmax_objective(unpack(flat), codes, y, alpha=0.01, weight=weight)[1]
        return np.concatenate([found.intercept, found.coef.ravel()])

    point = np.random.default_rng(0).normal(size=3 + 3 * codes.shape[1])
    assert check_grad(loss, slope, point) < 1e-5


def test_stops_at_a_stationary_point() -> None:
    codes, y = problem(4)
    head = fit_softmax(codes, y, classes=4, alpha=1e-3, tol=1e-8)
    slope = softmax_objective(head, codes, y, alpha=1e-3, weight=np.ones(len(y)))[1]
    assert np.abs(slope.coef).max() < 1e-6
    assert np.abs(slope.intercept).max() < 1e-6


def test_start_is_used_and_empty_codes_give_the_class_shares() -> None:
    codes, y = problem(3)
    done = fit_softmax(codes, y, classes=3, alpha=1e-3, tol=1e-9)
    again = fit_softmax(codes, y, classes=3, alpha=1e-3, start=done, max_iter=1)
    assert np.allclose(again.coef, done.coef, atol=1e-4)
    empty = fit_softmax(sparse.csr_matrix(codes.shape), y, classes=3)
    assert np.allclose(softmax(empty.intercept), np.bincount(y) / len(y), atol=1e-5)


def test_negative_penalty_is_refused() -> None:
    codes, y = problem(2)
    with pytest.raises(CCRError, match="alpha must not be negative"):
        fit_softmax(codes, y, classes=2, alpha=-1.0)
