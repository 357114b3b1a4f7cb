"""How good predictions are, against scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import f1_score, top_k_accuracy_score

from ccr import ConceptClassifier
from ccr import metrics as quality
from tests.conftest import Data


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(2, 12))
def test_scores_are_scikit_learns(seed: int, m: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits, truth = rng.normal(size=(m, classes)), rng.integers(classes, size=m)
    predicted = logits.argmax(axis=1)
    assert quality.macro_f1(truth, predicted) == pytest.approx(f1_score(truth, predicted, average="macro"))
    for k in (1, 3, 5):
        share = quality.among_first(logits, truth, k).mean()
        if k < classes > 2:
            assert share == pytest.approx(top_k_accuracy_score(truth, logits, k=k, labels=np.arange(classes)))
        elif k >= classes:
            assert share == 1


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(1, 20))
def test_calibration_is_measured_bin_by_bin(seed: int, m: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    sure, right = rng.choice([0.0, 0.25, 1.0, *rng.random(5)], size=m), rng.random(m) < 0.5
    expected = 0.0
    for number in range(bins):
        last = number == bins - 1
        chosen = [i for i in range(m) if int(sure[i] * bins) == number or (last and int(sure[i] * bins) == bins)]
        if chosen:
            expected += len(chosen) / m * abs(np.mean(sure[chosen]) - np.mean(right[chosen]))
    assert quality.calibration_error(sure, right, bins) == pytest.approx(expected)


def test_confidence_is_the_largest_probability_of_any_logits() -> None:
    logits = np.array([[1000.0, 999.0, 0.0], [-2000.0, -2000.0, -2001.0]], np.float32)
    assert np.allclose(quality.confidences(logits), softmax(logits.astype(float), axis=1).max(axis=1))


def test_an_evaluation_measures_its_own_predictions(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=3, random_state=0).fit(digits.X, digits.y)
    found, p = model.evaluate(digits.X_test, digits.y_test), model.predict_proba(digits.X_test)
    assert found.macro_f1 == pytest.approx(f1_score(digits.y_test, model.predict(digits.X_test), average="macro"))
    assert found.top5 == pytest.approx(top_k_accuracy_score(digits.y_test, p, k=5))
    right = model.predict(digits.X_test) == digits.y_test
    assert found.calibration_error == pytest.approx(quality.calibration_error(p.max(axis=1), right), abs=1e-4)
    assert found.class_images == {name: int((digits.y_test == name).sum()) for name in np.unique(digits.y_test)}
    assert found.to_dict()["class_images"] == found.class_images
