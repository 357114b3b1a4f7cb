"""The non-negative lasso against scikit-learn's, its optimality conditions, its calibration, and SpLiCE as a model."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from ccr import ConceptClassifier, NonNegativeLasso, kernels
from ccr.coding import LassoRule
from ccr.coding import pursuit as rule_module
from ccr.coding.pursuit import calibrate_alpha
from ccr.errors import CCRError, CCRWarning
from ccr.geometry import centered, unit_rows
from ccr.inputs import Embeddings
from ccr.kernels.plain import pursuit as kernel_module
from tests.conftest import Data


def ordinary(seed: int = 0, m: int = 20, n: int = 30, d: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows that are exact in float32, so that coder and oracle see the same numbers."""
    rng = np.random.default_rng(seed)
    X, D = (unit_rows(rng.normal(size=(rows, d))).astype(np.float32) for rows in (m, n))
    return X.astype(np.float64), D.astype(np.float64)


def oracle(X: np.ndarray, D: np.ndarray, alpha: float) -> np.ndarray:
    # Its objective divides the squares by the number of samples, here the d coordinates of x.
    model = Lasso(alpha=alpha / D.shape[1], positive=True, fit_intercept=False, tol=1e-12, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # on near duplicates its gap stays at 1e-7 or so
        return np.stack([model.fit(D.T, x).coef_.copy() for x in X])


def objective(codes: np.ndarray, X: np.ndarray, D: np.ndarray, alpha: float) -> np.ndarray:
    return 0.5 * ((X - codes @ D) ** 2).sum(axis=1) + alpha * np.abs(codes).sum(axis=1)


def worst_violation(codes: np.ndarray, X: np.ndarray, D: np.ndarray, alpha: float) -> float:
    """Of the optimality conditions, relative to an image's largest score."""
    slope = (X - codes @ D) @ D.T - alpha
    miss = np.where(codes > 0, np.abs(slope), np.maximum(slope, 0.0))
    return float((miss / np.maximum((X @ D.T).max(axis=1, keepdims=True), 1e-12)).max())


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 40), st.integers(1, 20), st.floats(0.005, 0.9))
def test_codes_are_scikit_learns(seed: int, m: int, n: int, d: int, alpha: float) -> None:
    X, D = ordinary(seed, m, n, d)
    found = NonNegativeLasso(alpha=alpha).encode(X, D)
    codes = found.toarray().astype(np.float64)
    assert (found.data > 0).all()
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    assert worst_violation(codes, X, D, alpha) < 1e-5
    expected = oracle(X, D, alpha)
    assert np.allclose(objective(codes, X, D, alpha), objective(expected, X, D, alpha), atol=1e-6)
    if n <= d:  # the minimiser is then unique, but no better determined than the rows are independent
        assert np.allclose(codes @ D, expected @ D, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_codes_themselves_on_independent_rows(alpha: float) -> None:
    X, D = ordinary(1, n=12, d=30)
    found, expected = NonNegativeLasso(alpha=alpha).encode(X, D).toarray(), oracle(X, D, alpha)
    assert np.allclose(found, expected, atol=2e-6)
    assert np.array_equal(found != 0, expected > 1e-9)


def test_orthonormal_rows_make_it_a_soft_threshold() -> None:
    X, D = ordinary(2, n=15, d=15)
    D = np.linalg.qr(D)[0]
    expected = np.maximum(X @ D.T - 0.1, 0.0)
    assert np.allclose(NonNegativeLasso(alpha=0.1).encode(X, D).toarray(), expected, atol=1e-6)


@pytest.mark.parametrize("gap", [0.0, 1e-6, 1e-3, 1e-1])
def test_near_and_exact_duplicates(gap: float) -> None:
    X, D = ordinary(3)
    D[15:] = D[:15] + gap * ordinary(4)[1][15:]
    D = unit_rows(D).astype(np.float32).astype(np.float64)
    codes = NonNegativeLasso(alpha=0.05).encode(X, D).toarray().astype(np.float64)
    assert worst_violation(codes, X, D, 0.05) < 1e-5
    assert np.allclose(objective(codes, X, D, 0.05), objective(oracle(X, D, 0.05), X, D, 0.05), atol=1e-6)


def test_rows_in_a_narrow_cone() -> None:
    X, D = ordinary(5, n=60, d=20)
    X, D = unit_rows(X + 0.8), unit_rows(D + 0.8)
    codes = NonNegativeLasso(alpha=0.01).encode(X, D).toarray().astype(np.float64)
    assert worst_violation(codes, X.astype(np.float32), D.astype(np.float32), 0.01) < 1e-5


def test_zeros_and_large_alphas_give_empty_codes() -> None:
    X, D = ordinary(6)
    X[3] = 0.0
    assert np.diff(NonNegativeLasso(alpha=0.05).encode(X, D).indptr)[3] == 0
    assert NonNegativeLasso(alpha=1.5).encode(X, D).nnz == 0
    top = float((X @ D.T).max())
    assert NonNegativeLasso(alpha=top * 1.001).encode(X, D).nnz == 0
    assert NonNegativeLasso(alpha=top * 0.999).encode(X, D).nnz == 1
    assert NonNegativeLasso(alpha=0.05).encode(X, np.zeros_like(D)).nnz == 0


def test_one_concept() -> None:
    X, D = ordinary(7, n=1)
    expected = np.maximum(X @ D.T - 0.05, 0.0)
    assert np.allclose(NonNegativeLasso(alpha=0.05).encode(X, D).toarray(), expected, atol=1e-6)


def test_uncompiled_the_kernel_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, D = ordinary(8, m=6)
    compiled = NonNegativeLasso(length=5).encode(X, D)
    for name, function in inspect.getmembers(kernel_module, lambda member: hasattr(member, "py_func")):
        monkeypatch.setattr(kernel_module, name, function.py_func)
    monkeypatch.setattr(kernels, "nonnegative_lasso", kernel_module.nonnegative_lasso)
    assert not hasattr(kernels.nonnegative_lasso, "py_func")
    plain = NonNegativeLasso(length=5).encode(X, D)
    assert np.array_equal(plain.indices, compiled.indices)
    assert np.allclose(plain.data, compiled.data, atol=1e-6)


@pytest.mark.parametrize("length", [1, 2.5, 6, 12])
def test_the_length_is_reached(length: float) -> None:
    X, D = ordinary(9, m=600, n=60, d=30)
    codes = NonNegativeLasso(length=length).encode(X, D)
    assert codes.nnz / len(X) == pytest.approx(length, rel=0.01)


def test_alpha_is_calibrated_on_a_sample_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_module, "CALIBRATION_ROWS", 300)
    X, D = ordinary(10, m=3000, n=40, d=20)
    taken: list[int] = []
    embeddings = Embeddings(X)
    take = embeddings.take
    monkeypatch.setattr(embeddings, "take", lambda rows: taken.extend(rows.tolist()) or take(rows))
    rule = NonNegativeLasso(length=5).rule(embeddings, D)
    assert len(set(taken)) == 300
    assert NonNegativeLasso(alpha=rule.alpha).encode(X, D).nnz / len(X) == pytest.approx(5.0, rel=0.05)
    assert rule.recalibrated(embeddings, D) == rule
    assert LassoRule(0.1).recalibrated(embeddings, D) == LassoRule(0.1)


def test_a_length_out_of_reach_is_said() -> None:
    X, D = ordinary(11, n=15, d=15)
    D = np.linalg.qr(D)[0]  # about half of the scores are positive
    with pytest.warns(CCRWarning, match="length 14 cannot be reached with non-negative codes"):
        rule = NonNegativeLasso(length=14).rule(Embeddings(X), D)
    assert rule.alpha > 0
    with pytest.warns(CCRWarning, match="images have 0.0"):
        assert calibrate_alpha(Embeddings(-np.abs(X)), np.eye(15), length=2) > 0


def test_too_few_sweeps_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    X, D = ordinary(12)
    monkeypatch.setattr(rule_module, "MOST_SWEEPS", 1)
    with pytest.warns(CCRWarning, match="images are less exact than usual"):
        NonNegativeLasso(alpha=0.001).encode(X, D)


def test_bad_choices_are_refused(digits: Data) -> None:
    for coder, message in (
        (NonNegativeLasso(), "either an alpha or a length"),
        (NonNegativeLasso(alpha=0.1, length=5), "either an alpha or a length"),
        (NonNegativeLasso(alpha=0.0), "alpha must be a number > 0"),
        (NonNegativeLasso(alpha=float("nan")), "alpha must be a number > 0"),
        (NonNegativeLasso(length=41), "length must be between 1 and the number of concepts, 40"),
        (NonNegativeLasso(length=0.5), "length must be between 1"),
    ):
        with pytest.raises(CCRError, match=message):
            coder.encode(digits.X, digits.concepts)
    with pytest.raises(
        CCRError, match="NonNegativeLasso has no gradient, so concepts cannot be refined with it: leave"
    ):
        ConceptClassifier(digits.concepts, coder=NonNegativeLasso(length=5), radius=0.1).fit(digits.X, digits.y)


def test_splice_is_a_classifier_on_these_codes(digits: Data, tmp_path: Path) -> None:
    settings = {"radius": 0.0, "weights_per_class": None, "center": "data", "dispersion": None, "random_state": 0}
    splice = ConceptClassifier(digits.concepts, coder=NonNegativeLasso(length=8), **settings)
    model = clone(splice).fit(digits.X, digits.y)
    assert model.score(digits.X_test, digits.y_test) > 0.85
    assert model.history_[0].length == pytest.approx(8.0, rel=0.02)
    assert model.threshold_ == model.rule_.alpha
    codes = model.transform(digits.X_test)
    X = centered(unit_rows(digits.X_test.astype(np.float32)), model.space_.image_mean).astype(np.float64)
    D = model.concepts_.embeddings.astype(np.float64)
    assert worst_violation(codes.toarray().astype(np.float64), X, D, model.rule_.alpha) < 1e-5
    explanation = model.explain(digits.X_test[0])
    assert explanation.logit == pytest.approx(model.decision_function(digits.X_test[:1]).max(), abs=1e-4)
    assert len(explanation.contributions) == codes[0].nnz
    model.save(tmp_path / "model")
    loaded = ConceptClassifier.load(tmp_path / "model")
    assert loaded.rule_ == model.rule_
    assert loaded.coder.get_params() == {"alpha": None, "length": 8}
    assert np.array_equal(loaded.decision_function(digits.X_test), model.decision_function(digits.X_test))
    assert (loaded.transform(digits.X_test) != codes).nnz == 0
    again = clone(splice).fit(digits.X, digits.y)
    assert np.array_equal(again.coef_, model.coef_)


def test_codes_of_a_row_do_not_depend_on_the_others(digits: Data) -> None:
    D = digits.concepts.embeddings
    X = unit_rows(digits.X_test[:300].astype(np.float32))
    whole = NonNegativeLasso(alpha=0.1).encode(X, D)
    alone = NonNegativeLasso(alpha=0.1).encode(X[17:18], D)
    assert np.allclose(whole[17].toarray(), alone.toarray(), atol=1e-6)


def test_all_codes_empty_is_said(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, coder=NonNegativeLasso(alpha=2.0), radius=0.0, dispersion=None)
    with pytest.warns(CCRWarning, match="threshold 2 leaves every code empty"):
        model.fit(digits.X, digits.y)
    assert model.predict(digits.X_test).shape == (len(digits.X_test),)
