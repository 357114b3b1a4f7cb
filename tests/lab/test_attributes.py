"""Agreement with attributes, against scikit-learn, and on planted concepts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import roc_auc_score

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr_lab.experiments.attributes import (
    agreement,
    agreement_before_and_after,
    auc_by_column,
    explanation_truth,
    model_truth,
    truth_difference,
)


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


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.array([0, 1, 2, 3]), r"from 0 to 2, got int64 0 to 3"),
        (np.array([0, 1, -1, 2]), "got int64 -1 to 2"),
        (np.array([0, 1, 2]), r"each of the 4 images, got shape \(3,\)"),
        (np.array(["a", "b", "c", "a"]), "got <U1: give the row"),
        (np.array([0.0, 1.0, 2.0, 0.0]), "got float64"),
    ],
)
def test_labels_that_do_not_fit_are_refused_in_words(y: np.ndarray, said: str) -> None:
    """They raised IndexError."""
    truth = np.array([[1, 0], [0, 1], [1, 1]], bool)
    codes, head = sparse.csr_matrix(np.ones((4, 2))), LinearHead(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(CCRError, match=said):
        agreement(codes, y, truth)
    with pytest.raises(CCRError, match=said):
        explanation_truth(codes, head, y, truth)


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
        settings = {"coder": HardThreshold(length=8, sign="both"), "radius": 0.1, "weights_per_class": None}
        model = ConceptClassifier(Concepts(names, rows), center=None, random_state=0, **settings)
        found[kind] = agreement_before_and_after(model.fit(X, y), X, y, truth)
    before, after = found["named"]
    assert before.auc > 0.95
    assert after.auc > 0.95
    assert all(0.35 < random.auc < 0.65 for random in found["random"])
    assert before.interval.low <= before.auc <= before.interval.high


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_truth_is_counted_claim_by_claim(seed: int, top: int) -> None:
    """Against a loop over images: what an explanation names first, looked up in what people saw."""
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.6)
    codes[0, 0] = 1.0
    head = LinearHead(rng.normal(size=(4, 8)), rng.normal(size=4))
    head.coef[:, 0] = 2.0  # so that there is something to name
    y, seen = np.arange(30) % 4, rng.random((4, 8)) < 0.3
    claims = []
    for code, label in zip(codes, y, strict=True):
        terms = code * head.coef[np.argmax(head.coef @ code + head.intercept)]
        shown = [column for column in np.argsort(-terms) if code[column] > 0 and terms[column] > 0]
        claims += [seen[label, column] for column in shown[:top]]
    found = explanation_truth(sparse.csr_matrix(codes), head, y, seen, top=top)
    assert found.named.sum() == len(claims)
    assert found.share == pytest.approx(np.mean(claims))
    assert found.base_rate == pytest.approx(np.mean([seen[label].mean() for label in y]))
    by_image = explanation_truth(codes, head, np.arange(30), seen[y], top=top)
    assert (by_image.share, by_image.base_rate) == pytest.approx((found.share, found.base_rate))


def test_truth_has_an_interval_over_classes_and_a_paired_difference() -> None:
    rng = np.random.default_rng(0)
    y, seen = np.repeat(np.arange(40), 5), rng.random((40, 6)) < 0.3
    head = LinearHead(np.ones((2, 6)), np.zeros(2))
    guessed, told = rng.random((200, 6)), np.where(rng.random((200, 6)) < 0.9, seen[y], ~seen[y])
    chance, better = (explanation_truth(codes, head, y, seen) for codes in (guessed, told * guessed))
    assert chance.interval.low < chance.base_rate < chance.interval.high
    assert chance.interval.low <= chance.share <= chance.interval.high
    # Classes vary more than images, and the interval says so: about 1.96 standard errors of the mean over classes.
    by_class = better.seen / np.maximum(better.named, 1)
    half = 1.96 * by_class.std() / np.sqrt(40)
    assert better.interval.high - better.interval.low == pytest.approx(2 * half, rel=0.5)
    gain, interval = truth_difference(better, chance)
    assert gain == pytest.approx(better.share - chance.share)
    assert 0 < interval.low <= gain <= interval.high
    assert truth_difference(chance, chance) == (0.0, (0.0, 0.0))


def test_concepts_that_a_sparse_head_left_out_are_not_judged() -> None:
    rng = np.random.default_rng(2)
    seen = rng.random((6, 20)) < 0.4
    seen[0], seen[1] = True, False
    y, true = np.repeat(np.arange(6), 30), np.linalg.qr(rng.normal(size=(24, 24)))[0][:20]
    X = (seen[y] * rng.uniform(0.5, 1.0, (180, 20))) @ true + 0.1 * rng.normal(size=(180, 24))
    concepts = Concepts([f"attribute {number}" for number in range(20)], true)
    model = ConceptClassifier(
        concepts, coder=HardThreshold(length=8, sign="positive"), fidelity=0.9, weights_per_class=2, random_state=0
    ).fit(X, y)
    assert len(model.concepts_) < 20
    found = model_truth(model, X, y, seen)
    assert found.share > 0.8 > found.base_rate
    assert all(0.8 < part.auc <= 1 for part in agreement_before_and_after(model, X, y, seen))
    assert model_truth(ConceptClassifier.of(model.model_), X, y, seen).share == found.share
    origin = replace(model.model_.provenance, left_out_texts=None, left_out_places=None)
    older = ConceptClassifier.of(replace(model.model_, provenance=origin))
    kept = [concepts.index(name) for name in model.concepts_.names]
    assert model_truth(older, X, y, seen[:, kept]).share == found.share
    for judge in (model_truth, agreement_before_and_after):
        with pytest.raises(CCRError, match=f"each of the {len(kept)} concepts .*, got 20: a model of an older version"):
            judge(older, X, y, seen)


def test_bad_attributes_are_refused() -> None:
    with pytest.raises(CCRError, match="column 1 does not"):
        auc_by_column(np.zeros((3, 2)), np.array([[True, True], [False, True], [True, True]]))
    with pytest.raises(CCRError, match="same shape"):
        auc_by_column(np.zeros((3, 2)), np.ones((3, 3), bool))
    with pytest.raises(CCRError, match="class 2 has attributes but no images"):
        agreement(np.zeros((2, 1)), np.array([0, 1]), np.array([[True], [False], [True]]))
    head = LinearHead(np.ones((2, 3)), np.zeros(2))
    with pytest.raises(CCRError, match="column for each concept"):
        explanation_truth(np.ones((4, 3)), head, np.zeros(4, int), np.ones((1, 2), bool))
    with pytest.raises(CCRError, match="no explanation names a concept"):
        explanation_truth(-np.ones((4, 3)), head, np.zeros(4, int), np.ones((1, 3), bool))
