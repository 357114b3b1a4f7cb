"""`ccr serve` and `ccr studio`, which `ccr` finds by the entry point `ccr.commands`."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import (
    Json,
    ModelEncoder,
    ModelFolder,
    StoreEncoder,
    console,
    fitting,
    note,
    print_json,
    show_requests,
)
from ccr.cli.common_data import load_concepts, model_encoder, propose_concepts
from ccr.errors import CCRError
from ccr.io.files import check_writable, read_regular

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.io.remote import AnyPath
    from ccr_studio.service.service import Served
    from ccr_studio.work.workbench import Workbench


def serve(
    model: ModelFolder,
    host: Annotated[
        str, typer.Option(help="Where to listen. Beyond this machine, such as 0.0.0.0, a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="CCR_TOKEN", help="Token that requests must carry, as `Authorization: Bearer TOKEN`."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name by which the server is called, as by a proxy; may be given several times."),
    ] = None,
    root_path: Annotated[str, typer.Option(help="Where a proxy shows the server, such as /ccr.")] = "",
    encoder: ModelEncoder = None,
    photos: Annotated[int, typer.Option(min=1, help="Most photos in one request.")] = 32,
    megabytes: Annotated[float, typer.Option(min=0.001, help="Largest request, in megabytes.")] = 64,
    megapixels: Annotated[float, typer.Option(min=0.001, max=178, help="Largest photo, in megapixels.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest wait for an answer, in seconds.")] = 30,
    waiting: Annotated[int, typer.Option(min=1, help="Most photos waiting for the encoder; more get 503.")] = 256,
    access_log: Annotated[bool, typer.Option(help="Print a line for each request, on stderr.")] = False,
    as_json: Json = False,
) -> None:
    """Answer requests about photos and embeddings: predictions, explanations, health, metrics.

    Photos of requests that come at the same time are embedded together. Ctrl-C or SIGTERM stops the server; what is
    under way is answered first. `GET /openapi.json` describes every path.

    Example: `ccr serve photos-model`, then `curl -F photos=@apple.jpg http://127.0.0.1:8000/v1/predict`

    For other machines: `CCR_TOKEN=... ccr serve photos-model --host 0.0.0.0`
    """
    from ccr_studio.service import app, guards, runner
    from ccr_studio.service.limits import RequestLimits
    from ccr_studio.service.service import Service

    access = guards.access_for(host, token, names=allow_host or ())
    limits = RequestLimits(
        request_bytes=int(megabytes * 2**20),
        pixels=int(megapixels * 1e6),
        photos=photos,
        seconds=seconds,
        waiting=waiting,
    )
    root = runner.checked_root(root_path)
    served = _ready(model, encoder)
    service = Service(lambda: served, limits=limits)
    listening = runner.listen(host, port)
    url = runner.url_of(listening, root)
    show_requests(wanted=access_log)

    def started() -> None:
        if as_json:
            print_json({"url": url, "model": str(model), "openapi": f"{url}/openapi.json", "token": token is not None})
            return
        console.print(f"Serving {escape(served.name)} at {url} (Ctrl-C stops it); try:", soft_wrap=True)
        bearer = "-H 'Authorization: Bearer TOKEN' " if token else ""
        console.print(f"  curl {bearer}-F photos=@PHOTO {url}/v1/predict", soft_wrap=True)

    runner.run(
        app.create_app(service, access=access, root_path=root),
        listening,
        limits=limits,
        access_log=access_log,
        token=token,
        started=started,
    )
    note(runner.farewell(service.meters.total(guards.CUT_OFF)))


def _ready(folder: Path, spec: str | None) -> Served:
    """The model and its encoder, both used once, so that the first request does not wait for them."""
    import numpy as np
    from PIL import Image

    from ccr import kernels
    from ccr.model import ConceptModel
    from ccr_studio.service.service import Served

    loaded = ConceptModel.load(folder)
    kernels.warm_up(note, group="coding", elsewhere=True)
    if spec is None and loaded.provenance.encoder is None:
        note("the model does not know its encoder, so it answers about embeddings alone; --encoder names one")
        loaded.predict(np.ones((1, loaded.dimension)))
        return Served(folder.name, loaded)
    encoder = model_encoder(loaded, spec)
    loaded.predict(encoder.embed_images([Image.new("RGB", (64, 64), "grey")]))
    return Served(folder.name, loaded, encoder)


def studio(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`.")],
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a model; it stays as it is. Default: one is fitted first.")
    ] = None,
    concepts: Annotated[
        Path | None,
        typer.Option(help="Without MODEL: text file with one concept per line. Default: proposed for the classes."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")] = 8642,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond this machine a token is required.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="CCR_TOKEN", help="Token that requests must carry; the browser asks once.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name of the server, such as a proxy's; may be repeated.")
    ] = None,
    root_path: Annotated[str, typer.Option(help="Where a proxy shows the studio, such as /studio.")] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show, and change nothing.")] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Show, take answers of reviewers, and change nothing else.")
    ] = False,
    policy: Annotated[
        str, typer.Option(help="How many reviewers must agree on a claim: one, two, or all that have answered.")
    ] = "one",
    log: Annotated[
        Path | None, typer.Option(help="Log of reviewers' answers, such as `ccr review` has. Default: in the session.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    session: Annotated[
        Path | None, typer.Option(help="Folder of sessions. Default: STORE-studio beside the store.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the images are now, if they moved.")] = None,
    encoder: StoreEncoder = None,
    as_json: Json = False,
) -> None:
    """Open a page in the browser that shows why the model says what it says, finds what is wrong with it, and repairs
    it: photos, mistakes, a map, concepts, and a bench to edit and refit on.

    Every step is saved at once: the same command continues where you left off. MODEL itself stays as it is; the bench
    saves new ones beside it. Ctrl-C ends the studio and all that it started.

    Example: `ccr studio ccr-demo/store ccr-demo/model`

    For others to look at: `CCR_TOKEN=$(openssl rand -hex 16) ccr studio STORE MODEL --host 0.0.0.0 --read-only`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.review.decisions import check_policy
    from ccr_studio import serving
    from ccr_studio.service import runner

    if model is not None and concepts is not None:
        raise typer.BadParameter("give MODEL or --concepts, not both: a model has its concepts already")
    check_policy(policy)
    opened, read_only = EmbeddingStore.open(store, data=data), read_only or review
    serving.access_for(host, token)  # refused before the work rather than after it
    if log is not None and (review or not read_only):
        check_writable(log)
    options = {"encoder": encoder, "read_only": read_only, "decides": review, "policy": policy, "log": log}
    bench = _workbench(opened, model, concepts, session, options)
    if bench.session.position > 0:
        note(f"going on where it was left: {bench.session.position} steps since it was opened")

    kept, ending = not read_only or serving.has_session(bench.folder), ExitStack()

    def started(url: str) -> None:
        if as_json:
            print_json({"url": url, "session": str(bench.folder) if kept else None})
        else:
            asked = "" if token is None else " (it asks for the token once)"
            console.print(f"The studio is at [bold]{escape(url)}[/bold]{asked}", soft_wrap=True)
            steps = f"Every step is kept in {escape(str(bench.folder))}"
            if read_only:
                folder = escape(str(bench.folder))
                steps = f"It only shows the session in {folder}" if kept else "It only shows, and keeps nothing"
            console.print(f"{steps}; Ctrl-C ends it", soft_wrap=True)
        if not no_browser:
            page = None if token is None else ending.enter_context(serving.opening_page(url, token))
            webbrowser.open(url if page is None else page.as_uri())

    with ending:
        cut_off = serving.serve(
            bench, host=host, port=port, token=token, names=allow_host or (), root_path=root_path, started=started
        )
    if cut_off:
        note(runner.farewell(cut_off))


def _workbench(
    store: EmbeddingStore,
    model: Path | None,
    concepts: Path | None,
    session: Path | None,
    options: dict[str, Any],
) -> Workbench:
    """On the model that was given, or on one that is fitted here, once; `options` are those of `open_workbench`."""
    from ccr import kernels
    from ccr.model import ConceptModel
    from ccr_studio import serving

    kernels.warm_up(note, group="coding", elsewhere=True)
    open_bench: Callable[..., Workbench] = partial(serving.open_workbench, store, **options)
    read_only, encoder = options["read_only"], options["encoder"]
    if model is not None:
        loaded = ConceptModel.load(model)
        folder = serving.model_session(store, loaded, session, read_only=read_only)
        return open_bench(loaded, folder, models=model.resolve().parent, title=_title(model))
    listed = "" if concepts is None else read_regular(concepts).decode("utf-8", "replace")
    folder, fitted = serving.own_session(store, listed, session, read_only=read_only), None
    if not serving.has_session(folder):
        if concepts is None and read_only:
            raise CCRError(
                "--read-only shows a model or a session, and there is none yet: give MODEL or --concepts, or start the "
                "studio once without --read-only"
            )
        if concepts is None:
            embedded = propose_concepts(store, folder / "concepts.txt", spec=encoder)
        else:
            embedded = load_concepts(store, concepts, spec=encoder)
        with fitting() as tell:
            fitted = serving.first_model(store, embedded, tell)
    return open_bench(fitted, folder, title=_title(store.path), fitted_here=True)


def _title(path: AnyPath) -> str:
    """The folder's name; one called model or store is named by the one it is in."""
    folder = path.resolve()
    return folder.parent.name if folder.name in ("model", "store") and folder.parent.name else folder.name


#: Commands, for the entry point.
COMMANDS = (serve, studio)
