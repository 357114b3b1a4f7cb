"""The studio as a web application: one page, its own scripts and styles, and the API, all behind guards."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ccr
from ccr_studio.api.bench import bench_router
from ccr_studio.api.concepts import concepts_router
from ccr_studio.api.photos import photos_router
from ccr_studio.api.review import review_router
from ccr_studio.api.views import views_router
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import Access, problem
from ccr_studio.service.limits import NotReady, RequestLimits
from ccr_studio.service.service import Served, Service
from ccr_studio.work.workbench import NameTaken, OtherStep, ReadOnly, Workbench

#: The page runs its own scripts and shows its own pictures, and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
)
#: Origins that may show the page in a frame: none; or notebooks of this machine.
NOBODY, NOTEBOOKS = "'none'", "http://127.0.0.1:* http://localhost:*"
PREFIX = "/api"
#: A report is made within this many seconds, and a photo has at most so many bytes.
LIMITS = RequestLimits(seconds=180.0, request_bytes=32 << 20, pixels=40_000_000)


class StudioService(Service):
    """Predict and explain by the model as it is now; ends what the workbench started."""

    def __init__(self, bench: Workbench) -> None:
        super().__init__(lambda: served_by(bench), limits=LIMITS)
        self.bench = bench

    def close(self) -> None:
        super().close()
        self.bench.close()


def served_by(bench: Workbench) -> Served:
    """The model as it is now, under a name that says which step it is."""
    seen, status = bench.now(), bench.words.status
    if status == "loading":
        raise NotReady("the encoder is still being loaded: try again in a moment")
    encoder = bench.words.encoder if status == "ready" else None
    return Served(f"{bench.title} (version {seen.version})", seen.model, encoder)


def studio_app(bench: Workbench, *, access: Access, root_path: str = "") -> FastAPI:
    """The application over a workbench, which it closes when it ends."""
    routers = [page_router(bench)]
    for make in (bench_router, photos_router, concepts_router, views_router, review_router):
        router = APIRouter(prefix=PREFIX)
        router.include_router(make(bench))
        routers.append(router)
    app = create_app(StudioService(bench), access=access, root_path=root_path, routers=routers)
    app.title = "ccr studio"
    app.add_exception_handler(ReadOnly, _read_only)
    app.add_exception_handler(NameTaken, _taken)
    app.add_exception_handler(OtherStep, _taken)
    app.add_middleware(QuietRefusals)
    app.mount("/static", StaticFiles(directory=Path(str(files("ccr_studio") / "static"))), name="static")
    return app


class QuietRefusals:
    """Answers refusals to the studio's own page (`X-Refusals: quiet`) with 200 and the status in `X-Refused`: a browser
    writes every 4xx into its console as an error, also those that the page expects and shows in words."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or Headers(scope=scope).get("x-refusals") != "quiet":
            await self.app(scope, receive, send)
            return

        async def quiet(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (403, 409, 422):
                MutableHeaders(scope=message)["X-Refused"] = str(message["status"])
                message = {**message, "status": 200}
            await send(message)

        await self.app(scope, receive, quiet)


def page_router(bench: Workbench) -> APIRouter:
    """The one page."""
    router = APIRouter(include_in_schema=False)
    source = (files("ccr_studio") / "templates" / "index.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True).from_string(source)

    @router.get("/", response_class=HTMLResponse)
    def index() -> HTMLResponse:
        return HTMLResponse(template.render(title=bench.title, release=ccr.__version__))

    return router


async def _taken(_: Request, error: Any) -> JSONResponse:
    return problem(409, str(error))


async def _read_only(_: Request, error: Any) -> JSONResponse:
    return problem(403, str(error))
