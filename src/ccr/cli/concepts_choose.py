"""`ccr concepts choose`: of many candidates the few that serve best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, print_json
from ccr.cli.common_data import chosen_store, note_mostly_generic, store_encoder


def choose(
    file: Annotated[Path, typer.Argument(help="Text file of candidates, one per line.")],
    out: Annotated[Path, typer.Option(help="Text file of the chosen ones, the most useful first.")],
    store: Annotated[
        Path | None, typer.Argument(help="Store with labels; only its training images are looked at.")
    ] = None,
    store_option: Annotated[Path | None, typer.Option("--store", help="The same; give one of the two.")] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="How many concepts. Default: as `ccr fit` alone, 5 for each class, from 64 to 1,024."),
    ] = None,
    per_class: Annotated[int | None, typer.Option(min=1, help="Instead: how many for each class.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Choose the concepts that cover every class, tell confusable classes apart and do not repeat each other.

    Among what is plausible: by the origins beside the list, a concept counts in full for the classes that it was
    proposed for and half where it only fits the domain. Greedy, with a guarantee: at least 63 % of the value of the
    best list of that size (docs/concepts.md). Concepts that the encoder hardly sees come last, and of near-duplicates
    one stays.

    Example: `ccr concepts choose candidates.txt --store photos-store --out concepts.txt --size 128`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab import embed_concepts, read_concepts
    from ccr.vocab.choose import check_number
    from ccr.vocab.classes import choose_on, usual_size
    from ccr.vocab.proposals import Origin, Proposal, Proposals, read_origins

    if size is not None and per_class is not None:
        raise typer.BadParameter("give --size or --per-class, not both")
    place = chosen_store(store, store_option)
    if place is None:
        raise typer.BadParameter("give the store whose photos choose: `ccr concepts choose FILE STORE`, or --store")
    names, origins, opened = read_concepts(file), read_origins(file), EmbeddingStore.open(place)
    check_number(len(names))
    classes = len(opened.classes)
    wanted = size or (usual_size(classes) if per_class is None else per_class * classes)
    used = store_encoder(opened, encoder, silent=as_json)
    by_hand = (Origin(None, "hand", "", str(file)),)
    proposals = Proposals(tuple(Proposal(name, origins.get(name, by_hand)) for name in names))
    with bar(silent=as_json) as tell:
        candidates = embed_concepts(names, used, tell=tell)
        rows = choose_on(opened, candidates, used, size=wanted, proposals=proposals, tell=tell)
    chosen = Proposals(tuple(proposals.items[row] for row in rows))
    chosen.write(out)
    if as_json:
        print_json({"out": str(out), "candidates": len(names), "asked": wanted, "concepts": chosen.names})
        return
    why = "the others repeat them" if len(rows) < len(names) else "there are no more"
    fewer = f" (of {wanted} asked for: {why})" if len(rows) < wanted else ""
    console.print(f"{len(rows)} of {len(names)} concepts{fewer} in {escape(str(out))}; the first: ", end="")
    console.print(escape(", ".join(chosen.names[:8])))
    note_mostly_generic(chosen, opened.path, out, silent=False)
