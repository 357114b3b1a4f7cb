"""Routes of the wall, a photo, its thumbnail, and photos that were dropped on the page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import numpy as np
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from ccr.errors import CCRError
from ccr.utils.texts import visible
from ccr_studio import exports, photo
from ccr_studio.api.schemas import photos as schemas
from ccr_studio.api.schemas.common import Name, Row, Share
from ccr_studio.filters import ConceptRange, Filtered, Wish
from ccr_studio.seen import Seen
from ccr_studio.service.routes import REFUSALS, ParsedAside
from ccr_studio.service.schemas import Strict
from ccr_studio.thumbnails import SIZES
from ccr_studio.workbench import Workbench

Names = Annotated[list[Name], Query(max_length=500)]
#: A row never has another photo under the digest of its store.
FOREVER = "private, max-age=31536000, immutable"


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
    """Everything about photos."""
    router = APIRouter(tags=["photos"], responses=REFUSALS, route_class=ParsedAside)
    found = _Found(bench)

    @router.get("/photos", operation_id="list_photos")
    def photos(query: Wanted) -> schemas.PhotoPage:
        """The photos that the filters leave, a page at a time, with what each filter would leave."""
        seen = bench.now()
        filtered, rows = found.rows(seen, query)
        values = seen.values(query.by) if query.sort == "concept" and query.by else None
        offset = query.offset if query.around is None else _before(rows, query.around)
        page = rows[offset : offset + query.limit]
        tiles: list[Any] = [photo.tile(seen, int(row)) for row in page]
        if values is not None:
            tiles = [{**one, "value": float(values[row])} for one, row in zip(tiles, page, strict=True)]
        counts: Any = asdict(filtered.counts()) if query.counts else None
        return schemas.PhotoPage(version=seen.version, total=len(rows), offset=offset, photos=tiles, counts=counts)

    @router.get("/photos.csv", operation_id="export_photos", response_class=PlainTextResponse)
    def photos_csv(query: Wanted) -> Response:
        """All photos that the filters leave, as CSV."""
        seen = bench.now()
        text = exports.photos_csv(seen, found.rows(seen, query)[1])
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
    def one_photo(key: str) -> schemas.Photo:
        """A photo's prediction as a sum, what would change it, and the training photos like it."""
        seen = bench.now()
        facts = photo.photo_facts(seen, photo.subject(seen, bench.uploads, key))
        return schemas.Photo(version=seen.version, **facts)

    @router.get("/photos/{key}/contrast", operation_id="photo_contrast")
    def contrast(key: str, other: Annotated[str, Query(max_length=200)]) -> schemas.ContrastAnswer:
        """Why the predicted class and not another."""
        seen = bench.now()
        found = photo.subject(seen, bench.uploads, key).explanation.contrast(other)
        return schemas.ContrastAnswer(version=seen.version, **found.to_dict())

    @router.post("/photos/{key}/intervene", operation_id="photo_intervene")
    def intervene(key: str, body: schemas.Codes) -> schemas.Intervention:
        """The prediction with entries of the code set by hand; the model stays as it is."""
        seen = bench.now()
        moved = photo.intervened(photo.subject(seen, bench.uploads, key), body.codes)
        return schemas.Intervention(version=seen.version, **moved)

    @router.get("/photos/{key}/where", operation_id="photo_where")
    def where(key: str, concept: Annotated[str, Query(max_length=200)]) -> schemas.Where:
        """Where in the photo a concept is, if the encoder can say."""
        seen = bench.now()
        return schemas.Where(version=seen.version, **bench.places.of(seen, key, concept))

    @router.post("/uploads", operation_id="upload_photo")
    async def upload(
        request: Request, filename: Annotated[str, Header(alias="X-File-Name", max_length=2000)] = ""
    ) -> schemas.UploadInfo:
        """A photo as the body of the request; it is kept in memory alone. Its id works wherever a photo's does."""
        content = await request.body()
        name = visible(unquote(filename))[:200]
        kept = await in_thread(bench.uploads.add, content, name)
        return schemas.UploadInfo(id=kept.id, name=kept.name)

    return router


class _Found:
    """The rows of the last questions, so that a next page costs nothing."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._kept: dict[tuple[str, Wish], tuple[Filtered, np.ndarray]] = {}

    def rows(self, seen: Seen, query: PhotoQuery) -> tuple[Filtered, np.ndarray]:
        wish = query.wish(self.bench)
        if "test" in wish.splits:
            self.bench.look_at_test(f"wall {seen.version}")
        key = (seen.version, wish)
        kept = self._kept.get(key)
        if kept is None:
            filtered = Filtered(seen, wish)
            kept = self._kept[key] = (filtered, filtered.rows())
            for old in list(self._kept)[:-16]:
                self._kept.pop(old, None)
        return kept


def _before(rows: np.ndarray, row: int) -> int:
    """The position just before that of a row; the first one where the row is not among these."""
    found = np.flatnonzero(rows == row)
    return max(int(found[0]) - 1, 0) if len(found) else 0


def attachment(content: str, name: str, kind: str, version: str) -> Response:
    """A file to download."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Model-Version": version}
    return Response(content.encode(errors="replace"), media_type=kind, headers=headers)


async def in_thread(function: Any, *args: Any) -> Any:
    """What a slow function gives, while others are answered."""
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(function, *args)
