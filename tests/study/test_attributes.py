"""Agreement with attributes, against scikit-learn, and on planted concepts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import roc_auc_score

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.core.geometry import unit_rows
from ccr.errors import CCRError
from ccr.study.experiments.attributes import agreement, agreement_before_and_after, auc_by_column


@given(st.integers(0, 10**6))
def test_auc_against_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, (20, 6)).astype(float)  # with ties
    truth = rng.random((20, 6)) < 0.4
    truth[0], truth[1] = True, False
    expected = [roc_auc_score(truth[:, column], scores[:, column]) for column in range(6)]
    assert auc_by_column(scores, truth) == pytest.approx(expected)


def test_agreement_is_of_class_means() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 5)
    truth = rng.random((8, 4)) < 0.5
    truth[0], truth[1] = True, False
    codes = sparse.csr_matrix(truth[y] * rng.uniform(0.5, 1.5, (40, 4)))
    assert agreement(codes, y, truth).auc == 1.0
    assert agreement(codes, y, ~truth).auc == 0.0
    means = np.array([codes.toarray()[y == number].mean(axis=0) for number in range(8)])
    shuffled = truth[rng.permutation(8)]
    assert agreement(codes, y, shuffled).by_concept == pytest.approx(auc_by_column(means, shuffled))


def test_planted_attributes_are_found_and_random_vectors_are_not() -> None:
    """Classes are sets of attributes, images sums of their directions: named concepts agree before and after."""
    rng = np.random.default_rng(1)
    true = np.linalg.qr(rng.normal(size=(24, 24)))[0]
    truth = rng.random((12, 24)) < 0.4
    truth[0], truth[1] = True, False
    y = np.repeat(np.arange(12), 40)
    X = (truth[y] * rng.uniform(0.5, 1.0, (480, 24))) @ true + 0.1 * rng.normal(size=(480, 24))
    names = [f"attribute {number}" for number in range(24)]
    found = {}
    for kind, rows in {
        "named": unit_rows(true + 0.05 * rng.normal(size=true.shape)),
        "random": rng.normal(size=true.shape),
    }.items():
        model = ConceptClassifier(Concepts(names, rows), coder=HardThreshold(length=8), center=None, random_state=0)
        found[kind] = agreement_before_and_after(model.fit(X, y), X, y, truth)
    before, after = found["named"]
    assert before.auc > 0.95
    assert after.auc > 0.95
    assert all(0.35 < random.auc < 0.65 for random in found["random"])
    assert before.interval.low <= before.auc <= before.interval.high


def test_bad_attributes_are_refused() -> None:
    with pytest.raises(CCRError, match="column 1 does not"):
        auc_by_column(np.zeros((3, 2)), np.array([[True, True], [False, True], [True, True]]))
    with pytest.raises(CCRError, match="same shape"):
        auc_by_column(np.zeros((3, 2)), np.ones((3, 3), bool))
    with pytest.raises(CCRError, match="class 2 has attributes but no images"):
        agreement(np.zeros((2, 1)), np.array([0, 1]), np.array([[True], [False], [True]]))
