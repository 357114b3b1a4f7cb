"""Fits with knowledge: what is forbidden stays zero, concepts are grounded, and models keep what they know."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import ccr.runtime
from ccr import IPOMP, OMP, ConceptClassifier, ConceptModel, Concepts, HardThreshold, Knowledge, TopK
from ccr.edit import EditSession
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.io.format import ModelFolder, load_folder, save_folder
from ccr.knowledge import Answer
from ccr.refine.data import Candidates, Permitted

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


def half_known(seed: int = 0) -> np.ndarray:
    """Some of the table: few yes, many no, the others unknown (classes, concepts)."""
    rng = np.random.default_rng(seed)
    yes, no = TABLE & (rng.random(TABLE.shape) < 0.3), ~TABLE & (rng.random(TABLE.shape) < 0.8)
    return np.where(yes, 1, np.where(no, -1, 0))


CODERS = [
    {},
    {"engine": "dense"},
    {"coder": TopK(length=4)},
    {"coder": HardThreshold(length=4, sign="both")},
    {"coder": HardThreshold(length=4, sign="both"), "engine": "dense"},
    {"coder": OMP(length=4), "fidelity": 1.0},
]


@pytest.mark.parametrize("options", CODERS)
@pytest.mark.parametrize("many", [3, None])
def test_open_claims_never_use_a_no_and_never_pass_over_what_is_confirmed(
    options: dict[str, Any], many: int | None
) -> None:
    for seed in range(2):
        said = half_known(seed)
        model = fitted(knowledge=Knowledge(LABELS, NAMES, said), weights_per_class=many, **options)
        used = weights(model) != 0
        assert not used[said == -1].any()
        if many is None:
            continue
        possible = np.minimum(many, (said != -1).sum(axis=1))
        assert (used.sum(axis=1) <= possible).all()
        if (model.model_.encode(X).data < 0).any():
            # Forbidden concepts take nobody's place. (One-sided codes keep only weights that speak for the class.)
            assert (used.sum(axis=1) == possible).all()
        unsure = (used & (said == 0)).sum(axis=1)
        assert (unsure <= np.maximum(many - (said == 1).sum(axis=1), 0)).all()


@pytest.mark.parametrize("options", CODERS)
def test_confirmed_claims_use_nothing_but_yes(options: dict[str, Any]) -> None:
    said = np.where(TABLE, 1, half_known())
    said[2, TABLE[2]] = [1, 0, 0, 0][: TABLE[2].sum()]
    model = fitted(knowledge=Knowledge(LABELS, NAMES, said), claims="confirmed", weights_per_class=None, **options)
    assert not weights(model)[said != 1].any()
    assert {claim.status for claim in model.model_.claims()} == {"confirmed"}


def test_candidates_that_are_not_permitted_come_last_whatever_the_sign_of_their_evidence() -> None:
    found = np.array([[-9.0], [5.0], [1.0], [0.5], [-2.0]], np.float32)
    allowed = np.array([[False], [False], [True], [True], [True]])
    confirmed = np.array([[False], [False], [False], [True], [False]])
    candidates = Candidates(found, 2, Permitted(allowed, confirmed))
    assert candidates.mask(one_sided=True)[:, 0].tolist() == [False, False, True, True, False]
    assert candidates.mask(one_sided=False)[:, 0].tolist() == [False, False, False, True, True]
    part = candidates.of(np.array([0, 2, 4]))
    assert part.mask(one_sided=False)[:, 0].tolist() == [False, True, True]


@pytest.mark.parametrize("options", [{"engine": "dense"}, {"weights_per_class": "auto", "max_iter": 6}])
def test_checkpoints_of_other_engines_and_of_auto_continue_to_the_same_bits(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def stop(epoch: Any, epochs: int) -> None:
        if epoch.epoch == 4:
            raise KeyboardInterrupt

    given = {"knowledge": KNOWN, "coder": HardThreshold(length=4), "weights_per_class": 3, "max_iter": 12, **options}
    model = ConceptClassifier(TEXTS, random_state=0, **given)
    with pytest.raises(KeyboardInterrupt):
        clone(model).fit(X, Y, checkpoint=tmp_path / "kept", callback=stop)
    resumed = clone(model).fit(X, Y, checkpoint=tmp_path / "kept")
    whole = clone(model).fit(X, Y)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    np.testing.assert_array_equal(resumed.concepts_.embeddings, whole.concepts_.embeddings)


def test_a_checkpoint_of_other_claims_is_refused(tmp_path: Path) -> None:
    given = {"coder": HardThreshold(length=4), "weights_per_class": 3, "max_iter": 4, "random_state": 0}
    known = Knowledge(LABELS, NAMES, np.where(TABLE, 1, 0))
    ConceptClassifier(TEXTS, knowledge=known, **given).fit(X, Y, checkpoint=tmp_path / "kept")
    with pytest.raises(CCRError, match="other data or settings"):
        ConceptClassifier(TEXTS, knowledge=known, claims="confirmed", **given).fit(X, Y, checkpoint=tmp_path / "kept")


def test_answers_about_photos_alone_are_knowledge_and_count_by_row_number() -> None:
    shows = {row: bool(TABLE[LABELS.index(str(Y[row])), 0]) for row in range(0, len(X), 2)}

    def told(turned: bool) -> ConceptClassifier:
        said = {row: "yes" if yes != turned else "no" for row, yes in shows.items()}
        photos = (Answer("", NAMES[0], word, photo=str(row)) for row, word in said.items())  # type: ignore[arg-type]
        return fitted(knowledge=Knowledge.of(photos), fidelity=1.0, weights_per_class=None)

    right, wrong = told(False), told(True)
    rows = np.array(list(shows))
    lead = []
    for model in (right, wrong):
        direction = model.initial_concepts_.embeddings[model.model_.row(NAMES[0])]
        score, yes = (
            model.space_.images(X[rows]).take(np.arange(len(rows))).numpy() @ direction,
            np.array([*shows.values()]),
        )
        lead.append(score[yes].mean() - score[~yes].mean())
    assert lead[0] > lead[1], "answers that are turned round turn the concept"
    assert {claim.status for claim in right.model_.claims()} == {"unknown"}
    # Photos that are not in the data say nothing.
    elsewhere = Knowledge.of([Answer("", NAMES[0], "yes", photo="999999"), Answer("", NAMES[0], "no", photo="a.jpg")])
    same = [fitted(knowledge=known, fidelity=1.0).coef_ for known in (elsewhere, Knowledge.of([]))]
    np.testing.assert_array_equal(*same)


def test_labels_that_are_numbers_are_known_by_their_text() -> None:
    numbers = np.array([LABELS.index(str(label)) for label in Y])
    known = Knowledge(range(CLASSES), NAMES, TABLE)
    model = ConceptClassifier(TEXTS, knowledge=known, max_iter=3, random_state=0).fit(X, numbers)
    assert {claim.status for claim in model.model_.claims()} == {"confirmed"}
    assert {type(claim.label) for claim in model.model_.claims()} == {int}


@pytest.mark.parametrize(("old", "new"), [("{}", "newer"), (" {} ", "newer"), ("{}", "  newer ")])
def test_renaming_carries_answers_and_transfer_along_whatever_spaces_are_typed(old: str, new: str) -> None:
    model = fitted().model_
    name = model.names[0]
    renamed = EditSession(model).rename(old.format(name), new).model()
    assert renamed.names[0] == "newer"
    np.testing.assert_array_equal(renamed.answers, model.answers)
    assert model.transfer is not None
    assert renamed.transfer is not None
    assert renamed.transfer["newer"] == pytest.approx(model.transfer[name], nan_ok=False)
    assert [claim.status for claim in renamed.claims()] == [claim.status for claim in model.claims()]


def test_bad_answers_of_an_edit_are_refused_and_change_nothing() -> None:
    session, text = EditSession(fitted().model_), np.ones(D)
    for answers, complaint in (
        ({"class 0": "maybe"}, "got 'maybe'"),
        ({"clas 0": "yes"}, "did you mean 'class 0'"),
        (["class 0"], "answers must be"),
    ):
        with pytest.raises(CCRError, match=complaint):
            session.add("new", text, answers=answers)  # type: ignore[arg-type]
    assert not len(session)
    assert session.model().provenance.knowledge == KNOWN
    session.add("new", text, answers={"class 0": "yes"}).undo()
    assert session.model().provenance.knowledge == KNOWN


@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_a_loaded_model_fitted_again_is_the_same_to_the_bit(tmp_path: Path, engine: str) -> None:
    known = Knowledge(LABELS, NAMES, half_known()).merge(Knowledge.of([Answer("", NAMES[3], "yes", photo="4")]))
    model = fitted(knowledge=known, engine=engine, min_transfer=0.1)
    model.save(tmp_path / "model")
    loaded = ConceptClassifier.load(tmp_path / "model")
    assert loaded.knowledge == known
    assert loaded.model_.provenance.knowledge.digest == known.digest
    assert loaded.min_transfer == 0.1
    again = loaded.fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.concepts_.embeddings, model.concepts_.embeddings)
    assert again.model_.claims() == model.model_.claims()
    assert again.model_.transfer == pytest.approx(model.model_.transfer, nan_ok=True)


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        ({"transfer": {"concept 0": 7.0}}, {}),
        ({"transfer": [1.0]}, {}),
        ({"knowledge": ["a"]}, {}),
        ({"claim_images": None}, {}),
        ({}, {"knowledge_by": None}),
        ({}, {"knowledge_value": np.full(CLASSES * CONCEPTS, 9, np.int8)}),
        ({}, {"class_counts": np.full(CLASSES, -1)}),
        ({}, {"claim_facts": np.zeros((1, 3))}),
    ],
)
def test_folders_whose_knowledge_is_damaged_are_refused(
    tmp_path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray | None]
) -> None:
    fitted(max_iter=2).save(tmp_path / "model")
    kept, arrays = load_folder(tmp_path / "model")
    changed = {name: array for name, array in {**arrays, **tensors}.items() if array is not None}
    whole = {name: value for name, value in {**kept, **config}.items() if name != "tensors_sha256"}
    save_folder(tmp_path / "bad", ModelFolder(whole, changed), lambda folder: {})
    with pytest.raises(FormatError):
        ConceptModel.load(tmp_path / "bad")


def test_what_only_a_machine_says_confirms_no_claim() -> None:
    rng = np.random.default_rng(0)
    classes, concepts = ["a", "b"], ["red", "round"]
    X = np.concatenate([rng.normal([2, 0, 0, 0], 0.3, (30, 4)), rng.normal([0, 2, 0, 0], 0.3, (30, 4))])
    y = np.repeat(classes, 30)
    for source, status, mark in (("file", "confirmed", "✓"), ("llm", "unknown", None), ("wordnet", "unknown", None)):
        table = Knowledge(classes, concepts, [["yes", "no"], ["no", "yes"]], source=source)
        model = ConceptClassifier(Concepts(concepts, np.eye(4)[:2]), knowledge=table, random_state=0).fit(X, y).model_
        assert {(one.answer, one.status) for one in model.claims()} == {("yes", status)}
        assert model.claim_counts[status] == len(model.claims())
        assert {term.claim for term in model.explain(X[0]).contributions if term.contribution > 0} == {status}
        assert ("✓" in str(model.explain(X[0]))) is (mark is not None)
        assert model.answers.tolist() == table.aligned(classes, concepts).tolist()  # fits know it all the same


def test_a_person_after_a_machine_confirms_and_the_rest_stays_unknown() -> None:
    machine = Knowledge(["a", "b"], ["red", "round"], [["yes", "yes"], ["no", "yes"]], source="llm")
    person = Knowledge(["a"], ["red"], [["yes"]], source="person")
    both = Knowledge.of([*machine, *person])
    assert both.aligned(["b", "a"], ["red", "round"], by_people=True).tolist() == [[-1, 0], [1, 0]]
    assert both.aligned(["b", "a"], ["red", "round"]).tolist() == [[-1, 1], [1, 1]]
