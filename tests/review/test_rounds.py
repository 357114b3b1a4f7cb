"""A review by somebody who knows the classes: claims become true, accuracy does not fall, and it ends."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from ccr import EmbeddingStore, Knowledge
from ccr.errors import CCRError, CCRWarning
from ccr.knowledge import Answer
from ccr.review import Decisions, Review, ReviewEvidence, out_of_fold, refit, review_round
from tests.data.helpers import write_store
from tests.review.conftest import Planted


def accuracy(planted: Planted, model: object) -> float:
    return float((model.predict(planted.X_test) == planted.y_test).mean())


def test_a_simulated_review_makes_every_claim_true(attributed: Planted) -> None:
    log, model, answers = Decisions(), attributed.model, 0
    for _ in range(10):
        review = Review(model, log)
        answers += attributed.answer(review)
        if not review.blocking():
            break
        model = refit(model, attributed.X, attributed.y, knowledge=review.knowledge())
    assert not review.blocking()
    assert attributed.truth(attributed.model) < 0.85
    assert attributed.truth(model) == 1.0
    assert answers == len(log) < 80
    assert accuracy(attributed, model) >= accuracy(attributed, attributed.model)
    # Answers hold for another model of the same list.
    other = refit(attributed.model, attributed.X[:400], attributed.y[:400], knowledge=review.knowledge())
    assert len(Review(other, log).open("ann")) < len(other.claims()) / 2


def test_only_confirmed_claims_end_after_one_refit(attributed: Planted) -> None:
    review = Review(attributed.model, Decisions())
    evidence = ReviewEvidence(attributed.model, attributed.X, attributed.y)
    attributed.answer(review)
    for label in attributed.model.classes.tolist():
        for one in evidence.next_in_line(review, label, count=5):
            answer = "yes" if attributed.is_true(one.label, one.concept) else "no"
            review.decide(one.label, one.concept, answer, by="ann")
    done = review_round(
        attributed.model, attributed.X, attributed.y, knowledge=review.knowledge(), claims="confirmed",
        unseen=(attributed.X_test, attributed.y_test),
    )  # fmt: skip
    assert not Review(done.after, review.decisions).blocking()
    assert attributed.truth(done.after) == 1.0
    assert done.accuracy_before == pytest.approx(accuracy(attributed, attributed.model))
    assert done.accuracy_after == pytest.approx(accuracy(attributed, done.after))
    assert done.after.provenance.settings["claims"] == "confirmed"


def test_a_round_says_what_went_what_is_new_and_which_classes_are_thin(attributed: Planted) -> None:
    model, review = attributed.model, Review(attributed.model, Decisions())
    for claim in model.claims():
        if claim.label == "class 0":
            review.decide(claim.label, claim.concept, "no", by="ann", reason="wrong of this class")
    for name in model.provenance.left_out[3:] + model.names:
        review.decide("class 0", name, "no", by="ann")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CCRWarning)
        done = review_round(model, attributed.X, attributed.y, knowledge=review.knowledge(), folds=2)
    before, after = ({(c.label, c.concept) for c in one.claims()} for one in (model, done.after))
    assert {(c.label, c.concept) for c in done.gone} == before - after
    assert {(c.label, c.concept) for c in done.new} == after - before
    assert done.kept == len(before & after)
    assert not {("class 0", name) for name in model.names} & after
    assert all(thin.reasons < 2 and "add one" in thin.remedy for thin in done.thin)
    assert done.images == len(attributed.y)
    assert {"gone", "new", "thin", "accuracy_before", "accuracy_after"} <= set(done.to_dict())


def test_a_refit_with_no_answers_is_the_same_fit(attributed: Planted) -> None:
    again = refit(attributed.model, attributed.X, attributed.y, knowledge=None)
    assert again.digest == attributed.model.digest


def test_out_of_fold_predictions_are_those_of_fits_without_the_image(attributed: Planted) -> None:
    found = out_of_fold(attributed.model, attributed.X, attributed.y, folds=4)
    for number in (0, 3):
        held = found.fold == number
        fitted = refit(attributed.model, attributed.X[~held], attributed.y[~held], knowledge=None)
        assert np.array_equal(found.predictions[held], fitted.predict(attributed.X[held]))
    counts = [np.bincount(found.fold[attributed.y == label], minlength=4) for label in np.unique(attributed.y)]
    assert max(int(np.ptp(count)) for count in counts) <= 1
    trained = float((attributed.model.predict(attributed.X) == attributed.y).mean())
    unseen = accuracy(attributed, attributed.model)
    assert abs(found.accuracy - unseen) < trained - unseen
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, atol=1e-5)


def test_groups_stay_together(attributed: Planted) -> None:
    scenes = np.arange(len(attributed.y)) // 20
    found = out_of_fold(attributed.model, attributed.X, attributed.y, folds=2, groups=scenes)
    assert all(len(set(found.fold[scenes == scene])) == 1 for scene in np.unique(scenes))
    with pytest.raises(CCRError, match="at least as many groups"):
        out_of_fold(attributed.model, attributed.X, attributed.y, folds=2, groups=np.zeros(len(attributed.y)))
    with pytest.raises(CCRError, match="one group for each image"):
        out_of_fold(attributed.model, attributed.X, attributed.y, folds=2, groups=[1, 2])


def test_groups_of_a_store_are_never_in_two_folds(attributed: Planted, tmp_path: Path) -> None:
    """Those of `ccr embed --group`, without a word in the call; a store without groups is divided as arrays are."""
    X, y = attributed.X[:240].astype(np.float32), attributed.y[:240]
    scenes = np.unique([f"{label} {number % 40 // 8}" for number, label in enumerate(y)], return_inverse=True)[1]
    write_store(tmp_path / "alone", X, y)
    write_store(tmp_path / "scenes", X, y, group=[f"scene {scene}" for scene in scenes])
    found = out_of_fold(attributed.model, EmbeddingStore.open(tmp_path / "scenes"), folds=3)
    assert all(len(set(found.fold[scenes == scene])) == 1 for scene in np.unique(scenes))
    counts = np.array([np.bincount(found.fold[y == label], minlength=3) for label in np.unique(y)])
    assert counts.min() > 0  # every class is in every fold, as far as its groups allow
    plain = out_of_fold(attributed.model, EmbeddingStore.open(tmp_path / "alone"), folds=3)
    assert plain.fold.tolist() == out_of_fold(attributed.model, X, y, folds=3).fold.tolist()


def test_evidence_against_a_plain_computation(attributed: Planted) -> None:
    model, X, y = attributed.model, attributed.X, attributed.y
    evidence, codes = ReviewEvidence(model, X, y), model.encode(X).toarray()
    for claim in model.claims(X, y)[::7]:
        found = evidence.of(claim.label, claim.concept)
        code, own = codes[:, model.row(claim.concept)], y == claim.label
        assert found.share == pytest.approx((code[own] > 0).mean())
        assert found.purity == pytest.approx((own & (code > 0)).sum() / (code > 0).sum())
        assert found.adds == pytest.approx(claim.weight * code[own & (code > 0)].mean(), rel=1e-5)
        assert (found.accuracy, found.accuracy_without) == (claim.accuracy, claim.accuracy_without)
        assert len(found.mine) == 6
        assert (y[list(found.mine)] == claim.label).all()
        assert (y[list(found.others)] != claim.label).all()
        assert code[list(found.mine)].min() >= np.sort(code[own])[-6] - 1e-9


def test_next_in_line_are_open_and_likelier_true_than_the_rest(attributed: Planted) -> None:
    review = Review(attributed.model, Decisions())
    evidence = ReviewEvidence(attributed.model, attributed.X, attributed.y)
    attributed.answer(review)
    right, claims = [], {(claim.label, claim.concept) for claim in attributed.model.claims()}
    for label in attributed.model.classes.tolist():
        line = evidence.next_in_line(review, label, count=4)
        assert len(line) == 4
        assert not {(one.label, one.concept) for one in line} & claims
        right += [attributed.is_true(one.label, one.concept) for one in line]
        assert len(evidence.of(label, line[0].concept, review=review).mine) == 6
        review.decide(label, line[0].concept, "no", by="ann")
        assert line[0].concept not in {one.concept for one in evidence.next_in_line(review, label, count=4)}
    unclaimed = [
        attributed.attributes[row, int(name.split()[1])]
        for row in range(6)
        for name in attributed.concepts.names
        if (f"class {row}", name) not in claims
    ]
    assert np.mean(right) > np.mean(unclaimed)


def test_a_viewer_is_blind_and_states_follow_the_policy(attributed: Planted) -> None:
    claim, log = attributed.model.claims()[0], Decisions()
    review = Review(attributed.model, log, policy="two")
    review.decide(claim.label, claim.concept, "yes", by="ann")
    assert review.claims()[0].state == "open"
    assert review.claims()[0].votes
    assert review.claims(viewer="bob")[0].votes == ()
    assert claim.concept in {one.concept for one in review.open("bob") if one.label == claim.label}
    assert not [one for one in review.open("ann") if (one.label, one.concept) == (claim.label, claim.concept)]
    review.decide(claim.label, claim.concept, "yes", by="bob")
    assert review.claims()[0].state == "confirmed"
    assert sum(review.counts().values()) == len(attributed.model.claims())


def test_numbers_as_classes_and_photos_by_row(attributed: Planted) -> None:
    """A store's labels are texts, the model's may be numbers; answers about rows do not move to other rows."""
    from ccr import ConceptClassifier, HardThreshold

    y = np.array([int(label.split()[1]) for label in attributed.y])
    known = Knowledge.of([Answer("", "concept 1", "yes", "person", photo="3"), Answer("0", "concept 1", "yes")])
    settings = {"coder": HardThreshold(length=6), "random_state": 0, "max_iter": 5}
    model = ConceptClassifier(attributed.concepts, knowledge=known, **settings).fit(attributed.X, y).model_
    found = out_of_fold(model, attributed.X, [str(label) for label in y], folds=2)
    assert found.predictions.dtype.kind == "i"
    Review(model, log := Decisions()).decide(0, "concept 1", "no", by="ann")
    assert Review(model, log).question(0, "concept 1").state == "disputed"  # the table says yes


def test_bad_input(attributed: Planted) -> None:
    model = attributed.model
    with pytest.raises(CCRError, match="labels"):
        ReviewEvidence(model, attributed.X)
    with pytest.raises(CCRError, match="not fitted with"):
        ReviewEvidence(model, attributed.X[:2], ["class 0", "class 9"])
    with pytest.raises(CCRError, match="no class is called"):
        Review(model, Decisions()).decide("class 9", "concept 1", "yes", by="ann")
    with pytest.raises(CCRError, match="no concept is called"):
        Review(model, Decisions()).decide("class 1", "concept 99", "yes", by="ann")
    with pytest.raises(CCRError, match="2 folds"):
        out_of_fold(model, attributed.X, attributed.y, folds=1)
