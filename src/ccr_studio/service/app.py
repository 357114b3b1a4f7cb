"""App: routers behind guards, with every refusal in one form."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ccr
from ccr.errors import CCRError
from ccr_studio.service.guards import Access, Guard, add_headers, problem
from ccr_studio.service.limits import Busy, Limits, NotReady
from ccr_studio.service.meters import Meters, labels
from ccr_studio.service.routes import PREFIX, home_router, known_arguments, model_router, operations_router
from ccr_studio.service.service import Service

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
    app.include_router(home_router(service), dependencies=strict)
    app.include_router(operations_router(service), dependencies=strict)
    app.include_router(model_router(service), prefix=PREFIX, dependencies=strict)
    for router in routers:
        app.include_router(router, dependencies=strict)
    answer_in_words(app)
    guard(app, access=access, limits=service.limits, meters=service.meters, root_path=root_path)
    return app


def guard(app: FastAPI, *, access: Access, limits: Limits, meters: Meters, root_path: str = "") -> None:
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
            seconds = time.perf_counter() - started
            words = "Requests, by route and status."
            self.meters.count("ccr_requests_total", words, labels=labels(route=route, status=status))
            words = "Seconds until a request was answered."
            self.meters.observe("ccr_request_seconds", words, seconds, labels=labels(route=route))


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
