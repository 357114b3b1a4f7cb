"""Photos: the wall, a photo's page, its thumbnail, and photos that were dropped on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import numpy as np
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field, FiniteFloat
from starlette.concurrency import run_in_threadpool

from ccr.errors import CCRError
from ccr.explain import Contrast, Counterfactual, Explanation
from ccr.explain.counterfactual import Shift
from ccr.explain.explanation import MissingConcept
from ccr.utils.texts import csv_text, visible
from ccr_studio.api.common import (
    Held,
    Name,
    PhotoTile,
    Row,
    Share,
    Sum,
    VersionedAnswer,
    attachment,
    sum_of,
    tiles,
)
from ccr_studio.cache import Recent
from ccr_studio.encoder import Uploads
from ccr_studio.filters import ConceptRange, Counts, Filtered, Wish
from ccr_studio.photos import SIZES
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import Strict
from ccr_studio.service.app import REFUSALS, ParsedAside
from ccr_studio.work.corrections import Kind
from ccr_studio.work.workbench import Workbench

Names = Annotated[list[Name], Query(max_length=500)]
#: A row never has another photo under the digest of its store.
FOREVER = "private, max-age=31536000, immutable"
#: Photos like this one, concepts that a slider can bring in, missing concepts of a mistake, questions that are kept.
NEAREST, SUGGESTED, MISSING, KEPT = 8, 12, 6, 16
#: Columns of a table of photos.
COLUMNS = ("row", "name", "path", "split", "truth", "predicted", "confidence", "right")


class PhotoPage(VersionedAnswer):
    """A page of the photos that the filters leave."""

    total: int
    offset: int
    photos: list[PhotoTile]
    counts: Counts | None = None


class ActiveConcept(BaseModel):
    """A concept that a photo shows, and its code."""

    concept: str
    code: float


class MistakeFacts(BaseModel):
    """Rank of the true class, and what was missing for it."""

    rank: int
    probability: float
    missing: list[MissingConcept]


class HeldPrediction(BaseModel):
    """The prediction of a refit that has not seen the photo."""

    prediction: str
    probability: float


class Photo(VersionedAnswer, Sum):
    """A photo's page."""

    id: str
    name: str
    split: str | None
    truth: str | None
    in_play: int
    active: list[ActiveConcept]
    counterfactual: Counterfactual | None
    mistake: MistakeFacts | None
    suggested: list[str]
    nearest: list[PhotoTile]
    held: HeldPrediction | None = Field(description="Null where it is not known, or the model has not seen the photo.")
    answers: dict[str, Literal["yes", "no"]] = Field(description="What people said: whether it shows a concept.")
    corrected: str | None = Field(description="The label that somebody gave it in place of the store's.")
    left_out: bool = Field(description="Nothing is trained or measured on it.")
    corrects: bool = Field(description="Something may be said of it here: it is no test photo, and no dropped one.")


@dataclass(frozen=True, kw_only=True)
class PhotoContrast(Contrast):
    """Contrast of one class with another, by the model of a `version`."""

    version: str


class Intervened(VersionedAnswer, Sum):
    """The prediction with entries of the code set by hand."""

    changed: bool
    shifts: list[Shift]


class Codes(Strict):
    """Entries of the code to set; 0 removes a concept."""

    codes: dict[Name, FiniteFloat] = Field(max_length=200)


class ConceptPlace(VersionedAnswer):
    """Map of a concept: how much each patch of the photo adds to it, row by row."""

    concept: str
    rows: int
    columns: int
    values: list[float]
    code: float = Field(description="The concept's code: the patches and the rest add up to it.")
    rest: float = Field(description="What no patch carries.")
    left: float = Field(description="Where in the photo the patches begin, and how much they cover: shares of it.")
    top: float
    width: float
    height: float


class NewCorrection(Strict):
    """A correction of a photo by a person; an empty answer withdraws an earlier one."""

    kind: Kind
    answer: Annotated[str, Field(max_length=200)] = Field(
        description="concept: yes or no; label: the right class; leave out: yes."
    )
    concept: Annotated[str, Field(max_length=200)] = ""
    by: Annotated[str, Field(max_length=200)] = ""


class Uploaded(BaseModel):
    """A photo that was dropped on the page."""

    id: str
    name: str


class PhotoQuery(Strict):
    """Filters that all must hold, an order, and a page of what they leave."""

    classes: Names = Field(default_factory=list)
    predicted: Names = Field(default_factory=list)
    split: Names = Field(default_factory=list)
    right: Literal["right", "wrong"] | None = None
    low: Share = 0.0
    high: Share = 1.0
    concept: Names = Field(default_factory=list)
    above: Annotated[list[float | Literal[""]], Query(max_length=500)] = Field(default_factory=list)
    below: Annotated[list[float | Literal[""]], Query(max_length=500)] = Field(default_factory=list)
    selection: Name | None = None
    sort: Literal["row", "confidence", "class", "predicted", "concept"] = "row"
    by: Name | None = None
    descending: bool = False
    offset: Annotated[int, Query(ge=0, le=2**40)] = 0
    limit: Annotated[int, Query(ge=0, le=500)] = 100
    counts: bool = False
    held: Held = False
    around: Annotated[Row | None, Query(description="A photo's row: the page has it, and begins one before it.")] = None

    def wish(self, bench: Workbench) -> Wish:
        """The filters as the columns take them."""
        rows = None if self.selection is None else bench.selections.get(self.selection)
        return Wish(
            tuple(self.classes),
            tuple(self.predicted),
            tuple(self.split),
            self.right,
            self.low,
            self.high,
            self._ranges(),
            self.selection,
            self.sort,
            self.by,
            self.descending,
            rows,
        )

    def _ranges(self) -> tuple[ConceptRange, ...]:
        if max(len(self.above), len(self.below)) > len(self.concept):
            raise CCRError("above and below belong to a concept: give as many concepts")
        bounds = [[*side, *[""] * (len(self.concept) - len(side))] for side in (self.above, self.below)]
        found = []
        for name, above, below in zip(self.concept, *bounds, strict=True):
            numbers = [None if value == "" else float(value) for value in (above, below)]
            if any(value is not None and not np.isfinite(value) for value in numbers):
                raise CCRError("a bound on a concept must be a finite number")
            found.append(ConceptRange(name, *numbers))
        return tuple(found)


Wanted = Annotated[PhotoQuery, Query()]


def photos_router(bench: Workbench) -> APIRouter:
    """The wall, photos, thumbnails and uploads."""
    router = APIRouter(tags=["photos"], responses=REFUSALS, route_class=ParsedAside)
    found = _Found(bench)

    @router.get("/photos", operation_id="list_photos")
    def photos(query: Wanted) -> PhotoPage:
        """The photos that the filters leave, a page at a time, with what each filter would leave."""
        seen = bench.shown(held=query.held)
        filtered, rows = found.rows(seen, query)
        values = seen.values(query.by) if query.sort == "concept" and query.by else None
        offset = query.offset if query.around is None else _before(rows, query.around)
        page = rows[offset : offset + query.limit]
        shown = tiles(seen, page, None if values is None else values[page])
        counts = filtered.counts() if query.counts else None
        return PhotoPage(version=seen.version, total=len(rows), offset=offset, photos=shown, counts=counts)

    @router.get("/photos.csv", operation_id="export_photos", response_class=PlainTextResponse)
    def photos_table(query: Wanted) -> Response:
        """All photos that the filters leave, as CSV."""
        seen = bench.shown(held=query.held)
        text = photos_csv(seen, found.rows(seen, query)[1])
        return attachment(text, "photos.csv", "text/csv; charset=utf-8", seen.version)

    @router.get("/thumbnails/{key}", operation_id="thumbnail", response_class=Response)
    def thumbnail(
        key: str,
        size: int = SIZES[0],
        of: Annotated[str, Query(max_length=64, description="`pictures` of /state.")] = "",
    ) -> Response:
        """A photo of the store, or one that was dropped, as a small JPEG. A browser keeps what it asked for with `of`:
        on the same port, a row may be another store's next time."""
        if key.startswith("u"):
            return Response(bench.uploads.get(key).jpeg, media_type="image/jpeg")
        row = bench.photos.row(key)
        lasting = bench.thumbnails.key(row) is not None and of == bench.thumbnails.digest
        headers = {"Cache-Control": FOREVER} if lasting else {}
        return Response(bench.thumbnails.of(row, size), media_type="image/jpeg", headers=headers)

    @router.get("/photos/{key}", operation_id="photo")
    def one_photo(key: str) -> Photo:
        """A photo's prediction as a sum, what would change it, and the training photos like it."""
        seen = bench.now()
        if not key.startswith("u") and not seen.photos.open[seen.photos.row(key)]:
            bench.look_at_test(f"wall {seen.version}")
        return photo_page(bench, seen, key)

    @router.post("/photos/{key}/correct", operation_id="correct_photo")
    def correct(key: str, body: NewCorrection) -> Photo:
        """Say that a concept is here or not, that the label is another one, or that the photo is to be left out. The
        next refit learns from it; the store stays as it is."""
        seen = bench.correct(bench.photos.row(key), body.kind, body.answer, concept=body.concept, by=body.by)
        return photo_page(bench, seen, key)

    @router.get("/exports/corrections.csv", operation_id="export_corrections", response_class=PlainTextResponse)
    def corrections_csv() -> Response:
        """All that people said of single photos, as CSV."""
        version = bench.now().version
        return attachment(bench.corrections.csv(), "corrections.csv", "text/csv; charset=utf-8", version)

    @router.get("/photos/{key}/contrast", operation_id="photo_contrast")
    def contrast(key: str, other: Annotated[str, Query(max_length=200)]) -> PhotoContrast:
        """Contrast of the predicted class with another."""
        seen = bench.now()
        found = explanation_of(seen, bench.uploads, key).contrast(other)
        return PhotoContrast(**vars(found), version=seen.version)

    @router.post("/photos/{key}/intervene", operation_id="photo_intervene")
    def intervene(key: str, body: Codes) -> Intervened:
        """The prediction with entries of the code set by hand; the model stays as it is."""
        seen = bench.now()
        moved = explanation_of(seen, bench.uploads, key).intervene(body.codes)
        return Intervened(
            version=seen.version, **dict(sum_of(moved.after)), changed=moved.changed, shifts=list(moved.shifts)
        )

    @router.get("/photos/{key}/where", operation_id="photo_where")
    def where(key: str, concept: Annotated[str, Query(max_length=200)]) -> ConceptPlace:
        """Map of a concept in the photo, if the encoder can make one."""
        seen = bench.now()
        return ConceptPlace(version=seen.version, **bench.places.of(seen, key, concept))

    @router.post("/uploads", operation_id="upload_photo")
    async def upload(
        request: Request, filename: Annotated[str, Header(alias="X-File-Name", max_length=2000)] = ""
    ) -> Uploaded:
        """A photo as the body of the request; it is kept in memory alone. Its id works wherever a photo's does."""
        content = await request.body()
        kept = await run_in_threadpool(bench.uploads.add, content, visible(unquote(filename))[:200])
        return Uploaded(id=kept.id, name=kept.name)

    return router


class _Found:
    """The rows of the last questions, so that a next page costs nothing."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._kept: Recent[Wish, tuple[Filtered, np.ndarray]] = Recent(KEPT)

    def rows(self, seen: SeenModel, query: PhotoQuery) -> tuple[Filtered, np.ndarray]:
        wish = query.wish(self.bench)
        if "test" in wish.splits:
            self.bench.look_at_test(f"wall {seen.version}")
        known = self._kept.get(wish)
        if known is not None and known[0].seen is seen:
            return known
        filtered = Filtered(seen, wish)
        return self._kept.put(wish, (filtered, filtered.rows()))


def _before(rows: np.ndarray, row: int) -> int:
    """The position just before that of a row; the first one where the row is not among these."""
    found = np.flatnonzero(rows == row)
    return max(int(found[0]) - 1, 0) if len(found) else 0


def photos_csv(seen: SeenModel, rows: np.ndarray) -> str:
    """These photos as CSV, texts as inert as a spreadsheet lets them be."""
    paths = seen.photos.store.paths
    facts = ({**dict(one), "path": paths[one.row], "confidence": f"{one.confidence:.6f}"} for one in tiles(seen, rows))
    return csv_text(COLUMNS, ([one[column] for column in COLUMNS] for one in facts))


@dataclass(frozen=True, eq=False)
class Subject:
    """The photo that a page explains: a row of the store, or an uploaded photo. `embedding` (d,) is the encoder's."""

    id: str
    row: int | None
    name: str
    explanation: Explanation
    embedding: np.ndarray

    @classmethod
    def find(cls, seen: SeenModel, uploads: Uploads, key: str) -> Subject:
        """The photo that an id names: a row's number, or what a dropped photo was answered with."""
        why = explanation_of(seen, uploads, key)
        if key.startswith("u"):
            upload = uploads.get(key)
            return cls(key, None, upload.name, why, upload.embedding)
        row = seen.photos.row(key)
        return cls(key, row, seen.photos.name(row), why, np.asarray(seen.photos.store[row], np.float32))


def explanation_of(seen: SeenModel, uploads: Uploads, key: str) -> Explanation:
    """Explanation of the prediction of the photo that an id names."""
    if key.startswith("u"):
        return seen.model.explain(uploads.get(key).embedding)
    return seen.explain(seen.photos.row(key))


def photo_page(bench: Workbench, seen: SeenModel, key: str) -> Photo:
    """Data that a photo's page shows at first."""
    about = Subject.find(seen, bench.uploads, key)
    why, row = about.explanation, about.row
    said = {} if row is None else bench.corrections.of(row)
    answers: Any = {concept: answer for (kind, concept), answer in said.items() if kind == "concept"}
    truth = None if row is None or seen.truth[row] < 0 else seen.classes[seen.truth[row]]
    return Photo(
        version=seen.version,
        id=about.id,
        name=about.name,
        split=None if row is None else seen.photos.splits[seen.photos.split[row]] or None,
        truth=truth,
        **dict(sum_of(why)),
        in_play=len(why.contributions),
        active=[
            ActiveConcept(concept=name, code=float(code)) for name, code in zip(why.active, why.codes, strict=True)
        ],
        counterfactual=why.counterfactual(),
        mistake=_mistake(seen, why, truth),
        suggested=_suggested(seen, why),
        nearest=_nearest(seen, about),
        held=None if row is None else _held(bench, seen, row),
        answers=answers,
        corrected=said.get(("label", "")),
        left_out=("leave out", "") in said,
        corrects=row is not None and bool(seen.photos.open[row]),
    )


def _held(bench: Workbench, seen: SeenModel, row: int) -> HeldPrediction | None:
    """Held-out prediction of a photo, by the refit that was not trained on it; None if there is none."""
    found = bench.folds.of(seen, begin=False)
    place = np.zeros(0, np.int64) if found is None else np.flatnonzero(found.rows == row)
    if found is None or not len(place):
        return None
    name, sure = seen.classes[found.predicted[place[0]]], float(found.confidence[place[0]])
    return HeldPrediction(prediction=name, probability=sure)


def _nearest(seen: SeenModel, about: Subject) -> list[PhotoTile]:
    """The training photos most like this one, in the model's space, itself left out."""
    rows = seen.photos.training if len(seen.photos.training) else np.flatnonzero(seen.photos.open)
    place = seen.model.images(about.embedding[None]).span(0, 1)[0].numpy()
    cosines = seen.scores(place)[rows]
    if about.row is not None:
        cosines = np.where(rows == about.row, -2.0, cosines)
    best = np.argpartition(-cosines, min(NEAREST, len(rows) - 1))[: NEAREST + 1]
    best = best[np.argsort(-cosines[best], kind="stable")]
    best = best[cosines[best] > -2.0][:NEAREST]
    return tiles(seen, rows[best], cosines[best])


def _mistake(seen: SeenModel, why: Explanation, truth: str | None) -> MistakeFacts | None:
    if truth is None or str(why.prediction) == truth:
        return None
    mistake = why.mistake(truth, view=seen.view(), top=MISSING)
    return MistakeFacts(rank=mistake.rank, probability=mistake.probability, missing=list(mistake.missing or ()))


def _suggested(seen: SeenModel, why: Explanation) -> list[str]:
    """Concepts that are not active here and weigh most for the first classes: worth a slider."""
    first = np.argsort(-why.logits)[:3]
    weight = np.abs(seen.model.head.coef[first]).max(axis=0)
    weight[why.columns] = 0
    order = np.argsort(-weight, kind="stable")[:SUGGESTED]
    return [seen.model.names[column] for column in order if weight[column] > 0]
