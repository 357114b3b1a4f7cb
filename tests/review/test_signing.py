"""A signature says who confirmed every claim, and holds for exactly that model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccr import ConceptModel
from ccr.edit import EditSession
from ccr.errors import CCRError, FormatError
from ccr.io.hub import model_card
from ccr.io.provenance import signature_sentence
from ccr.review import Decisions, Review, refit, review_rows, sign, unsigned
from ccr.show.report import Measured, headline
from ccr_studio.service.answers import model_info
from tests.review.conftest import Planted


@pytest.fixture(scope="module")
def log(attributed: Planted) -> Decisions:
    """Every claim confirmed, and one concept struck that no class uses."""
    made = Decisions()
    review = Review(attributed.model, made)
    for claim in attributed.model.claims():
        review.decide(claim.label, claim.concept, "yes", by="ann")
    review.strike(attributed.model.provenance.left_out[0], by="ann")
    review.decide("class 1", attributed.model.provenance.left_out[1], "no", by="ann", reason="background")
    return made


@pytest.fixture(scope="module")
def signed(attributed: Planted, log: Decisions) -> ConceptModel:
    return sign(attributed.model, log, by="Dr. Ann")


def test_a_signature_lists_what_may_be_said_and_what_never(attributed: Planted, signed: ConceptModel) -> None:
    found = signed.signature
    assert found is not None
    assert signed.is_signed
    assert attributed.model.signature is None
    assert {(one.label, one.concept) for one in found.may} == {(c.label, c.concept) for c in signed.claims()}
    assert all(one.by == "ann" and one.at for one in found.may)
    struck, other = attributed.model.provenance.left_out[:2]
    assert {one.label for one in found.never if one.concept == struck} == set(signed.classes.tolist())
    assert {one.reason for one in found.never if one.concept == struck} == {"never"}
    assert [(one.label, one.reason) for one in found.never if one.concept == other] == [("class 1", "background")]
    assert len(found.against) == int((signed.head.coef < 0).sum())
    assert found.without == signed.classes[np.argmax(signed.head.intercept)]
    assert unsigned(signed) == ()


def test_what_others_answered_meanwhile_counts(attributed: Planted, tmp_path: Path) -> None:
    """A rejection that was on the disk already did not keep a model from being signed."""
    mine = Decisions(tmp_path / "log.jsonl")
    review = Review(attributed.model, mine)
    for claim in attributed.model.claims():
        review.decide(claim.label, claim.concept, "yes", by="ann")
    other = Review(attributed.model, Decisions(mine.path))
    first = attributed.model.claims()[0]
    other.decide(first.label, first.concept, "no", by="bob")
    with pytest.raises(CCRError, match=r"1 claim is not confirmed: .*disputed"):
        sign(attributed.model, mine, by="ann")
    other.decisions.undo(by="bob")
    assert sign(attributed.model, mine, by="ann").is_signed


def test_claims_that_were_answered_after_the_fit_are_marked_as_confirmed(
    attributed: Planted, signed: ConceptModel
) -> None:
    """The model was told nothing, so its own knowledge confirms nothing; a signed model must not say "unknown"."""
    assert {claim.status for claim in attributed.model.claims()} == {"unknown"}
    assert {(claim.status, claim.by) for claim in signed.claims()} == {("confirmed", "ann")}
    assert signed.claim_counts["unknown"] == 0
    found = signed.explain(attributed.X[0])
    assert {term.claim for term in found.contributions if term.contribution > 0} == {"confirmed"}
    ended = replace(signed, head=type(signed.head)(2 * signed.head.coef, signed.head.intercept))
    assert {claim.status for claim in ended.claims()} == {"unknown"}


def test_it_is_saved_and_loaded_and_an_unsigned_file_stays_what_it_was(
    attributed: Planted, signed: ConceptModel, tmp_path: Path
) -> None:
    signed.save(tmp_path / "signed")
    loaded = ConceptModel.load(tmp_path / "signed")
    assert loaded.is_signed
    assert loaded.signature == signed.signature
    attributed.model.save(tmp_path / "plain")
    config = json.loads((tmp_path / "plain" / "config.json").read_text(encoding="utf-8"))
    assert "signature" not in config
    ConceptModel.load(tmp_path / "plain").save(tmp_path / "again")
    assert config == json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    tensors = {(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "again", "signed")}
    assert len(tensors) == 1
    with_it = json.loads((tmp_path / "signed" / "config.json").read_text(encoding="utf-8"))
    assert with_it.pop("signature")
    assert with_it == config


EDITS: dict[str, Callable[[EditSession, Planted], object]] = {
    "suppress": lambda session, _: session.suppress(session.concepts.names[0]),
    "scale": lambda session, _: session.scale(session.concepts.names[0], 0.5),
    "scale by one": lambda session, _: session.scale(session.concepts.names[0], 1.0),
    "rename": lambda session, _: session.rename(session.concepts.names[0], "another name"),
    "pin": lambda session, _: session.pin(session.concepts.names[0]),
    "set_weight": lambda session, _: session.set_weight(session.concepts.names[0], "class 1", 3.0),
    "zero_weight": lambda session, _: session.zero_weight(session.concepts.names[0], "class 1"),
    "add": lambda session, _: session.add("new", np.ones(48)),
    "merge": lambda session, _: session.merge(*session.concepts.names[:2]),
    "refit": lambda session, planted: session.refit(planted.X, planted.y),
}


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_ends_it(attributed: Planted, signed: ConceptModel, edit: str) -> None:
    session = EditSession(signed)
    EDITS[edit](session, attributed)
    assert not session.model().is_signed
    assert "changed since" in str(unsigned(session.model()))
    assert "has ended" in str(signature_sentence(session.model()))
    assert session.undo().model().is_signed


def test_a_refit_drops_it(attributed: Planted, signed: ConceptModel) -> None:
    assert refit(signed, attributed.X, attributed.y, knowledge=None).signature is None


def test_what_was_measured_does_not_end_it(signed: ConceptModel) -> None:
    assert signed.with_metrics("test", {"accuracy": 0.5}).is_signed


def test_open_rejected_and_disputed_claims_cannot_be_signed(attributed: Planted, log: Decisions) -> None:
    model, claim = attributed.model, attributed.model.claims()[0]
    with pytest.raises(CCRError, match=rf"{len(model.claims())} claims are not confirmed.*and \d+ more"):
        sign(model, Decisions(), by="ann")
    for by, answer in (("bob", "no"), ("bob", "unclear")):
        mine = Decisions()
        mine._all = dict(log._all)
        Review(model, mine).decide(claim.label, claim.concept, answer, by=by)
        if answer == "no":
            with pytest.raises(CCRError, match=f"{claim.concept} \\(disputed\\)"):
                sign(model, mine, by="ann")
        else:
            assert sign(model, mine, by="ann").is_signed  # by the policy of one
            with pytest.raises(CCRError, match="unclear"):
                sign(model, mine, by="ann", policy="all")
    with pytest.raises(CCRError, match="empty name"):
        sign(model, log, by=" ")


def test_the_table_holds_all_claims_and_what_was_rejected(
    attributed: Planted, signed: ConceptModel, log: Decisions
) -> None:
    before, after = (review_rows(Review(model, log)) for model in (attributed.model, signed))
    assert before == after
    assert sum(row["answer"] == "yes" for row in after) == len(signed.claims())
    rows = review_rows(Review(attributed.model, Decisions()))
    assert {row["answer"] for row in rows} == {"unknown"}


def test_it_is_shown_wherever_the_model_is(attributed: Planted, signed: ConceptModel) -> None:
    assert signed.signature is not None
    said = f"Signed by Dr. Ann ({signed.signature.at[:10]}): all {len(signed.claims())} claims confirmed"
    assert signature_sentence(signed) == f"{said}, 7 others rejected."
    unseen = attributed.X_test, attributed.y_test
    shown = [model_info("x", signed, reads_photos=False).signature]
    shown.append("".join(headline(Measured(signed, signed.evaluate(*unseen), unseen[1]), None, None, unseen[1])))
    assert all("Signed by Dr. Ann" in str(part) for part in shown)
    assert model_info("x", attributed.model, reads_photos=False).signature is None
    pytest.importorskip("huggingface_hub")
    assert "Signed by Dr. Ann" in model_card(signed, name="x/y")
    assert "Signed by" not in model_card(replace(signed, signature=None), name="x/y")


@pytest.mark.parametrize("damage", [[], {"by": "x"}, {"by": 3}, {"may": [{"class": "a"}]}, {"by": "a\x1b"}, "text"])
def test_a_damaged_signature_is_refused(signed: ConceptModel, tmp_path: Path, damage: object) -> None:
    signed.save(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    whole = damage == {"by": "x"}  # nothing else: it lacks the rest
    config["signature"] = {**config["signature"], **damage} if isinstance(damage, dict) and not whole else damage
    file.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(FormatError, match="signature"):
        ConceptModel.load(tmp_path / "model")
