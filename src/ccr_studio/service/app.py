"""The API as a web application: its paths, on any service, behind guards; every refusal in one form."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from html import escape
from typing import Annotated, Any, get_origin

from fastapi import APIRouter, Depends, FastAPI, File, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ccr
from ccr.errors import CCRError
from ccr.utils.texts import did_you_mean
from ccr_studio.service import answers
from ccr_studio.service.guards import Access, Guard, add_headers, problem
from ccr_studio.service.limits import Busy, Meters, NotReady, RequestLimits
from ccr_studio.service.service import SentFile, Service

#: Paths about the model begin so.
PREFIX = "/v1"
#: Responses of every path that refuse a request.
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": answers.ErrorAnswer, "description": "The request is not what it says it is."},
    401: {"model": answers.ErrorAnswer, "description": "The token is missing or wrong."},
    403: {"model": answers.ErrorAnswer, "description": "A page of another site asked."},
    408: {"model": answers.ErrorAnswer, "description": "The request did not arrive in time."},
    413: {"model": answers.ErrorAnswer, "description": "The request is too large."},
    421: {"model": answers.ErrorAnswer, "description": "The server is not called by this name."},
    422: {"model": answers.ErrorAnswer, "description": "Something in the request cannot be worked with."},
    503: {"model": answers.ErrorAnswer, "description": "Too much is waiting, or there is no model yet."},
}

TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
#: For the schema; the guards have looked at it before.
BEARER = Depends(HTTPBearer(auto_error=False, description="The token that the server was started with, if any."))

Photos = Annotated[list[UploadFile], File(description="One or more photos: JPEG, PNG, WebP, TIFF, ...")]
Classes = Annotated[answers.Top, Query(description="How many of the most probable classes to list.")]
Concepts = Annotated[answers.Top, Query(description="How many of the largest contributions to list.")]


async def known_arguments(connection: HTTPConnection) -> None:
    """Refuse arguments that a path does not have, in its address or its form, and those that are given twice: one that
    is misspelt must not be ignored."""
    route = connection.scope["route"]
    if not (isinstance(connection, Request) and isinstance(route, APIRoute)):
        return
    flat = route.dependant  # no dependency of ours has arguments of its own
    known = {name: field for field in flat.query_params for name in _names(field)}
    _check_arguments(connection.query_params.multi_items(), known, "of the address")
    if flat.body_params and "form" in connection.headers.get("content-type", "").lower():
        form = await connection.form()  # parsed already
        _check_arguments(form.multi_items(), {field.alias: field for field in flat.body_params}, "of the form")


def _names(field: Any) -> list[str]:
    """The arguments of a parameter: its own name, or the fields of a model that stands for many."""
    kind = field.field_info.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [item.alias or name for name, item in kind.model_fields.items()]
    return [field.alias]


def _check_arguments(given: Iterable[tuple[str, Any]], known: Mapping[str, Any], where: str) -> None:
    counts = Counter(name for name, _ in given)
    for name, count in counts.items():
        if name not in known:
            choices = f"it takes {', '.join(known)}" if known else "it takes none"
            raise CCRError(f"there is no argument {name[:200]!r} {where}{did_you_mean(name[:200], known)}: {choices}")
        if count > 1 and not _takes_many(known[name], name):
            raise CCRError(f"the argument {name!r} {where} is given {count} times: give it once")


def _takes_many(field: Any, name: str) -> bool:
    kind = field.field_info.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        kind = next(item.annotation for own, item in kind.model_fields.items() if name in (own, item.alias))
    return get_origin(kind) is list


class ParsedAside(APIRoute):
    """A route whose JSON is parsed in a thread, not in the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_aside(request: Request) -> Response:
            return await handle(_JsonAside(request.scope, request.receive))

        return handle_aside


class _JsonAside(Request):
    async def json(self) -> Any:
        return await run_in_threadpool(json.loads, await self.body())


def model_router(service: Service) -> APIRouter:
    """Predict, embed and explain, by whatever model the service has at the moment."""
    router = APIRouter(tags=["model"], responses=REFUSALS, dependencies=[BEARER], route_class=ParsedAside)

    @router.get("/model", operation_id="model_info")
    async def model_info() -> answers.ModelInfo:
        """The model that answers: its classes, concepts, encoder, and what was measured."""
        served = service.current()
        return answers.model_info(served.name, served.model, reads_photos=served.encoder is not None)

    @router.post("/predict", operation_id="predict_photos")
    async def predict(photos: Photos, classes: Classes = 5, concepts: Concepts = 5) -> answers.PhotoPredictions:
        """What each photo shows. A photo that cannot be read gets an `error`; if none can, the request does."""
        return await service.predict_photos(await _uploads(photos), classes=classes, concepts=concepts)

    @router.post("/predict/embeddings", operation_id="predict_embeddings")
    async def predict_embeddings(
        body: answers.EmbeddingsToPredict, classes: Classes = 5, concepts: Concepts = 0
    ) -> answers.EmbeddingPredictions:
        """The same for embeddings by the model's own encoder."""
        return await service.predict_embeddings(body.embeddings, classes=classes, concepts=concepts)

    @router.post("/embed", operation_id="embed_photos")
    async def embed(photos: Photos) -> answers.PhotoEmbeddings:
        """The photos' embeddings by the model's encoder."""
        return await service.embed_photos(await _uploads(photos))

    @router.post("/explain", operation_id="explain_photo")
    async def explain(
        photo: Annotated[UploadFile, File(description="One photo.")],
        against: Annotated[answers.ClassName | None, Form(description="Also say why not this class.")] = None,
        top: Annotated[answers.Top, Form(description="How many contributions to list.")] = 10,
    ) -> answers.ExplanationAnswer:
        """Why the photo is predicted as it is: a sum of concepts, a contrast, and what would change it."""
        (upload,) = await _uploads([photo])
        return await service.explain_photo(upload, against=against, top=top)

    @router.post("/explain/embedding", operation_id="explain_embedding")
    async def explain_embedding(body: answers.EmbeddingToExplain) -> answers.ExplanationAnswer:
        """The same for an embedding by the model's own encoder."""
        return await service.explain_embedding(body.embedding, against=body.against, top=body.top)

    return router


def operations_router(service: Service) -> APIRouter:
    """Health, for whoever restarts servers, and metrics, for whoever watches them."""
    router = APIRouter(tags=["operations"], responses=REFUSALS)

    @router.head("/health", include_in_schema=False)
    @router.get("/health", operation_id="health")
    async def health() -> answers.Health:
        """Whether there is a model that answers. It needs no token."""
        return answers.Health(status="ok", model=service.current().name, waiting=service.batcher.waiting)

    @router.get("/metrics", operation_id="metrics", response_model=None, responses=TEXT)
    async def metrics() -> PlainTextResponse:
        """Counters in Prometheus' text format."""
        return PlainTextResponse(service.meters.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router


def home_router(service: Service) -> APIRouter:
    """The page that a browser shows: what the server answers, and how to ask."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def home(request: Request) -> HTMLResponse:
        """What this server answers."""
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(_home(service, request.app.openapi()["paths"], address))

    return router


def _plain(about: Mapping[str, Any]) -> str:
    """What a call answers, without the marks of Markdown, as HTML."""
    return escape(about.get("description", "").replace("`", ""))


def _home(service: Service, paths: Mapping[str, Any], address: str) -> str:
    rows = [
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td><td>{_plain(about)}</td></tr>"
        for path, methods in paths.items()
        for method, about in methods.items()
    ]
    model = service.current()
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>ccr: {escape(model.name)}</title>"
        f"<h1>{escape(model.name)}</h1><p>This server predicts photos and says why: every prediction is a short, exact "
        f"sum of named concepts. It is asked by programs, for example</p><pre>curl -F photo=@photo.jpg "
        f"{escape(address)}{PREFIX}/explain</pre><table>{''.join(rows)}</table><p>The full description, for tools: "
        '<a href="openapi.json">openapi.json</a>. For people there is <code>ccr studio</code>.</p></html>'
    )


async def _uploads(files: list[UploadFile]) -> list[SentFile]:
    return [
        SentFile(file.filename or f"photo {number}", await file.read()) for number, file in enumerate(files, start=1)
    ]


log = logging.getLogger(__name__)


def create_app(service: Service, *, access: Access, root_path: str = "", routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The typed JSON API over a service, guarded.

    Parameters
    ----------
    service : answers; it is closed when the application ends.
    access : who may ask.
    root_path : where a proxy shows the server, such as /ccr.
    routers : further paths behind the same guards.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="ccr",
        version=ccr.__version__,
        summary="Image classifiers whose every prediction is a short, exact sum of named concepts.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    strict = [Depends(known_arguments)]
    app.include_router(operations_router(service), dependencies=strict)
    app.include_router(model_router(service), prefix=PREFIX, dependencies=strict)
    for router in (*routers, home_router(service)):  # the studio has a page of its own at /
        app.include_router(router, dependencies=strict)
    answer_in_words(app)
    guard(app, access=access, limits=service.limits, meters=service.meters, root_path=root_path)
    return app


def guard(app: FastAPI, *, access: Access, limits: RequestLimits, meters: Meters, root_path: str = "") -> None:
    """Put an application behind its guards, and count what it is asked; those added last stand first.

    Our own mistakes are answered by 500, before all of these, so with headers of their own.
    """
    app.state.meters = meters
    app.add_exception_handler(Exception, _broken_for(access.policy))
    app.add_middleware(Guard, access=access, limits=limits, meters=meters)
    app.add_middleware(Counted, meters=meters)
    app.add_middleware(Rooted, root_path=root_path)


def answer_in_words(app: FastAPI) -> None:
    """Make every error `{"error": message}`: refused input 4xx, too much at a time 503."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Busy, _later)
    app.add_exception_handler(NotReady, _later)
    app.add_exception_handler(CCRError, _refused)


class Counted:
    """An ASGI application whose requests are counted and timed, by route and status."""

    def __init__(self, app: ASGIApp, *, meters: Meters) -> None:
        self.app, self.meters = app, meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            # The route, not the path: those that people make up would be series without end.
            route = getattr(scope.get("route"), "name", "other")
            self.meters.requests.labels(route, str(status)).inc()
            self.meters.seconds.labels(route).observe(time.perf_counter() - started)


class Rooted:
    """An ASGI application that a proxy shows below a path, which the proxy may take away from requests or leave."""

    def __init__(self, app: ASGIApp, *, root_path: str = "") -> None:
        self.app, self.root = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.root and scope["type"] in ("http", "websocket"):
            path = scope["path"]
            below = path == self.root or path.startswith(f"{self.root}/")
            scope = {**scope, "root_path": self.root, "path": path if below else self.root + path}
        await self.app(scope, receive, send)


async def _invalid(_: Request, error: Any) -> JSONResponse:
    # Without what was sent: it may be large, or hold what JSON cannot.
    found = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()[:5]]
    return problem(422, "; ".join(found)[:2000])


async def _http(_: Request, error: Any) -> JSONResponse:
    words = {404: "there is no such path: see /openapi.json", 405: "this path takes another method: see /openapi.json"}
    return problem(error.status_code, words.get(error.status_code, str(error.detail)), headers=error.headers)


async def _later(_: Request, error: Exception) -> JSONResponse:
    return problem(503, str(error), headers={"Retry-After": "1"})


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return problem(422, str(error))


def _broken_for(policy: str) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def broken(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        answer = problem(500, "something went wrong inside the server; the reason is in its log")
        add_headers(answer.headers, policy)
        return answer

    return broken
