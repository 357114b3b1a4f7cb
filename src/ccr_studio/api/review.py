"""The review: claims with their states, the photos of a claim, decisions, the signature; and the page of a class."""

from __future__ import annotations

import json
import threading
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from ccr.errors import CCRError
from ccr.review import Decision, Review, ReviewEvidence, review_rows
from ccr.review.decisions import ReviewerAgreement
from ccr.review.rounds import COLUMNS, claims_only_of, review_table, thin_classes
from ccr.utils.texts import csv_text
from ccr_studio.api.bench import JobInfo, SessionState, effect_of, state_of
from ccr_studio.api.common import (
    Called,
    ClassCount,
    Held,
    Name,
    PhotoTile,
    VersionedAnswer,
    attachment,
    most_common,
    tiles,
)
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import Strict
from ccr_studio.service.app import REFUSALS, ParsedAside
from ccr_studio.work.workbench import Workbench


class Overview(VersionedAnswer):
    """Every claim of the model, by class."""

    classes: list[dict[str, Any]]
    rejected: int = Field(description="Claims that a refit takes away.")
    blocking: int = Field(description="Claims that keep the model from being signed.")
    policy: str
    agreements: list[ReviewerAgreement]
    thin: list[dict[str, Any]] = Field(description="Classes with fewer than two reasons.")
    signed: bool
    without: str = Field(description="The class of a photo that shows no concept.")


class ClaimView(VersionedAnswer):
    """Evidence for one claim: photos of the class and of other classes that show the concept, and what was measured."""

    class_: str = Field(alias="class", serialization_alias="class")
    concept: str
    mine: list[PhotoTile]
    others: list[PhotoTile]
    share: float | None
    purity: float | None
    adds: float | None
    accuracy: float | None
    accuracy_without: float | None
    photos: int


class NextInLine(VersionedAnswer):
    concepts: list[str]


class LastRound(VersionedAnswer):
    """The claims before and after the last refit, and the accuracy on the validation photos; number 0: no refit yet."""

    number: int
    gone: list[dict[str, Any]] = Field(default=[], description="Claims that the model does not make any more.")
    new: list[dict[str, Any]] = Field(default=[], description="Claims that it did not make before.")
    before: float | None = None
    after: float | None = None
    n: int = Field(default=0, description="Validation photos.")
    honest: bool = Field(
        default=False, description="`before` is of the opened model, fitted again on the training photos alone."
    )


class NewDecision(Strict):
    """An answer to "the class shows the concept"; no class: the concept is never a reason for any."""

    by: Name
    class_: Name | None = Field(default=None, alias="class")
    concept: Name
    answer: Literal["yes", "no", "unclear"]
    reason: Literal["", "background", "wrong of this class", "true of all classes", "not to be seen", "never"] = ""


class Reviewer(Strict):
    by: Name


class Withdrawal(Reviewer):
    """A reviewer who takes back an answer of theirs; no id: the last one."""

    id: Name | None = None


class Decided(VersionedAnswer):
    decision: dict[str, Any]


class ClassPage(VersionedAnswer):
    """A class."""

    name: str
    photos: int
    right: int
    validation: int
    validation_right: int
    portraits: list[PhotoTile]
    taken_for: list[ClassCount]
    taken_from: list[ClassCount]
    bias: float
    without: str
    against: list[str]


class Signed(VersionedAnswer):
    """The signature of the model, None without a valid one."""

    signature: dict[str, Any] | None


Viewer = Annotated[str, Query(max_length=200, description="Who looks: others' answers are hidden until they decide.")]
Label = Annotated[str, Query(min_length=1, max_length=200, alias="class")]


def review_router(bench: Workbench) -> APIRouter:
    """The claims of the model, and what people answer."""
    router = APIRouter(tags=["review"], responses=REFUSALS, route_class=ParsedAside)
    reviewing = Reviewing(bench)

    @router.get("/claims", operation_id="claims")
    def claims(by: Viewer = "") -> Overview:
        """Every claim of the model with its state in the review."""
        return reviewing.overview(bench.now(), by or None)

    @router.get("/claim", operation_id="claim")
    def claim(label: Label, concept: Called) -> ClaimView:
        """Photos of the class that show the concept most, photos of others that do, and what the claim is worth."""
        return reviewing.claim(bench.now(), label, concept)

    @router.get("/claims/next", operation_id="next_claims")
    def next_in_line(label: Label) -> NextInLine:
        """Concepts that would become reasons of the class if one of its were rejected."""
        seen = bench.now()
        return NextInLine(version=seen.version, concepts=reviewing.next_in_line(seen, label))

    @router.post("/decisions", operation_id="decide")
    def decide(body: NewDecision) -> Decided:
        """Answer a claim; it is in the log on the disk when this is answered."""
        seen = bench.now()
        made = reviewing.decide(seen, body.class_, body.concept, body.answer, by=body.by, reason=body.reason)
        return Decided(version=seen.version, decision=made.to_dict())

    @router.post("/decisions/undo", operation_id="undo_decision")
    def undo(body: Withdrawal) -> Decided:
        """Take back a decision of a reviewer, by default the last one."""
        return Decided(version=bench.now().version, decision=reviewing.undo(body.id, by=body.by).to_dict())

    @router.post("/review/refit", operation_id="review_refit")
    def refit(claims: Literal["open", "confirmed"] = "open") -> JobInfo:
        """Refit with what was decided: what was rejected gets no weight, what was confirmed grounds its concept."""
        return JobInfo.model_validate(bench.refit("full", {"claims": claims}), from_attributes=True)

    @router.get("/review/round", operation_id="last_round")
    def last_round() -> LastRound:
        """Changes by the last refit: claims that went, claims that are new, and the accuracy."""
        return round_of(bench)

    @router.post("/sign", operation_id="sign_model")
    def sign_model(body: Reviewer) -> SessionState:
        """Sign the model, once every claim is confirmed; the next edit ends the signature."""
        bench.sign(body.by)
        return state_of(bench)

    @router.get("/signature", operation_id="signature")
    def signature() -> Signed:
        """Statements that the model may and may never make, by whom and when."""
        seen = bench.now()
        found = seen.model.signature if seen.model.is_signed else None
        return Signed(version=seen.version, signature=None if found is None else found.to_dict())

    @router.get("/exports/claims.csv", operation_id="export_claims", response_class=PlainTextResponse)
    def claims_csv() -> Response:
        """What the model may and may never say, as CSV: the table of `ccr review --export`."""
        seen = bench.now()
        text = csv_text(COLUMNS, (row.values() for row in review_rows(reviewing.review(seen))))
        return attachment(text, "claims.csv", "text/csv; charset=utf-8", seen.version)

    @router.get("/exports/claims.json", operation_id="export_claims_json")
    def claims_json() -> Response:
        """The same as JSON, with the signature and all decisions."""
        seen = bench.now()
        found = review_table(reviewing.review(seen), bench.title)
        found["decisions"] = [one.to_dict() for one in reviewing.decisions]
        return attachment(json.dumps(found, indent=1, default=str), "claims.json", "application/json", seen.version)

    @router.get("/class", operation_id="class_page")
    def one_class(name: Called, held: Held = False) -> ClassPage:
        """A class: photos, accuracy, confusions, head start."""
        return class_page(bench.shown(held=held), name)

    return router


#: Photos of a class that head its claims.
PORTRAITS = 5


class Reviewing:
    """Reviews of the models of a workbench. What is measured is kept for the last model that was asked about."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.decisions, self.policy = bench, bench.decisions, bench.policy
        self._lock = threading.Lock()
        self._review: tuple[str, Review] | None = None
        self._evidence: tuple[SeenModel, ReviewEvidence, np.ndarray] | None = None

    def review(self, seen: SeenModel) -> Review:
        """The review of a model, with what others have decided by now."""
        with self._lock:
            self.decisions.refresh()
            if self._review is None or self._review[0] != seen.version:
                self._review = (seen.version, self.bench.review(seen.model))
            return self._review[1]

    def overview(self, seen: SeenModel, viewer: str | None) -> Overview:
        """Every claim with its state, by class; to a viewer who has not decided, others' answers are not shown."""
        review = self.review(seen)
        claims, settled = review.claims(viewer=viewer), review.counts()
        by_class: dict[str, list[dict[str, Any]]] = {name: [] for name in seen.classes}
        for one in claims:
            by_class[str(one.label)].append(one.to_dict())
        return Overview(
            version=seen.version,
            classes=[{"name": name, "claims": found} for name, found in by_class.items()],
            rejected=settled["rejected"],
            blocking=len(claims) - settled["confirmed"],
            policy=self.policy,
            agreements=list(review.own.agreements()),
            thin=[{"class": one.label, "reasons": one.reasons} for one in thin_classes(seen.model)],
            signed=seen.model.is_signed,
            without=str(seen.model.classes[int(np.argmax(seen.model.head.intercept))]),
        )

    def claim(self, seen: SeenModel, label: str, concept: str) -> ClaimView:
        """The photos and the numbers of one claim."""
        review, (evidence, rows) = self.review(seen), self._measured(seen)
        found = evidence.of(self._label(seen, label), concept, review=review)
        photos = {side: tiles(seen, rows[list(getattr(found, side))]) for side in ("mine", "others")}
        return ClaimView(**{**found.to_dict(), "class": label, **photos}, version=seen.version, photos=len(rows))

    def next_in_line(self, seen: SeenModel, label: str) -> list[str]:
        """The concepts that would move up if a reason of the class were rejected."""
        review, (evidence, _) = self.review(seen), self._measured(seen)
        return [one.concept for one in evidence.next_in_line(review, self._label(seen, label))]

    def decide(
        self, seen: SeenModel, label: str | None, concept: str, answer: str, *, by: str, reason: str
    ) -> Decision:
        """Log an answer; a label None strikes the concept for every class."""
        self.bench.check_may_decide()
        review = self.review(seen)
        if label is None:
            return review.strike(concept, by=by)
        return review.decide(self._label(seen, label), concept, answer, by=by, reason=reason)

    def undo(self, id: str | None, *, by: str) -> Decision:
        """Take back a decision of a reviewer, by default the last one."""
        self.bench.check_may_decide()
        return self.decisions.undo(id, by=by)

    def _measured(self, seen: SeenModel) -> tuple[ReviewEvidence, np.ndarray]:
        """Evidence for the claims on labelled photos outside the test split, cached, and their rows in the store."""
        with self._lock:
            if self._evidence is None or self._evidence[0] is not seen:
                rows = seen.rows("shown")
                if not len(rows):
                    raise CCRError("a review needs labelled photos, and there are none: embed a data set with labels")
                store, labels = seen.photos.store.select(rows=rows), seen.model.classes[seen.truth[rows]]
                self._evidence = (seen, ReviewEvidence(seen.model, store, labels), rows)
            return self._evidence[1], self._evidence[2]

    def _label(self, seen: SeenModel, name: str) -> Any:
        return seen.model.classes.tolist()[seen.number(name)]


def round_of(bench: Workbench) -> LastRound:
    """The model as it is now beside the one before the last refit; its accuracy, if that one may have been trained on
    the validation photos, beside that of the opened model fitted again on the training photos alone."""
    seen, _, session = bench.snapshot()
    taken = session.steps[: session.position + 1]
    refits = [at for at, step in enumerate(taken) if step.edit["action"] == "fit"]
    if not refits:
        return LastRound(version=seen.version, number=0)
    previous = bench.at(str(taken[refits[-1] - 1].id))
    honest = bench.honest() if session.flattered(previous.version) else None
    effect = effect_of(honest or previous, seen, seen.rows("validation"))
    return LastRound(
        version=seen.version,
        number=len(refits),
        gone=[one.to_dict() for one in claims_only_of(previous.model, seen.model)],
        new=[one.to_dict() for one in claims_only_of(seen.model, previous.model)],
        honest=honest is not None,
        **{name: effect[name] for name in ("before", "after", "n") if name in effect},
    )


def class_page(seen: SeenModel, name: str) -> ClassPage:
    """A class: its photos, how often it is right, what it is taken for and what is taken for it, its head start."""
    number, rows, head = seen.number(name), seen.rows("shown"), seen.model.head
    own = rows[seen.truth[rows] == number]
    held = np.intersect1d(own, seen.photos.validation)
    taken = rows[(seen.predicted[rows] == number) & (seen.truth[rows] != number)]
    surest = own[np.argsort(-np.where(seen.right[own], seen.confidence[own], -1), kind="stable")][:PORTRAITS]
    return ClassPage(
        version=seen.version,
        name=name,
        photos=len(own),
        right=int(seen.right[own].sum()),
        validation=len(held),
        validation_right=int(seen.right[held].sum()),
        portraits=tiles(seen, surest),
        taken_for=most_common(seen, seen.predicted[own[~seen.right[own]]]),
        taken_from=most_common(seen, seen.truth[taken]),
        bias=float(head.intercept[number]),
        without=seen.classes[int(np.argmax(head.intercept))],
        against=[seen.model.names[column] for column in np.flatnonzero(head.coef[number] < 0).tolist()],
    )
