"""Routes of the bench: state, undo, refits, what they brought, saving and exports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from ccr.errors import CCRError
from ccr_studio import differences, exports
from ccr_studio.api.photos import attachment
from ccr_studio.api.schemas import bench as schemas
from ccr_studio.api.state import job_info, state_of
from ccr_studio.mistakes import scope_rows
from ccr_studio.service.routes import REFUSALS, ParsedAside
from ccr_studio.service.schemas import Problem
from ccr_studio.workbench import Workbench

#: How saving may be refused beside the usual.
TAKEN: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "A model of that name is there."}}
OTHER_STEP: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Another step is the current one."}
}
WHICHEVER = schemas.Expected()
Against = Annotated[
    str,
    Query(
        max_length=200,
        description="opened; base: the opened model, or, where it may have been trained on these photos and everything "
        "was refitted since, the same fitted again on the training photos alone; previous; or a step's version.",
    ),
]


def bench_router(bench: Workbench) -> APIRouter:
    """Everything around the model as it changes."""
    router = APIRouter(tags=["bench"], responses=REFUSALS, route_class=ParsedAside)

    @router.get("/state", operation_id="state")
    def state() -> schemas.State:
        """Where the session stands."""
        return state_of(bench)

    @router.post("/undo", operation_id="undo", responses=OTHER_STEP)
    def undo(body: schemas.Expected = WHICHEVER) -> schemas.State:
        """Take the last step back; refused where the current one is not the one that was expected."""
        bench.undo(expected=body.version)
        return state_of(bench)

    @router.post("/redo", operation_id="redo", responses=OTHER_STEP)
    def redo(body: schemas.Expected = WHICHEVER) -> schemas.State:
        """Do the step again that was taken back last."""
        bench.undo(1, expected=body.version)
        return state_of(bench)

    @router.post("/refit", operation_id="refit")
    def refit(body: schemas.Refit) -> schemas.JobInfo:
        """Begin a refit in the background; its model becomes the next step."""
        asked = body.model_dump(exclude={"kind"}, exclude_none=True)
        if body.kind == "head" and asked:
            raise CCRError(f"a refit of the head alone takes no settings, got {', '.join(asked)}: refit everything")
        return _there(job_info(bench.refit(body.kind, asked)))

    @router.get("/refit", operation_id="refit_state")
    def refit_state() -> schemas.JobInfo:
        """The last refit, with its curve so far."""
        return _there(job_info(bench.refits.job))

    @router.delete("/refit", operation_id="cancel_refit")
    def cancel() -> schemas.JobInfo:
        """Stop the running refit; the model stays as it was."""
        bench.check_writable()
        bench.refits.cancel()
        return _there(job_info(bench.refits.job))

    @router.get("/effect", operation_id="effect")
    def effect(against: Against = "opened", scope: Literal["validation", "train"] = "validation") -> schemas.Effect:
        """Accuracy before and after, in all and by class, on photos that no refit trained on."""
        return _effect(bench, against, scope)

    @router.post("/effect/test", operation_id="effect_on_test")
    def effect_on_test(against: Against = "opened") -> schemas.Effect:
        """The same on the test photos; every look is counted, for choices made on them flatter."""
        bench.look_at_test(f"effect {bench.now().version}")
        return _effect(bench, against, "test")

    @router.post("/save", operation_id="save_model", responses=TAKEN)
    def save(body: schemas.SaveAs) -> schemas.Saved:
        """Save the model as it is now, with its edit log, beside the one that was opened."""
        saved = bench.save(body.name)
        return schemas.Saved(version=saved.version, path=str(saved.path))

    @router.get("/exports/concepts.txt", operation_id="export_concepts", response_class=PlainTextResponse)
    def export_concepts() -> Response:
        """The list of concepts, as `ccr fit --concepts` reads it."""
        seen, state, _ = bench.snapshot()
        return attachment(exports.concepts_text(state), "concepts.txt", "text/plain; charset=utf-8", seen.version)

    @router.get("/exports/edits.json", operation_id="export_edits")
    def export_edits() -> Response:
        """All edits since the model was fitted."""
        seen = bench.now()
        return attachment(exports.edits_json(seen.model), "edits.json", "application/json", seen.version)

    @router.get("/exports/report.html", operation_id="export_report", response_class=HTMLResponse)
    def export_report(scope: Literal["validation", "train", "shown"] = "validation") -> Response:
        """The static report on the validation photos, for mailing."""
        seen = bench.now()
        rows, title = scope_rows(seen, scope), f"{bench.title}: report of the studio"
        html = exports.report_html(seen, rows, scope, title, flattered=bench.session.flattered(seen.version))
        return attachment(html, "report.html", "text/html; charset=utf-8", seen.version)

    return router


def _effect(bench: Workbench, against: str, scope: str) -> schemas.Effect:
    seen, _, session = bench.snapshot()
    if against in ("opened", "base"):
        before = (bench.honest() if against == "base" else None) or bench.base()
    elif against == "previous":
        before = bench.at(str(session.steps[max(session.position - 1, 0)].id))
    else:
        before = bench.at(against)
    found: dict[str, Any] = differences.effect(before, seen, scope)
    flattered = [session.flattered(one.version) for one in (before, seen)]
    return schemas.Effect(
        version=seen.version, looks=session.looks, before_flattered=flattered[0], flattered=flattered[1], **found
    )


def _there(job: schemas.JobInfo | None) -> schemas.JobInfo:
    if job is None:
        raise CCRError("nothing was refitted yet: begin with POST")
    return job
