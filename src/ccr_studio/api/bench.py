"""The bench: where the session stands, undo, refits, what they brought, saving and exports."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from PIL import Image
from pydantic import BaseModel, Field

from ccr.coding.coders import usual_length
from ccr.data.store import EmbeddingStore
from ccr.edit import ClassEffect, edit_effect
from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.metrics import wilson_interval
from ccr.model import ConceptModel
from ccr.refine.region import chosen_fidelity
from ccr.utils.texts import visible
from ccr.vocab.lists import concept_line
from ccr_studio.api.common import Name, VersionedAnswer, attachment
from ccr_studio.api.views import interval_of, share_of
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import ErrorAnswer, Strict
from ccr_studio.service.app import REFUSALS, ParsedAside
from ccr_studio.service.limits import DECODING
from ccr_studio.work.edits import plain_entry
from ccr_studio.work.refits import FoldState, Job
from ccr_studio.work.session import StudioState
from ccr_studio.work.workbench import Workbench, step_words


class EffectLine(BaseModel):
    """A class before and after."""

    name: str
    n: int
    before: float
    after: float
    before_interval: list[float]
    after_interval: list[float]


class Effect(VersionedAnswer):
    """Accuracy before and after, on photos that no refit trained on."""

    scope: str
    n: int
    before_version: str
    before: float | None = None
    after: float | None = None
    before_interval: list[float] | None = None
    after_interval: list[float] | None = None
    changed: int | None = None
    classes: list[EffectLine]
    looks: int = Field(description="How often test photos were looked at in this session.")
    before_flattered: bool = Field(description="The model before may have been trained on the validation photos.")
    flattered: bool = Field(description="So may the model as it is now.")


class StepInfo(BaseModel):
    id: str
    words: str
    edit: dict[str, Any]
    at: str


class JobInfo(BaseModel):
    """A refit: its curve grows while it runs."""

    id: int
    kind: Literal["full", "head"]
    settings: dict[str, Any]
    state: Literal["running", "done", "failed", "cancelled"]
    epochs: int
    curve: list[dict[str, float | int | None]]
    message: str
    version: str | None
    seconds: float


class SessionState(VersionedAnswer):
    """State of the session."""

    title: str
    store: str
    photos: int
    pictures: str = Field(description="Digest of the photos, for `of` of /thumbnails.")
    classes: list[str]
    splits: dict[str, int]
    training: int
    validation: int
    test: int
    held_out: bool = Field(description="The store has no split val: some photos are held out instead.")
    concepts: int
    threshold: float | None
    accuracy: float | None = Field(description="On the validation photos.")
    interval: list[float] | None
    length: float
    settings: dict[str, Any]
    encoder: str
    read_only: bool
    decides: bool = Field(description="Answers of reviewers are taken.")
    signed: bool = Field(description="Every claim of the model is confirmed, and somebody signed it.")
    steps: list[StepInfo]
    position: int
    looks: int
    can_undo: bool
    can_redo: bool
    job: JobInfo | None
    corrections: int = Field(description="Grows whenever somebody says something of a photo.")
    folds: FoldState = Field(description="Whether there are predictions by refits that have not seen the photo.")
    held_accuracy: float | None = Field(description="Of those predictions, on all photos but test; null: not known.")
    held_photos: int
    flattered: bool = Field(description="The model as it is now may have been trained on the validation photos.")
    where: bool = Field(description="Whether photos can be asked where a concept is.")


class NewRefit(Strict):
    """Request for a refit: of the whole model from the concepts' texts, or of the head alone. Omitted settings stay."""

    kind: Literal["full", "head"] = "full"
    fidelity: float | None = Field(default=None, ge=0, le=1)
    length: float | None = Field(default=None, ge=1, le=1000)
    weights_per_class: Annotated[int, Field(ge=1, le=1000)] | Literal["all"] | None = None
    random_state: int | None = Field(default=None, ge=0, le=2**32 - 1)


class Expected(Strict):
    """The step that is taken back, or that another one is done after; None: whichever is current."""

    version: Name | None = None


class SaveAs(Strict):
    name: Name


class SavedAs(VersionedAnswer):
    path: str


#: How saving may be refused beside the usual.
TAKEN: dict[int | str, dict[str, Any]] = {409: {"model": ErrorAnswer, "description": "A model of that name is there."}}
OTHER_STEP: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorAnswer, "description": "Another step is the current one."}
}
WHICHEVER = Expected()
Against = Annotated[
    str,
    Query(
        max_length=200,
        description="opened; base: the opened model, or, where it may have been trained on these photos and everything "
        "was refitted since, the same fitted again on the training photos alone; previous; or a step's version.",
    ),
]


def bench_router(bench: Workbench) -> APIRouter:
    """Routes around the model as it changes."""
    router = APIRouter(tags=["bench"], responses=REFUSALS, route_class=ParsedAside)

    @router.get("/state", operation_id="state")
    def state() -> SessionState:
        """State of the session."""
        return state_of(bench)

    @router.post("/undo", operation_id="undo", responses=OTHER_STEP)
    def undo(body: Expected = WHICHEVER) -> SessionState:
        """Take the last step back; refused where the current one is not the one that was expected."""
        bench.undo(expected=body.version)
        return state_of(bench)

    @router.post("/redo", operation_id="redo", responses=OTHER_STEP)
    def redo(body: Expected = WHICHEVER) -> SessionState:
        """Do the step again that was taken back last."""
        bench.undo(1, expected=body.version)
        return state_of(bench)

    @router.post("/refit", operation_id="refit")
    def refit(body: NewRefit) -> JobInfo:
        """Begin a refit in the background; its model becomes the next step."""
        asked = body.model_dump(exclude={"kind"}, exclude_none=True)
        if body.kind == "head" and asked:
            raise CCRError(f"a refit of the head alone takes no settings, got {', '.join(asked)}: refit everything")
        return _there(job_info(bench.refit(body.kind, asked)))

    @router.get("/refit", operation_id="refit_state")
    def refit_state() -> JobInfo:
        """The last refit, with its curve so far."""
        return _there(job_info(bench.refits.job))

    @router.delete("/refit", operation_id="cancel_refit")
    def cancel() -> JobInfo:
        """Stop the running refit; the model stays as it was."""
        bench.check_writable()
        bench.refits.cancel()
        return _there(job_info(bench.refits.job))

    @router.get("/effect", operation_id="effect")
    def effect(against: Against = "opened", scope: Literal["validation", "train"] = "validation") -> Effect:
        """Accuracy before and after, in all and by class, on photos that no refit trained on."""
        return _effect(bench, against, scope)

    @router.post("/effect/test", operation_id="effect_on_test")
    def effect_on_test(against: Against = "opened") -> Effect:
        """The same on the test photos; every look is counted, for choices made on them flatter."""
        bench.look_at_test(f"effect {bench.now().version}")
        return _effect(bench, against, "test")

    @router.post("/save", operation_id="save_model", responses=TAKEN)
    def save(body: SaveAs) -> SavedAs:
        """Save the model as it is now, with its edit log, beside the one that was opened."""
        saved = bench.save(body.name)
        return SavedAs(version=saved.version, path=str(saved.path))

    @router.get("/exports/concepts.txt", operation_id="export_concepts", response_class=PlainTextResponse)
    def export_concepts() -> Response:
        """The list of concepts, as `ccr fit --concepts` reads it."""
        seen, state, _ = bench.snapshot()
        return attachment(concepts_text(state), "concepts.txt", "text/plain; charset=utf-8", seen.version)

    @router.get("/exports/edits.json", operation_id="export_edits")
    def export_edits() -> Response:
        """All edits since the model was fitted."""
        seen = bench.now()
        return attachment(edits_json(seen.model), "edits.json", "application/json", seen.version)

    @router.get("/exports/report.html", operation_id="export_report", response_class=HTMLResponse)
    def export_report(scope: Literal["validation", "train", "shown"] = "validation") -> Response:
        """The static report on the validation photos, for mailing."""
        seen = bench.now()
        rows, title = seen.rows(scope), f"{bench.title}: report of the studio"
        html = report_html(seen, rows, scope, title, flattered=bench.session.flattered(seen.version))
        return attachment(html, "report.html", "text/html; charset=utf-8", seen.version)

    return router


def _effect(bench: Workbench, against: str, scope: str) -> Effect:
    seen, _, session = bench.snapshot()
    if against in ("opened", "base"):
        before = (bench.honest() if against == "base" else None) or bench.base()
    elif against == "previous":
        before = bench.at(str(session.steps[max(session.position - 1, 0)].id))
    else:
        before = bench.at(against)
    rows = seen.rows(scope)
    return Effect(
        version=seen.version,
        scope=scope,
        before_version=before.version,
        before_flattered=session.flattered(before.version),
        flattered=session.flattered(seen.version),
        looks=session.looks,
        **effect_of(before, seen, rows),
    )


def effect_of(before: SeenModel, after: SeenModel, rows: np.ndarray) -> dict[str, Any]:
    """Accuracy before and after on labelled rows, in all and by class, with intervals; nothing where there are none."""
    if not len(rows):
        return {"n": 0, "classes": []}
    names = np.array(after.classes)
    found = edit_effect(
        names[after.truth[rows]], np.array(before.classes)[before.predicted[rows]], names[after.predicted[rows]]
    )
    return {**vars(found), "classes": [_class_line(line) for line in found.classes]}


def _class_line(line: ClassEffect) -> EffectLine:
    intervals = [wilson_interval(round(share * line.n), line.n) for share in (line.before, line.after)]
    return EffectLine(**vars(line), before_interval=list(intervals[0]), after_interval=list(intervals[1]))


def _there(job: JobInfo | None) -> JobInfo:
    if job is None:
        raise CCRError("nothing was refitted yet: begin with POST")
    return job


def state_of(bench: Workbench) -> SessionState:
    """State of the session."""
    seen, _, session = bench.snapshot()
    photos, rows = bench.photos, bench.photos.validation
    known = rows[seen.truth[rows] >= 0]
    right = seen.right[known]
    held, shown = bench.shown(held=True, begin=False), seen.rows("shown")
    counts = np.bincount(photos.split, minlength=len(photos.splits)).tolist()
    steps = [
        StepInfo(id=str(step.id), words=step_words(step), edit=plain_entry(step.edit), at=step.at)
        for step in session.steps
    ]
    return SessionState(
        version=seen.version,
        title=bench.title,
        store=str(photos.store.path),
        photos=len(photos),
        pictures=bench.thumbnails.digest,
        classes=list(seen.classes),
        splits={name or "none": count for name, count in zip(photos.splits, counts, strict=True)},
        training=len(photos.training),
        validation=len(rows),
        test=len(photos.test),
        held_out=not len(photos.of_split("val")),
        concepts=len(seen.model.concepts),
        threshold=seen.threshold(),
        accuracy=share_of(right),
        interval=interval_of(right),
        length=seen.codes.nnz / max(len(photos), 1),
        settings=settings_of(seen.model),
        encoder=bench.words.status,
        read_only=bench.read_only,
        decides=bench.decides,
        signed=seen.model.is_signed,
        steps=steps,
        position=session.position,
        looks=session.looks,
        can_undo=session.can_undo,
        can_redo=session.can_redo,
        job=job_info(bench.refits.job),
        corrections=bench.revision,
        folds=bench.folds.state(seen),
        held_accuracy=None if held is seen else share_of(held.right[shown]),
        held_photos=0 if held is seen else len(shown),
        flattered=session.flattered(),
        where=bench.places.available,
    )


def job_info(job: Job | None) -> JobInfo | None:
    """A refit as the API tells it."""
    return None if job is None else JobInfo.model_validate(job, from_attributes=True)


def settings_of(model: ConceptModel) -> dict[str, Any]:
    """Length or threshold, fidelity or radius, and weights per class, in plain types."""
    settings, coder = model.provenance.settings, model.provenance.settings.get("coder")
    radius = settings.get("radius")
    return {
        "length": plain(_usual(model) if coder is None else getattr(coder, "length", None)),
        "threshold": plain(getattr(coder, "threshold", None)),
        "fidelity": plain(chosen_fidelity(radius, settings.get("fidelity"))),
        "radius": plain(radius),
        "weights_per_class": plain(settings.get("weights_per_class")),
    }


def _usual(model: ConceptModel) -> float:
    """The length of a model for which none was asked."""
    return float(usual_length(len(model.names) + len(model.provenance.left_out)))


#: Pixels along the longer edge of a photo in a report, before the report makes it smaller still.
SHOWN = 1024


class _Named(EmbeddingStore):
    """A part of a store whose labels are a model's own classes, which may be numbers or booleans."""

    def __init__(self, part: EmbeddingStore, classes: np.ndarray) -> None:
        self.__dict__.update(vars(part))
        self._classes = classes

    @property
    def y(self) -> np.ndarray:
        return self._classes

    def image(self, row: int) -> Image.Image:
        """The photo as large as a report shows it, so that many reports at once do not hold many whole photos."""
        with DECODING.decoded(lambda: self.content(row)) as image:
            image.thumbnail((SHOWN, SHOWN))
            return image


def concepts_text(state: StudioState) -> str:
    """The list of concepts, one per line, as `ccr fit --concepts` reads it."""
    return "".join(concept_line(visible(name)) for name in state.texts.names)


def edits_json(model: ConceptModel) -> str:
    """All edits since the model was fitted."""
    return json.dumps({"edits": list(model.provenance.edits)}, indent=1, ensure_ascii=True)


def report_html(seen: SeenModel, rows: np.ndarray, scope: str, title: str, *, flattered: bool) -> str:
    """The static report on some photos, of classes that the model knows; `flattered`: it may be trained on them."""
    if not len(rows):
        raise CCRError(f"there are no labelled {scope} photos to report on")
    from ccr.show.report import report_page  # brings matplotlib, which the first page need not wait for

    part = _Named(seen.photos.store.select(rows=rows), seen.model.classes[seen.truth[rows]])
    notes = [f"Made by the studio on {len(rows):,} {scope} photos."]
    if flattered or scope != "validation":
        notes.append("The model may have been trained on these photos, so it is probably less often right on others.")
    absent = [seen.classes[number] for number in np.setdiff1d(np.arange(len(seen.classes)), seen.truth[rows])]
    if absent:
        names = ", ".join(map(visible, absent))
        notes.append(f"Classes without {scope} photos, of which only the reasons are listed: {names}.")
    return report_page(seen.model, part, title=title, notes=notes)
