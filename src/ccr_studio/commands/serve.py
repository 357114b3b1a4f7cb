"""`ccr serve`: a model behind a typed JSON API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, console, note, print_json, show_requests
from ccr.cli.common_data import model_encoder
from ccr.utils.texts import counted

if TYPE_CHECKING:
    from ccr_studio.service.service import Served


def serve(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
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
    encoder: Annotated[str | None, typer.Option(help="Where the model's encoder is now, if it moved.")] = None,
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
    from ccr_studio.service.limits import Limits
    from ccr_studio.service.service import Service

    access = guards.access_for(host, token, names=allow_host or ())
    limits = Limits(
        request_bytes=int(megabytes * 2**20),
        pixels=int(megapixels * 1e6),
        photos=photos,
        seconds=seconds,
        waiting=waiting,
    )
    root = runner.checked_root(root_path)
    served = _ready(model, encoder, silent=as_json)
    service = Service(lambda: served, limits=limits)
    listening = runner.listen(host, port)
    url = runner.url_of(listening, root)
    show_requests(wanted=access_log)

    def started() -> None:
        if as_json:
            print_json({"url": url, "model": str(model), "openapi": f"{url}/openapi.json", "token": token is not None})
            return
        console.print(
            f"Serving {escape(served.name)} at {url} (Ctrl-C stops it); try:", highlight=False, soft_wrap=True
        )
        bearer = "-H 'Authorization: Bearer TOKEN' " if token else ""
        console.print(f"  curl {bearer}-F photos=@PHOTO {url}/v1/predict", highlight=False, soft_wrap=True)

    runner.run(
        app.create_app(service, access=access, root_path=root),
        listening,
        limits=limits,
        access_log=access_log,
        started=started,
    )
    note(farewell(service.meters.total(guards.CUT_OFF)), silent=as_json)


def farewell(cut_off: int) -> str:
    """What is said of a server that stopped."""
    if not cut_off:
        return "stopped: every request that had begun is answered"
    return f"stopped: {counted(cut_off, 'request')} still under way got 503, every other that had begun is answered"


def _ready(folder: Path, spec: str | None, *, silent: bool) -> Served:
    """The model and its encoder, both used once, so that the first request does not wait for them."""
    import numpy as np
    from PIL import Image

    from ccr import kernels
    from ccr.model import ConceptModel
    from ccr_studio.service.service import Served

    loaded = ConceptModel.load(folder)
    kernels.warm_up(lambda line: note(line, silent=silent), group="coding", elsewhere=True)
    if spec is None and loaded.provenance.encoder is None:
        note("the model does not know its encoder, so it answers about embeddings alone; --encoder names one")
        loaded.predict(np.ones((1, loaded.dimension)))
        return Served(folder.name, loaded)
    encoder = model_encoder(loaded, spec, silent=silent)
    loaded.predict(encoder.embed_images([Image.new("RGB", (64, 64), "grey")]))
    return Served(folder.name, loaded, encoder)
