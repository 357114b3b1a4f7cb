"""Thresholds by concept: every form of a model keeps the same scores, and equal thresholds are one threshold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ccr.runtime
from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.coding import Panels, ThresholdRule, calibrate, check_rule
from ccr.errors import CCRError, FormatError
from ccr.inputs import Embeddings


def rows(seed: int, m: int, d: int = 24) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((m, d)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def selected(x: np.ndarray, dictionary: np.ndarray, thresholds: np.ndarray, positive: bool) -> np.ndarray:
    """The oracle: scores in float64, each compared with its own threshold."""
    scores = x.astype(np.float64) @ dictionary.astype(np.float64).T
    bounds = thresholds.astype(np.float32).astype(np.float64)
    kept = scores > bounds if positive else (np.abs(scores) >= bounds) & (scores != 0)
    return np.asarray(np.where(kept, scores, 0.0))


@given(st.integers(0, 500), st.booleans(), st.sampled_from([1, 3, 33, 200]), st.sampled_from([0.0, 1e9]))
@settings(max_examples=40, deadline=None)
def test_codes_are_scores_past_the_own_threshold_screened_or_not(
    seed: int, positive: bool, n: int, looked: float
) -> None:
    x, dictionary = rows(seed, 40), rows(seed + 1, n)
    thresholds = np.random.default_rng(seed).uniform(0.0, 0.5, n)
    thresholds[0] = 0.3
    rule = ThresholdRule.by_concept(thresholds, positive)
    pointers, indices, data = Panels(dictionary, rule, looked).entries(x, rule.criterion())
    found = np.zeros((len(x), n))
    found[np.repeat(np.arange(len(x)), np.diff(pointers)), indices] = data
    expected = selected(x, dictionary, rule.bounds, positive)
    close = np.abs(np.abs(x.astype(np.float64) @ dictionary.T) - rule.bounds) < 1e-6
    assert np.allclose(np.where(close, 0.0, found), np.where(close, 0.0, expected), atol=1e-6)
    mask = rule.mask(torch.from_numpy(x @ dictionary.T)).numpy()
    assert np.array_equal(mask[~close], (expected != 0)[~close])


def test_equal_thresholds_are_one_threshold_to_the_bit(data: tuple[np.ndarray, np.ndarray, Concepts]) -> None:
    X, y, concepts = data
    one, many = (
        ConceptClassifier(concepts, coder=HardThreshold(threshold=threshold), random_state=0, max_iter=5).fit(X, y)
        for threshold in (0.2, np.full(len(concepts), 0.2))
    )
    assert one.rule_ == many.rule_
    assert np.array_equal(one.coef_, many.coef_)
    assert np.array_equal(one.concepts_.embeddings, many.concepts_.embeddings)


def test_both_engines_take_the_same_steps_with_thresholds_by_concept(
    data: tuple[np.ndarray, np.ndarray, Concepts],
) -> None:
    X, y, concepts = data
    thresholds = np.linspace(0.05, 0.35, len(concepts))
    sparse, dense = (
        ConceptClassifier(
            concepts, coder=HardThreshold(threshold=thresholds), engine=engine, random_state=0, max_iter=8
        ).fit(X, y)
        for engine in ("sparse", "dense")
    )
    assert sparse.model_.names == dense.model_.names
    assert np.allclose(sparse.coef_, dense.coef_, atol=2e-3)
    assert np.allclose(sparse.rule_.bounds, dense.rule_.bounds)


def test_a_length_is_held_by_one_number_that_multiplies_all(data: tuple[np.ndarray, np.ndarray, Concepts]) -> None:
    X, y, concepts = data
    ratios = np.linspace(0.5, 2.0, len(concepts))
    coder = HardThreshold(threshold=ratios, length=2)
    model = ConceptClassifier(concepts, coder=coder, weights_per_class=None, random_state=0, max_iter=8).fit(X, y)
    assert np.allclose(model.rule_.bounds / model.rule_.bounds[0], ratios / ratios[0], rtol=1e-5)
    assert model.transform(X).nnz / len(X) == pytest.approx(2, rel=0.1)
    dictionary = rows(3, 7, X.shape[1])
    factors = ratios[:7]
    found = calibrate(Embeddings(X), dictionary, length=2.0, positive=True, factors=factors)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert (unit @ dictionary.T > found * factors).sum() / len(X) == pytest.approx(2.0, abs=1.5 / len(X))


def test_every_form_of_the_model_has_the_same_codes(
    data: tuple[np.ndarray, np.ndarray, Concepts], tmp_path: Path
) -> None:
    import onnxruntime

    X, y, concepts = data
    coder = HardThreshold(threshold=np.linspace(0.0, 0.3, len(concepts)))
    model = ConceptClassifier(concepts, coder=coder, random_state=0, max_iter=5).fit(X, y).model_
    model.save(tmp_path / "model")
    codes = model.encode(X).toarray()
    again = ConceptModel.load(tmp_path / "model")
    assert again.rule == model.rule
    assert np.array_equal(again.encode(X).toarray(), codes)
    light = ccr.runtime.load(tmp_path / "model")
    assert np.array_equal(light.predict(X), model.predict(X))
    assert np.allclose(light.predict_proba(X), model.predict_proba(X), atol=1e-6)
    with torch.no_grad():
        assert np.allclose(model.to_torch()(torch.from_numpy(X))[1].numpy(), codes, atol=1e-6)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(["codes"], {session.get_inputs()[0].name: X})[0]
    assert np.allclose(found, codes, atol=1e-6)


def test_edits_keep_each_concept_its_own_threshold(data: tuple[np.ndarray, np.ndarray, Concepts]) -> None:
    X, y, concepts = data
    coder = HardThreshold(threshold=np.linspace(0.05, 0.3, len(concepts)))
    fitted = ConceptClassifier(concepts, coder=coder, weights_per_class=None, random_state=0, max_iter=3).fit(X, y)
    before = dict(zip(fitted.model_.names, fitted.rule_.bounds.tolist(), strict=True))
    edited = fitted.edit()
    edited.suppress(fitted.model_.names[1])
    edited.add("new", rows(9, 1, X.shape[1])[0])
    after = edited.model()
    assert len(after.rule.bounds) == len(after.names)
    for name, bound in zip(after.names, after.rule.bounds.tolist(), strict=True):
        assert bound == pytest.approx(before.get(name, float(np.median(list(after.rule.bounds[:-1])))), rel=1e-5)


@pytest.mark.parametrize("threshold", [[0.1, -0.1], [0.1, np.nan], [[0.1, 0.2]], [0.1, "x"]], ids=str)
def test_bad_thresholds_are_refused_in_words(threshold: object) -> None:
    with pytest.raises(CCRError, match="threshold must be a number >= 0, or one for each concept"):
        HardThreshold(threshold=threshold).rule(Embeddings(rows(0, 5)), rows(1, 2))  # type: ignore[arg-type]


def test_a_threshold_is_needed_for_each_concept() -> None:
    with pytest.raises(CCRError, match="for each of the 2 concepts, got 3"):
        HardThreshold(threshold=[0.1, 0.2, 0.3]).rule(Embeddings(rows(0, 5)), rows(1, 2))
    with pytest.raises(FormatError, match="2 factors"):
        check_rule(ThresholdRule(0.1, True, None, (1.0, 0.5)), 3)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, Concepts]:
    rng = np.random.default_rng(0)
    concepts = Concepts([f"concept {number}" for number in range(12)], rows(5, 12, 32))
    y = rng.integers(0, 4, 240)
    mixing = np.abs(rng.standard_normal((4, 12))) * (rng.random((4, 12)) < 0.4)
    X = mixing[y] @ concepts.embeddings + 0.15 * rng.standard_normal((240, 32))
    return X.astype(np.float32), y, concepts
