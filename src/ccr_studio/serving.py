"""Serving: a workbench opened on a store and a model, as a web application (one page, its scripts, and the API, behind
guards), on a port or inside a notebook."""

from __future__ import annotations

import hashlib
import html
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ccr
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.encoders import load_encoder
from ccr.encoders.assets import cache_folder
from ccr.encoders.registry import check_named
from ccr.errors import CCRError, MissingExtraError, WriteError
from ccr.io.files import check_writable, lock
from ccr.io.remote import AnyPath, Place
from ccr.model import ConceptModel
from ccr.review.decisions import Policy
from ccr.utils.processes import OnProgress, no_progress
from ccr_studio.api.bench import bench_router
from ccr_studio.api.concepts import concepts_router
from ccr_studio.api.photos import photos_router
from ccr_studio.api.review import review_router
from ccr_studio.api.views import views_router
from ccr_studio.photos import Photos
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import CUT_OFF, SIGN_IN, Access, access_for, problem
from ccr_studio.service.limits import NotReady, RequestLimits
from ccr_studio.service.runner import checked_root, listen, run, server_of, url_of
from ccr_studio.service.service import Served, Service
from ccr_studio.work.session import SESSION, session_folder
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
LOCAL = "127.0.0.1"
#: Seconds for the first page alone, before the encoder and the process that refits are loaded in the background.
HEAD_START = 1.5


def _beside(store: EmbeddingStore) -> Path:
    """Folder of models that are saved under a name alone: beside the store, or, of a store at a URL, here."""
    folder = store.path.resolve().parent
    return Path.cwd() if isinstance(folder, Place) else folder


def _sessions_beside(store: EmbeddingStore) -> AnyPath:
    path = store.path.resolve()
    return path.with_name(f"{path.name}-studio")


def sessions_of(store: EmbeddingStore, given: Path | None = None) -> Path:
    """The folder of a store's sessions: as given, beside the store, or where that cannot be, in the user's cache."""
    if given is not None:
        return given
    beside = _sessions_beside(store)
    try:
        if isinstance(beside, Place):
            raise WriteError(f"{beside} is an object store, and a session is kept on disk")
        check_writable(beside)
        return beside
    except WriteError:
        if cached := _cached_sessions(beside):
            return cached[0]
        raise


def _cached_sessions(beside: AnyPath) -> list[Path]:
    """The folder in the user's cache for the sessions that cannot lie beside a store, if there is a cache."""
    with suppress(MissingExtraError):
        return [session_folder(cache_folder() / "studio", str(beside))]
    return []


def model_session(
    store: EmbeddingStore, model: ConceptModel, given: Path | None = None, *, read_only: bool = False
) -> Path:
    """The folder of the session on a store and a model; `read_only` finds one that others may write."""
    digest = hashlib.sha256("\0".join(model.names).encode(errors="surrogatepass"))
    for array in (model.concepts.embeddings, model.head.coef, model.head.intercept):
        digest.update(np.ascontiguousarray(array).tobytes())
    return _session(store, given, read_only, digest.hexdigest())


def own_session(store: EmbeddingStore, concepts: str, given: Path | None = None, *, read_only: bool = False) -> Path:
    """The folder of the session whose first model the studio fits itself; `concepts` tells lists apart."""
    return _session(store, given, read_only, "fitted here", concepts)


def _session(store: EmbeddingStore, given: Path | None, read_only: bool, *parts: str) -> Path:
    """Place of a written session; to look, of one that any studio wrote."""
    if not read_only:
        return session_folder(sessions_of(store, given), *parts)
    beside = _sessions_beside(store)
    cached = _cached_sessions(beside)
    places = [given] if given is not None else [*([] if isinstance(beside, Place) else [beside]), *cached]
    folders = [session_folder(place, *parts) for place in places] or [session_folder(Path.cwd(), *parts)]
    return next((folder for folder in folders if has_session(folder)), folders[0])


def has_session(folder: Path) -> bool:
    """Whether work was begun there."""
    return (folder / SESSION).is_file()


def first_model(store: EmbeddingStore, concepts: Concepts, tell: OnProgress = no_progress) -> ConceptModel:
    """A model with the defaults, fitted on the photos that a refit trains on too."""
    photos = Photos(store)
    if len(photos.training) < 2:
        raise CCRError(
            f"{store.path} has no labelled photos to train on: give a model, or embed a data set with labels"
        )
    from ccr.classifier import ConceptClassifier  # brings scikit-learn: a second that only training waits for

    train = store.select(rows=photos.training)
    watched = store.select(rows=photos.validation) if len(photos.validation) else None
    estimator = ConceptClassifier(concepts, random_state=0)
    validation = None if watched is None else (watched, watched.y)
    estimator.fit(
        train, validation=validation, callback=lambda epoch, epochs: tell(epoch.epoch, epochs, "fitting a model")
    )
    fitted: ConceptModel = estimator.model_
    return fitted


def open_workbench(
    store: EmbeddingStore,
    model: ConceptModel | None,
    folder: Path,
    *,
    models: Path | None = None,
    encoder: str | None = None,
    title: str = "",
    read_only: bool = False,
    fitted_here: bool = False,
    decides: bool = False,
    policy: Policy = "one",
    log: Path | None = None,
) -> Workbench:
    """A workbench on a session's folder, which no other studio may have open unless it only shows."""
    held = None if read_only else _locked(folder)
    bench = Workbench(
        store,
        None if has_session(folder) else model,
        folder=folder,
        models=_beside(store) if models is None else models,
        load_encoder=lambda: _encoder(store, encoder),
        title=title,
        read_only=read_only,
        fitted_here=fitted_here,
        decides=decides,
        policy=policy,
        log=log,
    )
    bench.lock = held
    return bench


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


def serve(
    bench: Workbench,
    *,
    host: str = LOCAL,
    port: int = 0,
    token: str | None = None,
    names: Iterable[str] = (),
    root_path: str = "",
    started: Callable[[str], None] | None = None,
) -> int:
    """Serve until Ctrl-C; `started` is told the address. How many requests were cut off in the end."""
    root = checked_root(root_path)
    access = replace(access_for(host, token, names=names, policy=POLICY + NOBODY), asks=True)
    listening = listen(host, port)
    address = url_of(listening, root) + "/"
    app = studio_app(bench, access=access, root_path=root)
    bench.now()  # what cannot be opened is said before anything is served
    loading = threading.Timer(HEAD_START, bench.start)
    loading.daemon = True
    loading.start()
    try:
        run(app, listening, limits=LIMITS, started=lambda: started(address) if started else None)
    finally:
        loading.cancel()
        bench.close()
    return int(app.state.meters.total(CUT_OFF))


@contextmanager
def opening_page(address: str, token: str) -> Iterator[Path]:
    """A page on this machine's disk, for its owner alone, that brings the token to the studio: in the address it would
    stand on the browser's command line, which every user of the machine can read. Removed afterwards."""
    action, shown = html.escape(address.rstrip("/") + SIGN_IN, quote=True), html.escape(token, quote=True)
    with tempfile.TemporaryDirectory(prefix="ccr-studio-") as folder:  # 0700
        path = Path(folder) / "open.html"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(
                f'<!doctype html><meta charset="utf-8"><title>Opening the studio</title><form method="post" '
                f'action="{action}"><input type="hidden" name="token" value="{shown}"><button>Open the studio</button>'
                "</form><script>document.forms[0].submit()</script>"
            )
        yield path


class Running:
    """A studio that runs beside a notebook; shown, it is a frame with the studio in it."""

    def __init__(self, bench: Workbench, *, port: int = 0, height: int = 900, url: str | None = None) -> None:
        access = access_for(LOCAL, None, policy=POLICY + NOTEBOOKS)
        listening = listen(LOCAL, port)
        self.url, self.height, self.bench = url or url_of(listening) + "/", height, bench
        bench.start()
        self._server = server_of(studio_app(bench, access=access), LIMITS, farewell=2)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def _repr_html_(self) -> str:
        address = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{address}" width="100%" height="{int(self.height)}" title="ccr studio" '
            'allow="clipboard-write"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noopener">Open in a tab</a></p>'
        )

    def model(self) -> ConceptModel:
        """The model as it is now in the studio."""
        return self.bench.now().model

    def close(self) -> None:
        """End the studio and what it started."""
        self._server.should_exit = True
        self._thread.join(10)
        self.bench.close()


def show(
    model: Any,
    store: EmbeddingStore | str | Path,
    *,
    port: int = 0,
    height: int = 900,
    url: str | None = None,
    session: str | Path | None = None,
    read_only: bool = False,
) -> Running:
    """The studio in a notebook: a frame to work in, whose `model()` is the model as it is then.

    Parameters
    ----------
    model : ConceptModel, ConceptClassifier, or the folder of a saved one.
    store : the photos, all rows of an embedding store, or its folder.
    url : where the browser finds the studio, if a proxy of the notebook server shows it elsewhere.
    session : the folder of sessions; by default beside the store.
    """
    opened = store if isinstance(store, EmbeddingStore) else EmbeddingStore.open(store)
    if len(opened) != len(EmbeddingStore.open(opened.path)):
        raise CCRError(
            f"the studio shows a whole store, got {len(opened)} rows of {opened.path}: give the store itself"
        )
    fitted = ConceptModel.load(model) if isinstance(model, (str, Path)) else getattr(model, "model_", model)
    given = None if session is None else Path(session)
    folder = model_session(opened, fitted, given, read_only=read_only)
    return Running(open_workbench(opened, fitted, folder, read_only=read_only), port=port, height=height, url=url)


def _encoder(store: EmbeddingStore, given: str | None) -> Any:
    """The store's own encoder, checked to be that one."""
    spec = given or store.encoder
    if spec is None:
        raise CCRError("the store does not say which encoder made it: start the studio with --encoder")
    if given is None:
        check_named(spec, str(store.path))
    encoder = load_encoder(spec)
    if store.fingerprint is not None:
        store.check_encoder(encoder.fingerprint)
    return encoder


def _locked(folder: Path) -> IO[bytes]:
    """A lock that lasts as long as this process: two studios must not write one session."""
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stream = (folder / "lock").open("ab")
    try:
        lock(
            stream.fileno(),
            f"another studio has the session in {folder} open: use that one, or start this one with --read-only or "
            "another --session",
        )
    except CCRError:
        stream.close()
        raise
    stream.truncate(0)
    stream.write(f"{os.getpid()}\n".encode())
    stream.flush()
    return stream
