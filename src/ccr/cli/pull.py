"""`ccr pull`: a model from a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, console, note, print_json


def pull(
    repository: Annotated[str, typer.Argument(help="OWNER/NAME on the hub.")],
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit. Default: the newest.")] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="HF_TOKEN", help="Access token. Default: that of `hf auth login`.", show_envvar=True),
    ] = None,
    cached: Annotated[bool, typer.Option("--cached", help="Use what was fetched before, without a network.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch a model: its two files alone, read as strictly as any model's; nothing from a hub is ever executed.

    Example: `ccr pull me/photos --out photos-model`, then `ccr explain photos-model PHOTO`
    """
    from ccr.models.concept_model import ConceptModel
    from ccr.models.hub import fetch
    from ccr.models.persist import check_target

    check_target(out)
    note(f"fetching {repository}", silent=as_json)
    model = ConceptModel.load(fetch(repository, revision=revision, token=token, local_files_only=cached))
    model.save(out)
    if as_json:
        found = {"classes": len(model.classes), "concepts": len(model.names), "encoder": model.provenance.encoder}
        print_json({"model": str(out), "repository": repository, **found})
        return
    console.print(
        f"{escape(str(out))}: {len(model.classes)} classes, {len(model.names)} concepts, encoder "
        f"{escape(str(model.provenance.encoder))}; try: ccr explain {escape(str(out))} IMAGE",
        highlight=False,
        soft_wrap=True,
    )
