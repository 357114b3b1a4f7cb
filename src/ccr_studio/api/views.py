"""Views of many photos: mistakes, the map, selections, and two models side by side."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, FiniteFloat

from ccr.errors import CCRError
from ccr.metrics import wilson_interval
from ccr_studio.api.common import (
    ClassCount,
    Held,
    PhotoTile,
    Row,
    Scope,
    Sum,
    VersionedAnswer,
    most_common,
    sum_of,
    tile,
    tiles,
)
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import Strict
from ccr_studio.service.app import REFUSALS, ParsedAside
from ccr_studio.work.session import HONEST
from ccr_studio.work.workbench import Workbench, step_words

#: Classes of a matrix; of more, those with most errors are shown. Confused pairs, photos and concepts of a cell, and
#: concepts that set a selection apart.
MOST_CLASSES, PAIRS, PHOTOS, CONCEPTS, APART = 40, 10, 60, 8, 12

Name = Annotated[str, Query(max_length=200)]
Offset = Annotated[int, Query(ge=0, le=2**40)]
Limit = Annotated[int, Query(ge=0, le=500)]
Colour = Literal["class", "predicted", "right", "split", "concept"]
#: Photos by who is right.
Group = Literal["differ", "first", "second", "neither", "both"]


class SpokenTerm(BaseModel):
    """Mean contribution of a concept over the photos of a cell, and the share of them that show it."""

    concept: str
    contribution: float
    share: float


class ConfusedPair(BaseModel):
    """One class taken for another."""

    truth: str
    predicted: str
    errors: int
    of: int


class Matrix(VersionedAnswer):
    """The confusion matrix: counts[true][predicted]."""

    scope: str
    n: int
    right: int
    accuracy: float | None
    interval: list[float] | None
    classes: list[str]
    left_out: int = Field(description="Classes that are not shown because there are many.")
    counts: list[list[int]]
    confused: list[ConfusedPair]


class Spoken(BaseModel):
    """Mean contributions to the difference of two classes' logits, or to one class's own logit."""

    bias: float
    spoke_for: list[SpokenTerm]
    spoke_against: list[SpokenTerm]
    difference: float | None


class Cell(VersionedAnswer, Spoken):
    """One cell of the confusion matrix."""

    truth: str
    predicted: str
    n: int
    photos: list[PhotoTile]


class MapState(VersionedAnswer):
    """Whether the map is there."""

    state: Literal["computing", "ready"]
    method: Literal["umap", "pca"]
    why_not: str | None = Field(description="Why UMAP, though it is installed, did not lay out this map.")
    photos: int


class Lasso(Strict):
    """Corners of an outline on the map, in its coordinates from 0 to 1."""

    corners: list[tuple[FiniteFloat, FiniteFloat]] = Field(min_length=3, max_length=2000)


class Rows(Strict):
    """Photos by their rows."""

    rows: list[Row] = Field(min_length=1, max_length=1_000_000)


class ShareInOut(BaseModel):
    """The share of photos inside and outside a selection that show a concept."""

    concept: str
    inside: float
    outside: float


class PhotoSelection(VersionedAnswer):
    """A selection of photos, and what sets it apart."""

    id: str
    n: int
    right: int
    labelled: int
    concepts: list[ShareInOut]
    classes: list[ClassCount]


class ModelChoice(BaseModel):
    """A model to compare with."""

    id: str
    words: str
    flattered: bool = Field(description="It may have been trained on the validation photos.")


class Models(VersionedAnswer):
    """The models to compare with."""

    models: list[ModelChoice]


class PairTile(PhotoTile):
    """A photo, and what another model says of it."""

    other: str
    other_confidence: float


class Differences(VersionedAnswer):
    """Two models on the same photos."""

    other: str
    n: int
    accuracy: list[float | None]
    intervals: list[list[float] | None]
    groups: dict[str, int]
    total: int
    photos: list[PairTile]


class Beside(VersionedAnswer):
    """Both models' sums for one photo, and the concepts that both find in it."""

    other: str
    photo: PhotoTile
    first: Sum
    second: Sum
    shared: list[str]
    overlap: float | None


def views_router(bench: Workbench) -> APIRouter:
    """Routes that look at many photos at once."""
    router = APIRouter(tags=["views"], responses=REFUSALS, route_class=ParsedAside)

    @router.get("/mistakes", operation_id="mistakes")
    def mistakes(scope: Scope = "validation", held: Held = False) -> Matrix:
        """The confusion matrix."""
        return matrix(_counted(bench, scope, "mistakes", held=held), scope)

    @router.get("/mistakes/cell", operation_id="mistakes_cell")
    def mistakes_cell(truth: Name, predicted: Name, scope: Scope = "validation", held: Held = False) -> Cell:
        """The photos of one cell, and what spoke for and against."""
        return cell(_counted(bench, scope, "mistakes", held=held), scope, truth, predicted)

    @router.get("/map", operation_id="map")
    def map_state() -> MapState:
        """Whether the map is there; asking begins it."""
        ready = bench.layout.places() is not None
        return MapState(
            version=bench.now().version,
            state="ready" if ready else "computing",
            method=bench.layout.method,
            why_not=bench.layout.why_not,
            photos=len(bench.photos),
        )

    @router.get("/map/places", operation_id="map_places", response_class=Response)
    def map_places() -> Response:
        """Places from 0 to 65,535 as little-endian 16-bit x, y, x, y, ... in the order of rows."""
        places = np.round(bench.layout.wait() * 65535).astype("<u2")
        return Response(places.tobytes(), media_type="application/octet-stream")

    @router.get("/map/colours", operation_id="map_colours", response_class=Response)
    def map_colours(by: Colour = "class", concept: Name = "", held: Held = False) -> Response:
        """A little-endian float for each row: a number of `classes` or `splits` (-1: none), 0 or 1, or a value.

        Test photos are NaN, which is not shown."""
        seen = bench.shown(held=held)
        values = _colours(seen, by, concept).astype("<f4")
        values[~seen.photos.open] = np.nan
        headers = {"X-Model-Version": seen.version}
        return Response(values.tobytes(), media_type="application/octet-stream", headers=headers)

    @router.post("/map/lasso", operation_id="map_lasso")
    def lasso(body: Lasso) -> PhotoSelection:
        """The photos inside an outline, kept as a selection; test photos are left out."""
        inside = bench.layout.inside(np.array(body.corners, np.float64))
        return _selection(bench, bench.selections.add(inside[bench.photos.open[inside]]))

    @router.post("/selections", operation_id="select_photos")
    def select(body: Rows) -> PhotoSelection:
        """Keep a set of photos under an id."""
        return _selection(bench, bench.selections.add(body.rows))

    @router.get("/selections/{key}", operation_id="selection")
    def selection(key: str, held: Held = False) -> PhotoSelection:
        """A set of photos, and the concepts that set it apart."""
        return set_apart(bench.shown(held=held), key, bench.selections.get(key))

    @router.get("/models", operation_id="models")
    def models() -> Models:
        """Models to compare with: the steps of the session, and what was saved."""
        seen, _, session = bench.snapshot()
        named = {
            str(step.id): f"step {at}: {step_words(step)}" if at else step_words(step)
            for at, step in enumerate(session.steps)
        }
        if bench.honest() is not None:
            named[HONEST] = f"{step_words(session.steps[0])}, fitted again on training photos alone"
        named |= {f"saved:{name}": f"saved: {name}" for name in bench.saved()}
        found = [ModelChoice(id=id_, words=words, flattered=session.flattered(id_)) for id_, words in named.items()]
        return Models(version=seen.version, models=found)

    @router.get("/differences", operation_id="differences")
    def differences(
        other: Name, scope: Scope = "shown", group: Group = "differ", offset: Offset = 0, limit: Limit = 60
    ) -> Differences:
        """Photos on which the model differs from another one, surest first."""
        return differing(_counted(bench, scope, "compare"), bench.at(other), scope, group, offset, limit)

    @router.get("/differences/{row}", operation_id="beside")
    def one_beside(row: int, other: Name) -> Beside:
        """Both models' sums for a photo."""
        return beside(bench.now(), bench.at(other), bench.photos.check_row(row))

    return router


def matrix(seen: SeenModel, scope: str) -> Matrix:
    """The confusion matrix of a scope; of many classes, those with most errors."""
    rows, size = seen.rows(scope), len(seen.classes)
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (seen.truth[rows], seen.predicted[rows]), 1)
    right = np.diag(counts)
    errors = counts.sum(axis=0) + counts.sum(axis=1) - 2 * right
    shown = np.arange(size)
    if size > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[:MOST_CLASSES])
    is_right = seen.right[rows]
    return Matrix(
        version=seen.version,
        scope=scope,
        n=len(rows),
        right=int(right.sum()),
        accuracy=share_of(is_right),
        interval=interval_of(is_right),
        classes=[seen.classes[number] for number in shown],
        left_out=size - len(shown),
        counts=counts[np.ix_(shown, shown)].tolist(),
        confused=_confused(seen, counts),
    )


def cell(seen: SeenModel, scope: str, truth: str, predicted: str) -> Cell:
    """The photos of one cell, and what spoke for the prediction and for the truth, on average."""
    numbers = seen.number(truth), seen.number(predicted)
    rows = seen.rows(scope)
    inside = rows[(seen.truth[rows] == numbers[0]) & (seen.predicted[rows] == numbers[1])]
    inside = inside[np.argsort(-seen.confidence[inside], kind="stable")]
    return Cell(
        version=seen.version,
        truth=truth,
        predicted=predicted,
        n=len(inside),
        photos=tiles(seen, inside[:PHOTOS]),
        **dict(_spoken(seen, inside, *numbers)),
    )


def set_apart(seen: SeenModel, key: str, rows: np.ndarray) -> PhotoSelection:
    """The concepts and classes that are more, or less, frequent in these photos than in the others."""
    inside = np.zeros(len(seen.photos), bool)
    inside[rows] = True
    shares = [_shares(seen, mask) for mask in (inside, seen.photos.open & ~inside)]
    difference = shares[0] - shares[1]
    order = np.argsort(-np.abs(difference), kind="stable")[:APART]
    known = seen.truth[rows][seen.truth[rows] >= 0]
    return PhotoSelection(
        version=seen.version,
        id=key,
        n=len(rows),
        right=int(seen.right[rows].sum()),
        labelled=len(known),
        concepts=[
            ShareInOut(concept=seen.model.names[i], inside=float(shares[0][i]), outside=float(shares[1][i]))
            for i in order
            if difference[i] != 0
        ],
        classes=most_common(seen, known),
    )


def differing(first: SeenModel, second: SeenModel, scope: str, group: Group, offset: int, limit: int) -> Differences:
    """Photos by who is right; those on which the models differ come surest first."""
    rows = first.rows(scope)
    own, other = (np.array(one.classes)[one.predicted[rows]] for one in (first, second))
    truth = np.array(first.classes)[first.truth[rows]]
    right, theirs = own == truth, other == truth
    masks: dict[Group, np.ndarray] = {
        "differ": own != other,
        "first": right & ~theirs,
        "second": ~right & theirs,
        "neither": ~right & ~theirs,
        "both": right & theirs,
    }
    chosen = np.flatnonzero(masks[group])
    sure = np.maximum(first.confidence[rows[chosen]], second.confidence[rows[chosen]])
    order = np.lexsort((-sure, own[chosen] == other[chosen]))
    shown = rows[chosen[order][offset : offset + limit]]
    return Differences(
        version=first.version,
        other=second.version,
        n=len(rows),
        accuracy=[share_of(right), share_of(theirs)],
        intervals=[interval_of(right), interval_of(theirs)],
        groups={name: int(mask.sum()) for name, mask in masks.items()},
        total=len(chosen),
        photos=[_pair(first, second, row) for row in shown],
    )


def beside(first: SeenModel, second: SeenModel, row: int) -> Beside:
    """Both models' sums for a photo."""
    one, two = first.explain(row), second.explain(row)
    compared = one.compare(two) if str(one.prediction) in map(str, two.classes) else None
    return Beside(
        version=first.version,
        other=second.version,
        photo=tile(first, row),
        first=sum_of(one),
        second=sum_of(two),
        shared=sorted(set(one.active) & set(two.active)),
        overlap=None if compared is None else compared.overlap,
    )


def share_of(right: np.ndarray) -> float | None:
    """The share of photos that are predicted right; None of no photos."""
    return float(right.mean()) if len(right) else None


def interval_of(right: np.ndarray) -> list[float] | None:
    """The interval around that share."""
    return list(wilson_interval(int(right.sum()), len(right))) if len(right) else None


def _counted(bench: Workbench, scope: str, what: str, *, held: bool = False) -> SeenModel:
    """The model as it is now; a look at the test photos counts."""
    seen = bench.shown(held=held)
    if scope == "test":
        bench.look_at_test(f"{what} {seen.version}")
    return seen


def _selection(bench: Workbench, key: str) -> PhotoSelection:
    return set_apart(bench.now(), key, bench.selections.get(key))


def _colours(seen: SeenModel, by: str, concept: str) -> np.ndarray:
    if by == "concept":
        if not concept:
            raise CCRError("colouring by a concept needs its name: give concept=NAME")
        return seen.values(concept).copy()
    numbers = {"class": seen.truth, "predicted": seen.predicted, "split": seen.photos.split}
    if by in numbers:
        return numbers[by].astype(np.float32)
    return np.where(seen.truth >= 0, seen.right.astype(np.float32), -1.0)


def _confused(seen: SeenModel, counts: np.ndarray) -> list[ConfusedPair]:
    """The cells with most errors."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(place), len(counts)) for place in order]
    return [
        ConfusedPair(truth=seen.classes[t], predicted=seen.classes[p], errors=int(wrong[t, p]), of=int(counts[t].sum()))
        for t, p in pairs
        if wrong[t, p]
    ]


def _spoken(seen: SeenModel, rows: np.ndarray, truth: int, predicted: int) -> Spoken:
    """Mean contributions to the difference of the two classes' logits; of the diagonal, to the class's own logit."""
    head = seen.model.head
    weights = head.coef[predicted].astype(np.float64)
    bias = float(head.intercept[predicted])
    if truth != predicted:
        weights = weights - head.coef[truth]
        bias -= float(head.intercept[truth])
    if not len(rows):
        return Spoken(bias=bias, spoke_for=[], spoke_against=[], difference=None)
    codes = seen.codes[rows]
    means = np.asarray(codes.mean(axis=0)).ravel() * weights
    shares = np.asarray((codes != 0).mean(axis=0)).ravel()
    order = np.argsort(-np.abs(means), kind="stable")
    terms = [
        SpokenTerm(concept=seen.model.names[i], contribution=float(means[i]), share=float(shares[i]))
        for i in order
        if means[i] != 0
    ]
    return Spoken(
        bias=bias,
        spoke_for=[term for term in terms if term.contribution > 0][:CONCEPTS],
        spoke_against=[term for term in terms if term.contribution < 0][:CONCEPTS],
        difference=bias + float(means.sum()),
    )


def _shares(seen: SeenModel, mask: np.ndarray) -> np.ndarray:
    """The share of photos that show each concept (n,)."""
    rows = np.repeat(mask, np.diff(seen.codes.indptr))
    counts = np.bincount(seen.codes.indices[rows], minlength=seen.codes.shape[1])
    return counts / max(int(mask.sum()), 1)


def _pair(first: SeenModel, second: SeenModel, row: int) -> PairTile:
    theirs = tile(second, row)
    return PairTile(**dict(tile(first, row)), other=theirs.predicted, other_confidence=theirs.confidence)
