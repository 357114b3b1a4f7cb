"""Routes of the mistakes, the map, selections, and two models side by side."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Response

from ccr.errors import CCRError
from ccr_studio import differences, mistakes
from ccr_studio.api.schemas import views as schemas
from ccr_studio.api.schemas.common import Scope
from ccr_studio.seen import Seen
from ccr_studio.selections import set_apart
from ccr_studio.service.routes import REFUSALS, ParsedAside
from ccr_studio.session import HONEST
from ccr_studio.workbench import Workbench, step_words

Name = Annotated[str, Query(max_length=200)]
Offset = Annotated[int, Query(ge=0, le=2**40)]
Limit = Annotated[int, Query(ge=0, le=500)]
Colour = Literal["class", "predicted", "right", "split", "concept"]


def views_router(bench: Workbench) -> APIRouter:
    """Everything that looks at many photos at once."""
    router = APIRouter(tags=["views"], responses=REFUSALS, route_class=ParsedAside)

    @router.get("/mistakes", operation_id="mistakes")
    def matrix(scope: Scope = "validation") -> schemas.Matrix:
        """The confusion matrix."""
        seen = _counted(bench, scope, "mistakes")
        return schemas.Matrix(version=seen.version, **mistakes.matrix(seen, scope))

    @router.get("/mistakes/cell", operation_id="mistakes_cell")
    def cell(truth: Name, predicted: Name, scope: Scope = "validation") -> schemas.Cell:
        """The photos of one cell, and what spoke for and against."""
        seen = _counted(bench, scope, "mistakes")
        return schemas.Cell(version=seen.version, **mistakes.cell(seen, scope, truth, predicted))

    @router.get("/map", operation_id="map")
    def map_state() -> schemas.MapState:
        """Whether the map is there; asking begins it."""
        ready = bench.layout.places() is not None
        return schemas.MapState(
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
    def map_colours(by: Colour = "class", concept: Name = "") -> Response:
        """A little-endian float for each row: a number of `classes` or `splits` (-1: none), 0 or 1, or a value.

        Test photos are NaN, which is not shown."""
        seen = bench.now()
        values = _colours(seen, by, concept).astype("<f4")
        values[~seen.photos.open] = np.nan
        headers = {"X-Model-Version": seen.version}
        return Response(values.tobytes(), media_type="application/octet-stream", headers=headers)

    @router.post("/map/lasso", operation_id="map_lasso")
    def lasso(body: schemas.Lasso) -> schemas.Selection:
        """The photos inside an outline, kept as a selection; test photos are left out."""
        inside = bench.layout.inside(np.array(body.corners, np.float64))
        inside = inside[bench.photos.open[inside]]
        return _selection(bench, bench.selections.add(inside))

    @router.post("/selections", operation_id="select_photos")
    def select(body: schemas.Rows) -> schemas.Selection:
        """Keep a set of photos under an id."""
        return _selection(bench, bench.selections.add(body.rows))

    @router.get("/selections/{key}", operation_id="selection")
    def selection(key: str) -> schemas.Selection:
        """A set of photos, and the concepts that set it apart."""
        return _selection(bench, key)

    @router.get("/models", operation_id="models")
    def models() -> schemas.Models:
        """Models to compare with: the steps of the session, and what was saved."""
        seen, _, session = bench.snapshot()
        steps = [
            schemas.ModelChoice(id=str(step.id), words=f"step {at}: {step_words(step)}" if at else step_words(step))
            for at, step in enumerate(session.steps)
        ]
        if bench.honest() is not None:
            words = f"{step_words(session.steps[0])}, fitted again on training photos alone"
            steps.insert(1, schemas.ModelChoice(id=HONEST, words=words))
        saved = [schemas.ModelChoice(id=f"saved:{name}", words=f"saved: {name}") for name in bench.saved()]
        return schemas.Models(version=seen.version, models=[*steps, *saved])

    @router.get("/differences", operation_id="differences")
    def differ(
        other: Name,
        scope: Scope = "shown",
        group: Literal["differ", "first", "second", "neither", "both"] = "differ",
        offset: Offset = 0,
        limit: Limit = 60,
    ) -> schemas.Differences:
        """Where the model differs from another one, surest first."""
        seen, theirs = _counted(bench, scope, "compare"), bench.at(other)
        found = differences.differing(seen, theirs, scope, group, offset, limit)
        return schemas.Differences(version=seen.version, other=theirs.version, **found)

    @router.get("/differences/{row}", operation_id="beside")
    def beside(row: int, other: Name) -> schemas.Beside:
        """Both models' sums for a photo."""
        seen, theirs = bench.now(), bench.at(other)
        found = differences.beside(seen, theirs, bench.photos.check_row(row))
        return schemas.Beside(version=seen.version, other=theirs.version, **found)

    return router


def _counted(bench: Workbench, scope: str, what: str) -> Seen:
    """The model as it is now; a look at the test photos counts."""
    seen = bench.now()
    if scope == "test":
        bench.look_at_test(f"{what} {seen.version}")
    return seen


def _selection(bench: Workbench, key: str) -> schemas.Selection:
    seen = bench.now()
    return schemas.Selection(version=seen.version, id=key, **set_apart(seen, bench.selections.get(key)))


def _colours(seen: Seen, by: str, concept: str) -> np.ndarray:
    if by == "concept":
        if not concept:
            raise CCRError("colouring by a concept needs its name: give concept=NAME")
        return seen.values(concept).copy()
    numbers = {"class": seen.truth, "predicted": seen.predicted, "split": seen.photos.split}
    if by in numbers:
        return numbers[by].astype(np.float32)
    return np.where(seen.truth >= 0, seen.right.astype(np.float32), -1.0)
