"""OMP against scikit-learn, IP-OMP against projections written out, on ordinary and on awkward input (Information
pursuit, docs/method.md)."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import orthogonal_mp_gram

from ccr import IPOMP, OMP, ConceptClassifier, TopK
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from tests.conftest import Data


def ordinary(seed: int = 0, m: int = 30, n: int = 50, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return single(unit_rows(rng.normal(size=(m, d)))), single(unit_rows(rng.normal(size=(n, d))))


def single(rows: np.ndarray) -> np.ndarray:
    """Exact in float32, so that coder and oracle see the same numbers."""
    return rows.astype(np.float32).astype(np.float64)


def near_collinear(gap: float) -> tuple[np.ndarray, np.ndarray]:
    X, D = ordinary(1)
    D[10:20] = D[:10] + gap * unit_rows(np.random.default_rng(9).normal(size=(10, 20)))
    return X, single(unit_rows(D))


def direct(X: np.ndarray, D: np.ndarray, length: int, *, information: bool) -> np.ndarray:
    """IP-OMP word by word: the projector as a matrix, the coefficients by least squares."""
    codes = np.zeros((len(X), len(D)))
    for x, code in zip(X, codes, strict=True):
        chosen: list[int] = []
        for _ in range(length):
            basis = np.linalg.qr(D[chosen].T)[0] if chosen else np.zeros((D.shape[1], 0))
            rest, rows = x - basis @ (basis.T @ x), D - (D @ basis) @ basis.T
            if np.linalg.norm(rest) <= 1e-6 * np.linalg.norm(x):
                break
            left = np.linalg.norm(rows, axis=1)
            usable = left > 1e-6
            gain = np.abs(rows @ rest) / (np.where(usable, left, 1.0) if information else 1.0)
            gain[~usable] = 0.0
            if gain.max() == 0.0:
                break
            chosen.append(int(gain.argmax()))
        if chosen:
            code[chosen] = np.linalg.lstsq(D[chosen].T, x, rcond=None)[0]
    return codes


@pytest.mark.parametrize("length", [1, 5, 12])
def test_omp_is_scikit_learns(length: int) -> None:
    X, D = ordinary()
    expected = orthogonal_mp_gram(D @ D.T, D @ X.T, n_nonzero_coefs=length).T
    assert np.allclose(OMP(length).encode(X, D).toarray(), expected, atol=1e-6)


def test_omp_on_near_collinear_rows_is_scikit_learns() -> None:
    X, D = near_collinear(1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns where it gives up
        expected = orthogonal_mp_gram(D @ D.T, D @ X.T, n_nonzero_coefs=6).T
    assert np.allclose(OMP(6).encode(X, D).toarray(), expected, atol=1e-5)


@pytest.mark.parametrize("coder", [OMP, IPOMP])
@pytest.mark.parametrize("length", [1, 4, 10])
def test_against_projections_written_out(coder: type[OMP], length: int) -> None:
    X, D = ordinary(2)
    expected = direct(X, D, length, information=coder is IPOMP)
    found = coder(length).encode(X, D)
    assert np.array_equal(found.toarray() != 0, expected != 0)
    assert np.allclose(found.toarray(), expected, atol=1e-6)
    assert found.has_sorted_indices
    assert found.dtype == np.float32


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3, 1e-4])
def test_ipomp_on_near_collinear_rows(gap: float) -> None:
    X, D = near_collinear(gap)
    expected = direct(X, D, 6, information=True)
    found = IPOMP(6).encode(X, D).toarray()
    assert np.array_equal(found != 0, expected != 0)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("coder", [OMP, IPOMP])
def test_of_duplicates_one_is_selected(coder: type[OMP]) -> None:
    X, D = ordinary(3)
    D[25:] = D[:25]
    expected = direct(X, D[:25], 8, information=coder is IPOMP)
    found = coder(8).encode(X, D).toarray()
    assert ((found[:, :25] != 0) & (found[:, 25:] != 0)).sum() == 0
    assert np.allclose(found[:, :25] + found[:, 25:], expected, atol=1e-6)


@pytest.mark.parametrize("coder", [OMP, IPOMP])
def test_zeros_and_exact_sums_stop_early(coder: type[OMP]) -> None:
    _, D = ordinary(4, n=15)
    D = single(np.linalg.qr(D.T)[0].T)
    X = np.stack([np.zeros(20), D[3], 2 * D[3] - D[7], 1e-3 * D[1]])
    found = coder(6).encode(X, D)
    assert np.diff(found.indptr).tolist() == [0, 1, 2, 1]
    assert found[2, 3] == pytest.approx(2.0, abs=1e-5)
    assert found[2, 7] == pytest.approx(-1.0, abs=1e-5)


@pytest.mark.parametrize("coder", [OMP, IPOMP])
def test_more_rows_wanted_than_dimensions(coder: type[OMP]) -> None:
    X, D = ordinary(5, n=40, d=8)
    found = coder(20).encode(X, D)
    assert np.diff(found.indptr).max() <= 8
    assert np.allclose(found @ D, X, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_orthonormal_rows_make_it_a_top_k(seed: int, length: int) -> None:
    X, D = ordinary(seed, m=5, n=12, d=12)
    D = single(np.linalg.qr(D)[0])
    expected = TopK(length).encode(X, D).toarray()
    for coder in (OMP, IPOMP):
        assert np.allclose(coder(length).encode(X, D).toarray(), expected, atol=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 15))
def test_the_rest_is_orthogonal_to_what_was_selected(seed: int, length: int) -> None:
    X, D = ordinary(seed, m=8)
    for coder in (OMP, IPOMP):
        codes = coder(length).encode(X, D).toarray()
        products = (X - codes @ D) @ D.T
        assert np.abs(products[codes != 0]).max() < 1e-5


def test_a_classifier_on_pursuit_codes(digits: Data, tmp_path: Path) -> None:
    for coder in (OMP(6), IPOMP(6)):
        seen: list[object] = []
        model = ConceptClassifier(digits.concepts, coder=coder, radius=0.0, weights_per_class=None, random_state=0)
        model.fit(digits.X, digits.y, callback=lambda epoch, epochs, seen=seen: seen.append((epoch, epochs)))
        assert model.score(digits.X_test, digits.y_test) > 0.85
        assert model.history_[0].length == pytest.approx(6.0, abs=0.1)
        assert len(seen) == len(model.history_) == 1
        assert np.array_equal(model.concepts_.embeddings, model.initial_concepts_.embeddings)
        assert np.isnan(model.threshold_)
        model.save(tmp_path / "model")
        loaded = ConceptClassifier.load(tmp_path / "model")
        assert loaded.rule_ == model.rule_
        assert type(loaded.coder) is type(coder)
        assert np.array_equal(loaded.decision_function(digits.X_test), model.decision_function(digits.X_test))
        explanation = model.explain(digits.X_test[0])
        assert explanation is not None


def test_bad_choices_are_refused(digits: Data) -> None:
    with pytest.raises(CCRError, match="cannot be refined with it"):
        ConceptClassifier(digits.concepts, coder=IPOMP(5), radius=0.1).fit(digits.X, digits.y)
    for length in (0, 41, 2.5):
        with pytest.raises(CCRError, match="whole number between 1 and"):
            OMP(length).encode(digits.X, digits.concepts)  # type: ignore[arg-type]
