"""Fits with knowledge: what is forbidden stays zero, concepts are grounded, and models keep what they know."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import ccr.runtime
from ccr import IPOMP, OMP, ConceptClassifier, ConceptModel, Concepts, HardThreshold, Knowledge, TopK
from ccr.core.knowledge import Answer
from ccr.errors import CCRError, CCRWarning
from ccr.models.edit import EditSession

CLASSES, CONCEPTS, D, EACH = 6, 14, 24, 30
NAMES = [f"concept {number}" for number in range(CONCEPTS)]
LABELS = [f"class {number}" for number in range(CLASSES)]


def made() -> tuple[np.ndarray, np.ndarray, np.ndarray, Concepts]:
    """Images that show the concepts of their class, the table that says which, and texts near the truth."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((D, D)))[0][:CONCEPTS]
    table = np.zeros((CLASSES, CONCEPTS), bool)
    for row in range(CLASSES):
        table[row, [row * 2, row * 2 + 1, (row * 5) % CONCEPTS, 12 + row % 2]] = True
    y = np.repeat(np.arange(CLASSES), EACH)
    X = table[y] * rng.uniform(0.5, 1.5, (len(y), CONCEPTS)) @ directions + 0.15 * rng.standard_normal((len(y), D))
    texts = directions + 0.3 * rng.standard_normal(directions.shape) / np.sqrt(D) * 2
    return X.astype(np.float32), np.array(LABELS)[y], table, Concepts(NAMES, texts)


X, Y, TABLE, TEXTS = made()
KNOWN = Knowledge(LABELS, NAMES, TABLE, source="person", by="Ada")


def fitted(**options) -> ConceptClassifier:
    given = {"knowledge": KNOWN, "coder": HardThreshold(length=4), "weights_per_class": 3, "random_state": 0}
    return ConceptClassifier(TEXTS, **{**given, "max_iter": 12, **options}).fit(X, Y)


def weights(model: ConceptClassifier) -> np.ndarray:
    """The head over the whole list (classes, concepts)."""
    full = np.zeros((CLASSES, CONCEPTS))
    full[:, [NAMES.index(name) for name in model.model_.names]] = model.coef_
    return full


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"engine": "dense"},
        {"coder": TopK(length=4)},
        {"coder": TopK(length=4), "engine": "dense"},
        {"coder": HardThreshold(length=4, sign="both")},
        {"weights_per_class": None},
        {"weights_per_class": None, "engine": "dense"},
        {"weights_per_class": "auto", "max_iter": 4},
        {"radius": 0.2},
        {"radius": 0.0},
        {"fidelity": 1.0},
        {"coder": OMP(length=4), "fidelity": 1.0},
        {"coder": IPOMP(length=4), "fidelity": 1.0},
        {"coder": OMP(length=4), "fidelity": 1.0, "weights_per_class": None},
        {"validation_fraction": 0.0},
        {"coverage": 0.8},
        {"class_weight": "balanced"},
    ],
)
def test_what_is_no_never_has_a_weight(options) -> None:
    model = fitted(**options)
    assert not weights(model)[~TABLE].any()
    assert (weights(model) > 0).any(axis=1).all()
    assert {claim.status for claim in model.model_.claims()} == {"confirmed"}
    assert model.score(X, Y) > 0.7


def test_both_engines_take_the_same_steps() -> None:
    one, other = fitted(), fitted(engine="dense")
    np.testing.assert_allclose(weights(one), weights(other), atol=2e-3)


def test_open_claims_use_what_is_unknown_only_where_too_little_is_confirmed() -> None:
    said = np.where(TABLE, 1, 0)
    said[0] = 0  # nothing is known of the first class
    known = Knowledge(LABELS, NAMES, said)
    model = fitted(knowledge=known)
    used = weights(model) > 0
    assert used[0].any()
    assert not (used[1:] & ~TABLE[1:]).any()
    with pytest.warns(CCRWarning, match="class 0"):
        strict = fitted(knowledge=known, claims="confirmed")
    assert not weights(strict)[0].any()
    assert not (weights(strict) != 0)[~(said > 0)].any()


def test_without_knowledge_nothing_changes() -> None:
    first, second = fitted(knowledge=None), fitted(knowledge=None)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.model_.transfer is None
    assert {claim.status for claim in first.model_.claims()} == {"unknown"}
    with pytest.raises(CCRError, match="give knowledge="):
        fitted(knowledge=None, claims="confirmed")
    with pytest.raises(CCRError, match="give knowledge="):
        fitted(knowledge=None, min_transfer=0.6)


def test_bad_settings_are_refused() -> None:
    for options, complaint in (
        ({"claims": "all"}, "claims must be"),
        ({"min_transfer": 2}, r"min_transfer must be in \[0, 1\]"),
        ({"knowledge": "table.csv"}, "Knowledge.read"),
        ({"knowledge": Knowledge(["pear"], NAMES, TABLE[:1])}, "shares no class"),
        ({"knowledge": Knowledge(LABELS, [f"x{n}" for n in NAMES], TABLE)}, "shares no concept"),
        ({"knowledge": Knowledge(LABELS, NAMES, np.zeros_like(TABLE)), "claims": "confirmed"}, "permits no class"),
    ):
        with pytest.raises(CCRError, match=complaint):
            fitted(**options)


def test_misspelt_names_are_pointed_out() -> None:
    spelled = ["Class 0", *LABELS[1:]]
    with pytest.warns(CCRWarning, match="'Class 0' for 'class 0'"):
        fitted(knowledge=Knowledge(spelled, NAMES, TABLE))


def test_concepts_are_grounded_on_training_images_alone() -> None:
    plain, told = fitted(knowledge=None, fidelity=1.0), fitted(fidelity=1.0)
    rows = [told.model_.names.index(name) for name in plain.model_.names if name in told.model_.names]
    assert rows
    assert not np.allclose(told.initial_concepts_.embeddings[rows[0]], plain.initial_concepts_.embeddings[0], atol=1e-3)
    # Validation images have no say: whatever their labels are, concepts start at the same place.
    other = (X[:20][::-1], Y[:20])
    one = ConceptClassifier(TEXTS, knowledge=KNOWN, max_iter=2, random_state=0).fit(X, Y, validation=(X[:20], Y[:20]))
    two = ConceptClassifier(TEXTS, knowledge=KNOWN, max_iter=2, random_state=0).fit(X, Y, validation=other)
    np.testing.assert_array_equal(one.model_.provenance.groups.means, two.model_.provenance.groups.means)


def test_answers_about_photos_move_their_concept() -> None:
    rows = [str(row) for row in range(len(X))]
    photos = Knowledge.of(
        Answer("", NAMES[0], "yes" if TABLE[LABELS.index(Y[row]), 0] else "no", photo=rows[row])
        for row in range(0, len(X), 3)
    )
    before, after = fitted(fidelity=1.0), fitted(fidelity=1.0, knowledge=KNOWN.merge(photos))
    start = [model.initial_concepts_.embeddings[model.model_.row(NAMES[0])] for model in (before, after)]
    assert not np.allclose(*start, atol=1e-3)
    other = [model.initial_concepts_.embeddings[model.model_.row(NAMES[2])] for model in (before, after)]
    np.testing.assert_allclose(*other, atol=1e-6)


def test_concepts_that_do_not_transfer_can_be_left_out() -> None:
    measured = fitted().model_.provenance.transfer
    low = [name for name in NAMES if measured[name] < 0.9]
    model = fitted(min_transfer=0.9)
    assert not set(low) & set(model.model_.names)
    assert set(low) <= set(model.model_.provenance.left_out)


def test_a_model_keeps_what_it_knows(tmp_path) -> None:
    model = fitted()
    model.save(tmp_path / "model")
    loaded, light = ConceptModel.load(tmp_path / "model"), ccr.runtime.load(tmp_path / "model")
    assert loaded.provenance.knowledge == KNOWN
    assert loaded.claims() == model.model_.claims()
    assert loaded.transfer == pytest.approx(model.model_.transfer, nan_ok=True)
    terms = [one.explain(X[0]).contributions for one in (model.model_, loaded, light)]
    assert [term.claim for term in terms[0]] == [term.claim for term in terms[1]] == [term.claim for term in terms[2]]
    assert all(term.claim == "confirmed" for term in terms[0])
    again = ConceptClassifier.load(tmp_path / "model").fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_an_interrupted_fit_continues_to_the_same_bits(tmp_path) -> None:
    class Stop(Exception):
        pass

    def stop(epoch, epochs) -> None:
        if epoch.epoch == 5:
            raise Stop

    def start() -> ConceptClassifier:
        return ConceptClassifier(
            TEXTS, knowledge=KNOWN, coder=HardThreshold(length=4), weights_per_class=3, max_iter=12, random_state=0
        )

    with pytest.raises(Stop):
        start().fit(X, Y, checkpoint=tmp_path / "kept", callback=stop)
    resumed = start().fit(X, Y, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.coef_, fitted().coef_)


def test_edits_know_what_the_model_knows() -> None:
    model = fitted().model_
    refitted = EditSession(model).refit(X, Y).model()
    allowed = refitted.answers != -1
    assert not refitted.head.coef[~allowed].any()
    wrong = next((c, k) for c in range(CLASSES) for k, name in enumerate(model.names) if model.answers[c, k] == -1)
    forced = EditSession(model).set_weight(model.names[wrong[1]], LABELS[wrong[0]], 2.0).refit(X, Y).model()
    assert forced.head.coef[wrong] == 2.0
    assert [claim.sentence for claim in forced.claims() if claim.status == "contradicted"] == [
        f"{LABELS[wrong[0]]} shows {model.names[wrong[1]]}"
    ]
    renamed = EditSession(model).rename(model.names[0], "another name").model()
    np.testing.assert_array_equal(renamed.answers, model.answers)
    assert renamed.transfer["another name"] == pytest.approx(model.transfer[model.names[0]], nan_ok=True)


def test_a_concept_that_is_added_is_grounded_by_its_answers() -> None:
    model, text = fitted().model_, np.random.default_rng(5).standard_normal(D)
    plain = EditSession(model).add("new", text).model()
    told = EditSession(model).add("new", text, answers={"class 0": "yes", "class 1": "no"}).model()
    assert told.provenance.knowledge.find("class 0", "new").answer == "yes"
    start = [one.concepts.embeddings[-1] for one in (plain, told)]
    means = model.provenance.groups.means
    gain = [row @ means[0] - row @ means[1:].mean(axis=0) for row in start]
    assert gain[1] > gain[0]
    with pytest.raises(CCRError, match="fitted without"):
        fitted(knowledge=None).edit().add("new", text, answers={"class 0": "yes"})


def test_scikit_learn_can_clone_and_search() -> None:
    model = ConceptClassifier(TEXTS, knowledge=KNOWN, coder=HardThreshold(length=4), max_iter=3, random_state=0)
    assert clone(model).knowledge == KNOWN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = GridSearchCV(model, {"claims": ["open", "confirmed"]}, cv=2).fit(X, Y)
    assert found.best_score_ > 0.5
