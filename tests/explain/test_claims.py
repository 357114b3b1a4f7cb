"""Claims: every positive weight is one, images say of it what counting and predicting anew say, and statuses follow
answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold, Knowledge
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain.claims import ClaimEvidence, claims_of, measure_claims
from ccr.explain.terms import MARKS, Contribution, claim_marks, sum_rows, sum_text
from ccr.geometry import unit_rows
from ccr.knowledge import Answer
from ccr.metrics import SHOWN

CLASSES = ("apple", "pear", "plum")
CONCEPTS = ("round", "green", "purple", "stalk", "stone")


def exact(rng: np.random.Generator, shape: tuple[int, ...], *, low: int, zeros: float) -> np.ndarray:
    """Quarters, of which many are zero: sums of their products are exact, and ties are common."""
    values = rng.integers(low, 5, shape) / 4.0
    return np.where(rng.random(shape) < zeros, 0.0, values)


def some(seed: int, *, signed: bool, m: int = 40) -> tuple[sparse.csr_matrix, LinearHead, np.ndarray]:
    """Codes, a head and class numbers."""
    rng = np.random.default_rng(seed)
    codes = exact(rng, (m, len(CONCEPTS)), low=-4 if signed else 1, zeros=0.5)
    head = LinearHead(
        exact(rng, (len(CLASSES), len(CONCEPTS)), low=-2, zeros=0.3).astype(np.float32),
        exact(rng, (len(CLASSES),), low=-4, zeros=0.0).astype(np.float32),
    )
    return sparse.csr_matrix(codes.astype(np.float32)), head, rng.integers(0, len(CLASSES), m)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 40))
def test_the_evidence_is_what_zeroing_each_weight_and_predicting_again_finds(
    seed: int, signed: bool, chunk: int
) -> None:
    codes, head, y = some(seed, signed=signed)
    parts = [codes[start : start + chunk] for start in range(0, codes.shape[0], chunk)]
    seen = measure_claims(parts, head, y)
    claims = claims_of(head, CLASSES, CONCEPTS, seen=seen)
    assert len(claims) == (head.coef > 0).sum()
    for claim in claims:
        row, column = CLASSES.index(claim.label), CONCEPTS.index(claim.concept)
        without = head.coef.copy()
        without[row, column] = 0.0
        shows = codes.toarray()[:, column] > 0
        of_class = y == row
        assert claim.weight == head.coef[row, column]
        assert claim.share == (shows[of_class].mean() if of_class.any() else None)
        assert claim.purity == (of_class[shows].mean() if shows.any() else None)
        assert claim.accuracy == pytest.approx((head.logits(codes).argmax(axis=1) == y).mean())
        again = LinearHead(without, head.intercept).logits(codes).argmax(axis=1)
        assert claim.accuracy_without == pytest.approx((again == y).mean()), (claim, seed)


def test_claims_come_by_class_with_the_largest_weight_first() -> None:
    _, head, _ = some(3, signed=False)
    found = [(CLASSES.index(claim.label), -claim.weight) for claim in claims_of(head, CLASSES, CONCEPTS)]
    assert found == sorted(found)


def test_statuses_follow_answers_and_name_who_gave_them() -> None:
    head = LinearHead(np.array([[1.0, 2.0, 0.5, -1.0, 0.0]] * 3, np.float32), np.zeros(3, np.float32))
    answers = [
        Answer("apple", "round", "yes", "person", "Ada", "2026-11-18"),
        Answer("apple", "purple", "no", "llm", "a model"),
        Answer("pear", "green", "unknown", "person", "Ada"),
    ]
    claims = claims_of(head, CLASSES, CONCEPTS, knowledge=Knowledge.of(answers))
    found = {(claim.label, claim.concept): claim for claim in claims}
    assert len(found) == 9, "neither a negative weight nor none claims anything"
    round_apple = found["apple", "round"]
    assert (round_apple.status, round_apple.source, round_apple.by, round_apple.at) == (
        "confirmed",
        "person",
        "Ada",
        "2026-11-18",
    )
    assert found["apple", "purple"].status == "contradicted"
    assert (found["pear", "green"].status, found["pear", "green"].by) == ("unknown", "Ada")
    assert (found["plum", "green"].status, found["plum", "green"].source) == ("unknown", "")
    assert round_apple.sentence == "apple shows round"
    written = json.loads(json.dumps(round_apple.to_dict(), allow_nan=False))
    assert written["class"] == "apple"
    assert written["status"] == "confirmed"
    assert written["share"] is None


def test_a_head_without_a_positive_weight_claims_nothing() -> None:
    head = LinearHead(-np.ones((3, 5), np.float32), np.zeros(3, np.float32))
    codes = sparse.csr_matrix(np.ones((4, 5), np.float32))
    assert claims_of(head, CLASSES, CONCEPTS, seen=measure_claims([codes], head, np.array([0, 1, 2, 0]))) == ()


def test_classes_and_concepts_without_images_have_no_shares() -> None:
    head = LinearHead(np.ones((3, 5), np.float32), np.zeros(3, np.float32))
    codes = sparse.csr_matrix(np.array([[1.0, 0, 0, 0, 0]], np.float32))
    claims = claims_of(head, CLASSES, CONCEPTS, seen=measure_claims([codes], head, np.array([0])))
    found = {(claim.label, claim.concept): claim for claim in claims}
    assert (found["apple", "round"].share, found["apple", "round"].purity) == (1.0, 1.0)
    assert (found["pear", "round"].share, found["pear", "round"].purity) == (None, 0.0)
    assert (found["apple", "stone"].share, found["apple", "stone"].purity) == (0.0, None)


def test_evidence_of_another_model_is_refused() -> None:
    codes, head, y = some(5, signed=False)
    seen = measure_claims([codes], head, y)
    other = LinearHead(np.ones_like(head.coef), head.intercept)
    with pytest.raises(CCRError, match="another model"):
        claims_of(other, CLASSES, CONCEPTS, seen=seen)
    assert isinstance(seen, ClaimEvidence)


def term(concept: str, claim: str | None) -> Contribution:
    return Contribution(concept, 1.0, 2.0, 2.0, claim)  # type: ignore[arg-type]


def test_signs_are_shown_only_where_anything_is_known_and_only_those_that_a_stream_has() -> None:
    terms = [term("round", "confirmed"), term("green", "unknown"), term("stone", "contradicted"), term("red", None)]
    assert [row.claim for row in sum_rows(0.0, terms, 9)] == [None, "confirmed", "unknown", "contradicted", None]
    unknown = [term("round", "unknown"), term("green", "unknown")]
    assert [row.claim for row in sum_rows(0.0, unknown, 9)] == [None] * 3, "nothing is known, nothing is marked"
    assert [row.claim for row in sum_rows(0.0, unknown, 9, informed=True)] == [None, "unknown", "unknown"]
    assert [row.claim for row in sum_rows(0.0, terms, 9, informed=False)] == [None] * 5
    lines = sum_text("apple", sum_rows(0.0, terms, 9), 1.0).splitlines()
    assert [line.split()[1:] for line in lines[2:6]] == [["round", "✓"], ["green", "?"], ["stone", "✗"], ["red"]]
    for encoding in ("ascii", "cp1252", "latin-1", "no such encoding"):
        plain = sum_text("apple", sum_rows(0.0, terms, 9), 1.0, encoding=encoding)
        plain.encode("ascii")
        assert set(claim_marks(encoding)) == set(MARKS)
    assert claim_marks("utf-8") == claim_marks(None) == MARKS


KINDS = tuple(f"kind {number}" for number in range(12))
PARTS = tuple(f"part {number}" for number in range(10))
#: Which kind shows which part.
PROFILE = np.random.default_rng(1).random((len(KINDS), len(PARTS))) < 0.3


def fruit(each: int = 15, d: int = 16) -> tuple[np.ndarray, np.ndarray, Concepts]:
    """Images of kinds as noisy sums of the parts that they show, and the parts as concepts."""
    rng = np.random.default_rng(0)
    directions = unit_rows(rng.normal(size=(len(PARTS), d)))
    y = np.repeat(np.arange(len(KINDS)), each)
    X = PROFILE[y] @ directions + 0.2 * rng.normal(size=(len(y), d))
    return X.astype(np.float32), np.array(KINDS)[y], Concepts(PARTS, directions)


@pytest.fixture(scope="module")
def models() -> tuple[ConceptModel, ConceptModel]:
    """One with knowledge of most pairs, and one without any."""
    X, y, concepts = fruit()
    asked = np.random.default_rng(2).random(PROFILE.shape) < 0.7
    known = Knowledge(KINDS, PARTS, np.where(asked, np.where(PROFILE, 1, -1), 0), source="person", by="Ada")
    settings = {"coder": HardThreshold(length=2), "weights_per_class": 3, "max_iter": 20, "random_state": 0}
    informed = ConceptClassifier(concepts, knowledge=known, **settings).fit(X, y)  # type: ignore[arg-type]
    return informed.model_, ConceptClassifier(concepts, **settings).fit(X, y).model_  # type: ignore[arg-type]


def test_the_fields_of_an_evaluation_that_knowledge_fills(models: tuple[ConceptModel, ConceptModel]) -> None:
    X, y, _ = fruit()
    informed, plain = models
    found, without = informed.evaluate(X, y), plain.evaluate(X, y)
    new = ("truth", "unanswered", "transfer", "text_fidelity", "claims")
    assert {name: without.to_dict()[name] for name in new} == dict.fromkeys(new)
    counted = [claim.status for claim in informed.claims()]
    assert found.claims == {name: counted.count(name) for name in ("confirmed", "unknown", "contradicted")}
    assert found.transfer == pytest.approx(np.nanmean(list((informed.transfer or {}).values())))
    correlations = informed.text_fidelity(X)
    assert found.text_fidelity == pytest.approx((correlations.mean(), correlations.min()))
    json.dumps(found.to_dict(), allow_nan=False)


def test_truth_is_what_going_through_the_explanations_counts(models: tuple[ConceptModel, ConceptModel]) -> None:
    X, y, _ = fruit()
    informed, _ = models
    known = informed.provenance.knowledge
    assert known is not None
    said = []
    for row, label in zip(X, y, strict=True):
        terms = [term for term in informed.explain(row).contributions if term.code > 0 and term.contribution > 0]
        for shown in terms[:SHOWN]:
            answer = known.find(label, shown.concept)
            said.append("unknown" if answer is None else answer.answer)
    found = informed.evaluate(X, y)
    assert found.truth == pytest.approx(said.count("yes") / (said.count("yes") + said.count("no")))
    assert found.unanswered == pytest.approx(said.count("unknown") / len(said))


def test_explanations_mark_claims_only_of_a_model_that_knows_something(
    models: tuple[ConceptModel, ConceptModel],
) -> None:
    X, _, _ = fruit()
    informed, plain = models
    row = next(row for row in X if any(one.claim for one in informed.explain(row).contributions))
    explained, without = informed.explain(row), plain.explain(row)
    assert explained.informed
    assert not without.informed
    assert any(sign in str(explained) for sign in MARKS.values())
    assert any(sign in explained._repr_html_() for sign in ("✓", "✗", ">?<"))
    for sign in MARKS.values():
        assert sign not in str(without)
        assert sign not in without._repr_html_()
    assert "claim" not in without._repr_html_()
    claims = {term.claim for row in X[::10] for term in plain.explain(row).contributions if term.weight > 0}
    assert claims == {"unknown"}, "nobody was asked"


def test_an_audit_says_what_transfers(models: tuple[ConceptModel, ConceptModel]) -> None:
    X, _, _ = fruit()
    informed, plain = models
    found = informed.audit(X)
    known = {item.concept: item.transfer for item in found.concepts}
    expected = {name: None if np.isnan(value) else value for name, value in (informed.transfer or {}).items()}
    assert known == expected
    measured = [value for value in expected.values() if value is not None]
    assert found.transfer == (pytest.approx(np.mean(measured)) if measured else None)
    low = {name for name, value in expected.items() if value is not None and value < 0.6}
    assert {item.concept for item in found.not_transferring} == low
    assert plain.audit(X).transfer is None
    assert plain.audit().not_transferring == ()
    json.dumps(found.to_dict(), allow_nan=False)


def test_too_few_classes_have_no_transfer_and_say_so_by_none() -> None:
    X, y, concepts = fruit()
    rows = np.isin(y, KINDS[:3])
    known = Knowledge(KINDS[:3], PARTS, PROFILE[:3])
    model = ConceptClassifier(concepts, knowledge=known, coder=HardThreshold(length=2), max_iter=5).fit(
        X[rows], y[rows]
    )
    found = model.model_.evaluate(X[rows], y[rows])
    assert found.transfer is None
    assert model.model_.audit().transfer is None
    assert found.claims is not None
    json.dumps(found.to_dict(), allow_nan=False)
