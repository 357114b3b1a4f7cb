"""Signing: a model of which every claim is confirmed gets a signature, which ends with the next change."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.io.provenance import Signature, Statement
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.review.decisions import Decisions, Policy
from ccr.review.questions import Review, ReviewQuestion
from ccr.utils.texts import check_name

#: Open claims that a message names.
NAMED = 5
#: Columns of `review_rows`; a table of knowledge has most of them.
COLUMNS = ("class", "concept", "answer", "state", "weight", "source", "by", "at", "reason")


def sign(
    model: ConceptModel,
    decisions: Decisions,
    *,
    by: str,
    policy: Policy = "one",
    known: Knowledge | None = None,
    at: str | None = None,
) -> ConceptModel:
    """The model with a signature; an error that names the claims that are not confirmed, if there are any.

    `known` is a table whose answers by people count, too, by default the model's own knowledge; `at` is now.
    """
    check_name(by, "who signs")
    if not by.strip():
        raise CCRError("a signature needs somebody who signs, got an empty name: give by=")
    review = Review(model, decisions, known=known, policy=policy)
    claims = review.claims()
    left = [one for one in claims if one.state != "confirmed"]
    if left:
        raise CCRError(f"{_named(left)}: answer them, and refit where one is rejected")
    if not claims:
        raise CCRError("the model makes no claim, so there is nothing to sign: it has no positive weight")
    made = Signature(
        by.strip(),
        at or datetime.now(timezone.utc).isoformat(timespec="seconds"),
        policy,
        tuple(_statement(one) for one in claims),
        tuple(_never(review)),
        tuple(_against(model)),
        str(model.classes[int(np.argmax(model.head.intercept))]),
    )
    signed = replace(model, signature=made)
    return replace(signed, signature=replace(made, digest=made.fitting(signed)))


def unsigned(model: ConceptModel, review: Review | None = None) -> tuple[str, ...]:
    """What keeps a model from counting as signed, in sentences; empty for a valid signature. A `review` adds which of
    its claims are not confirmed."""
    if model.is_signed:
        return ()
    if model.signature is None:
        reasons = ["nobody has signed this model"]
    else:
        reasons = [f"the signature of {model.signature.by} has ended: the model was changed since"]
    left = review.blocking() if review is not None else ()
    return (*reasons, *([_named(left)] if left else []))


def review_rows(review: Review) -> list[dict[str, Any]]:
    """What a model may say, class by class, and what it may never say, as rows of a table: class, concept, answer (yes,
    no or unknown), state, weight (None: not a claim of the model), source, by, at, reason. Of a model that is signed,
    what was signed."""
    if review.model.is_signed and review.model.signature is not None:
        signed = review.model.signature
        may, states = signed.may, {(one.label, one.concept): "confirmed" for one in signed.may}
        never = signed.never
    else:
        claims = review.claims()
        states = {(str(one.label), one.concept): one.state for one in claims}
        may = tuple(_statement(one) for one in claims if one.state != "rejected")
        never = tuple(_never(review))
    weights = {(str(one.label), one.concept): one.weight for one in review.claims()}
    rows = []
    for one, answer in [*((one, "yes") for one in may), *((one, "no") for one in never)]:
        state = states.get((one.label, one.concept), "rejected")
        said = answer if state in ("confirmed", "rejected") else "unknown"
        weight = weights.get((one.label, one.concept))
        rows.append({**one.to_dict(), "answer": said, "state": state, "weight": weight})
    return [{name: row[name] for name in COLUMNS} for row in rows]


def _named(left: Any) -> str:
    shown = ", ".join(f"{one.sentence} ({one.state})" for one in left[:NAMED])
    more = f" and {len(left) - NAMED:,} more" if len(left) > NAMED else ""
    verb = "claim is" if len(left) == 1 else "claims are"
    return f"{len(left):,} {verb} not confirmed: {shown}{more}"


def _statement(one: ReviewQuestion) -> Statement:
    agreed = [vote for vote in one.votes if vote.answer == "yes"] if one.state == "confirmed" else []
    names = " and ".join(vote.by for vote in agreed)
    sources = " and ".join(dict.fromkeys(vote.source for vote in agreed))
    return Statement(str(one.label), one.concept, names, max((vote.at for vote in agreed), default=""), sources)


def _never(review: Review) -> list[Statement]:
    """What was rejected, by class, of the list's concepts; forbidden by any source, as the fit has it."""
    labels = {str(label): number for number, label in enumerate(review.model.classes.tolist())}
    names, found = set(review.concepts.names), []
    for told in review.knowledge():
        if told.photo or told.answer != "no" or told.label not in labels or told.concept not in names:
            continue
        votes = review.own.votes(told.label, told.concept)
        reason = next((vote.reason for vote in votes if vote.reason), "")
        found.append(Statement(told.label, told.concept, told.by or told.source, told.at, told.source, reason))
    return sorted(found, key=lambda one: (labels[one.label], one.concept))


def _against(model: ConceptModel) -> list[tuple[str, str]]:
    rows, columns = np.nonzero(model.head.coef < 0)
    labels = [str(label) for label in model.classes.tolist()]
    return [(labels[row], model.names[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]
