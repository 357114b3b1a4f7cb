"""`ccr concepts learn`: a concept from photos that show it and photos that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, note, print_json
from ccr.cli.common_data import store_encoder


def learn(
    name: Annotated[str, typer.Argument(help="What the concept is called, such as 'worn edge'.")],
    store: Annotated[Path, typer.Option(help="Store of similar photos, whose covariance sets the metric.")],
    shows: Annotated[list[Path], typer.Option(help="A photo, or a folder of photos, that show it; several times.")],
    lacks: Annotated[list[Path], typer.Option(help="A photo, or a folder of photos, that do not; several times.")],
    out: Annotated[Path, typer.Option(help="JSON file of the concept, for `ccr fit --learned FILE`.")],
    text: Annotated[bool, typer.Option(help="Pull it toward its name's text embedding when photos are few.")] = True,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Make a concept from a few photos that show it and a few that do not: for what words or the encoder cannot say.

    It is the direction that parts them in the images' metric; the leave-one-out error says how often a photo that was
    left out would have fallen on the wrong side. At least two photos of each kind; ten are better.

    Example: `ccr concepts learn "worn edge" --store parts-store --shows worn/ --lacks intact/ --out worn.json`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab.learned import learn_concept

    if not name.strip():
        raise typer.BadParameter(f"a concept needs a name, got {name!r}: give one such as 'worn edge'")
    opened = EmbeddingStore.open(store)
    used = store_encoder(opened, encoder, silent=as_json)
    with bar(silent=as_json) as tell:
        learned = learn_concept(name, shows, lacks, opened, used, text=text, tell=tell)
    learned.write(out)
    if as_json:
        print_json({"out": str(out), "name": name, "leave_one_out_error": learned.error, "wrong": list(learned.wrong)})
        return
    console.print(
        f"{escape(name)}: of the photos, each left out in turn, {learned.error:.0%} fall on the wrong side "
        f"(leave-one-out error); use it with --learned {escape(str(out))}"
    )
    for photo in learned.wrong[:10]:
        note(f"on the wrong side when left out: {photo}")
