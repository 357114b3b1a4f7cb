"""`ccr audit`: do refined concepts still see what their names say?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, print_json
from ccr.cli.common_data import split_of

if TYPE_CHECKING:
    from ccr.core.explain import Audit, ConceptDrift


def audit(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[
        Path | None, typer.Argument(help="Store: measure on its images, and list those gained and lost.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of concepts to show.")] = 20,
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test, else val, else everything.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show whether each concept still sees what its text sees, doubtful ones first.

    Its fidelity is the correlation of its scores with those of its own text, on the images of a store, or, without one,
    as measured on the training images. With a store also the images gained and lost: those that show the concept only
    by the model, or only by its text, at the same number of concepts per image.

    Example: `ccr audit photos-model photos-store --top 10`
    """
    from ccr.models.concept_model import ConceptModel

    if split is not None and store is None:
        raise typer.BadParameter(f"--split {split} is a part of a store: give the store, too")
    loaded = ConceptModel.load(model)
    if store is None:
        drift = loaded.audit()
    else:
        from ccr.data.store import EmbeddingStore

        drift = loaded.audit(split_of(EmbeddingStore.open(store), split, labelled=False)[1])
    if as_json:
        print_json({"model": str(model), **drift.to_dict(top=top)})
        return
    console.print(_table(drift, top))
    _legend(drift)


def _table(drift: Audit, top: int) -> Table:
    known = drift.fidelity
    said = (
        "fidelity unknown"
        if known is None or math.isnan(known.mean)
        else f"mean fidelity {known.mean:.2f}, worst {known.min:.2f}"
    )
    title = f"{len(drift.flagged)} of {len(drift.concepts)} concepts flagged; {said}"
    table = Table(title=title, title_justify="left")
    table.add_column("concept", overflow="fold")
    table.add_column("flags")
    for heading in ("fidelity", "images", "gained", "lost", "same") if drift.n else ("fidelity",):
        table.add_column(heading, justify="right")
    for item in drift.concepts[:top]:
        table.add_row(*_cells(item))
    return table


def _cells(item: ConceptDrift) -> list[str]:
    flags = f"[dark_orange3]{', '.join(item.flags)}[/dark_orange3]" if item.flags else ""
    fidelity = "" if item.fidelity is None else f"{item.fidelity:.2f}"
    counts = (item.active_after, item.gained, item.lost)
    images = [] if item.overlap is None else [*map(str, counts), f"{item.overlap:.0%}"]
    return [escape(item.concept), flags, fidelity, *images]


def _legend(drift: Audit) -> None:
    from ccr.core.explain.drift import FLAGS

    where = f"these {drift.n} images" if drift.n else "the training images"
    lines = [f"fidelity: correlation of a concept's scores with those of its own text, on {where}"]
    if drift.n:
        lines.append("images: those that show the concept; gained: only by the model; lost: only by its text")
        lines.append("same: those that show it by both / by either")
    present = {flag for item in drift.concepts for flag in item.flags}
    lines += [f"flag {flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in present]
    for line in [*lines, drift.footnote]:
        console.print(line, style="dim", highlight=False)
