"""Routes of the review: claims, evidence, decisions, signature; and of a class."""

from __future__ import annotations

import csv
import io
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from ccr.utils.texts import to_cell
from ccr_studio.api.photos import attachment
from ccr_studio.api.schemas import review as schemas
from ccr_studio.api.schemas.bench import JobInfo, State
from ccr_studio.api.state import job_info, state_of
from ccr_studio.reviewing import Reviewing, class_page
from ccr_studio.service.routes import REFUSALS, ParsedAside
from ccr_studio.workbench import Workbench

Name = Annotated[str, Query(min_length=1, max_length=200)]
Viewer = Annotated[str, Query(max_length=200, description="Who looks: others' answers are hidden until they decide.")]
Label = Annotated[str, Query(min_length=1, max_length=200, alias="class")]
COLUMNS = ("class", "concept", "state", "weight", "votes")


def review_router(bench: Workbench) -> APIRouter:
    """The claims of the model, and what people answer."""
    router = APIRouter(tags=["review"], responses=REFUSALS, route_class=ParsedAside)
    reviewing = Reviewing(bench)

    @router.get("/claims", operation_id="claims")
    def claims(by: Viewer = "") -> schemas.Overview:
        """Every claim of the model with its state in the review."""
        seen = bench.now()
        return schemas.Overview(version=seen.version, **reviewing.overview(seen, by or None))

    @router.get("/claim", operation_id="claim")
    def claim(label: Label, concept: Name) -> schemas.ClaimEvidence:
        """Photos of the class that show the concept most, photos of others that do, and what the claim is worth."""
        seen = bench.now()
        return schemas.ClaimEvidence(version=seen.version, **reviewing.claim(seen, label, concept))

    @router.get("/claims/next", operation_id="next_claims")
    def next_in_line(label: Label) -> schemas.NextInLine:
        """Concepts that would become reasons of the class if one of its were rejected."""
        seen = bench.now()
        return schemas.NextInLine(version=seen.version, concepts=reviewing.next_in_line(seen, label))

    @router.post("/decisions", operation_id="decide")
    def decide(body: schemas.NewDecision) -> schemas.Decided:
        """Answer a claim; it is in the log on the disk when this is answered."""
        seen = bench.now()
        made = reviewing.decide(seen, body.class_, body.concept, body.answer, by=body.by, reason=body.reason)
        return schemas.Decided(version=seen.version, decision=made.to_dict())

    @router.post("/decisions/undo", operation_id="undo_decision")
    def undo(body: schemas.Reviewer) -> schemas.Decided:
        """Take back a reviewer's last decision."""
        return schemas.Decided(version=bench.now().version, decision=reviewing.undo(body.by).to_dict())

    @router.post("/review/refit", operation_id="review_refit")
    def refit(claims: Literal["open", "confirmed"] = "open") -> JobInfo:
        """Refit with what was decided: what was rejected gets no weight, what was confirmed grounds its concept."""
        bench.check_writable()
        known = reviewing.review(bench.now()).knowledge()
        job = job_info(bench.refit("full", {"claims": claims} if len(known) else {}, knowledge=known))
        assert job is not None
        return job

    @router.post("/sign", operation_id="sign_model")
    def sign_model(body: schemas.Reviewer) -> State:
        """Sign the model, once every claim is confirmed; the next edit ends the signature."""
        bench.sign(reviewing.decisions, by=body.by, policy=reviewing.policy)
        return state_of(bench)

    @router.get("/signature", operation_id="signature")
    def signature() -> schemas.Signed:
        """What the model may say and may never say, by whom and when."""
        seen = bench.now()
        found = seen.model.signature if seen.model.is_signed else None
        return schemas.Signed(version=seen.version, signature=None if found is None else found.to_dict())

    @router.get("/exports/claims.csv", operation_id="export_claims", response_class=PlainTextResponse)
    def claims_csv() -> Response:
        """The claims with their states and votes, as CSV."""
        seen = bench.now()
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in reviewing.review(seen).claims():
            votes = "; ".join(f"{vote.by}: {vote.answer} {vote.reason}".strip() for vote in one.votes)
            writer.writerow([to_cell(cell) for cell in (one.label, one.concept, one.state, one.weight, votes)])
        return attachment(stream.getvalue(), "claims.csv", "text/csv; charset=utf-8", seen.version)

    @router.get("/exports/claims.json", operation_id="export_claims_json")
    def claims_json() -> Response:
        """The claims with their states and votes, and all decisions, as JSON."""
        seen = bench.now()
        found: dict[str, Any] = {"claims": [one.to_dict() for one in reviewing.review(seen).claims()]}
        found["decisions"] = [one.to_dict() for one in reviewing.decisions]
        return attachment(json.dumps(found, indent=1, default=str), "claims.json", "application/json", seen.version)

    @router.get("/class", operation_id="class_page")
    def one_class(name: Name) -> schemas.ClassPage:
        """A class: photos, accuracy, confusions, head start."""
        seen = bench.now()
        return schemas.ClassPage(version=seen.version, **class_page(seen, name))

    return router
