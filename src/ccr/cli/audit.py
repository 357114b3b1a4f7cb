"""`ccr audit`: are refined concepts still what their names say?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, print_json
from ccr.cli.common_data import split_of

if TYPE_CHECKING:
    from ccr.core.explain import Audit, ConceptDrift, Neighbour


def audit(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path | None, typer.Argument(help="Store: also compare the images that show a concept.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of concepts to show.")] = 20,
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test, else val, else everything.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far each concept moved in refinement and whether it is still itself, doubtful ones first.

    Example: `ccr audit photos-model photos-store --top 10`
    """
    from ccr.models.classifier import ConceptClassifier

    loaded = ConceptClassifier.load(model)
    if store is None:
        drift = loaded.audit()
    else:
        from ccr.data.store import EmbeddingStore

        drift = loaded.audit(split_of(EmbeddingStore.open(store), split)[1])
    if as_json:
        print_json({"model": str(model), **drift.to_dict(top=top)})
        return
    console.print(_table(drift, top))
    _legend(drift)


def _table(drift: Audit, top: int) -> Table:
    table = Table(
        title=f"{len(drift.flagged)} of {len(drift.concepts)} concepts flagged; mean deviation "
        f"{drift.deviation.mean:.3f}, most {drift.deviation.max:.3f}; {drift.retention:.0%} retained",
        title_justify="left",
    )
    table.add_column("concept", overflow="fold")
    table.add_column("flags")
    for heading in ("moved", "images", "same") if drift.n else ("moved",):
        table.add_column(heading, justify="right")
    table.add_column("nearest", overflow="fold")
    for item in drift.concepts[:top]:
        table.add_row(*_cells(item, with_images=bool(drift.n)))
    return table


def _cells(item: ConceptDrift, *, with_images: bool) -> list[str]:
    flags = f"[dark_orange3]{', '.join(item.flags)}[/dark_orange3]" if item.flags else ""
    images = [f"{item.active_before} > {item.active_after}", f"{item.overlap:.0%}"] if with_images else []
    before, after = _nearest(item.nearest_before), _nearest(item.nearest_after)
    near = before if before == after else f"{before}, now {after}"
    return [escape(item.concept), flags, f"{item.deviation:.3f}", *images, near]


def _nearest(neighbours: tuple[Neighbour, ...]) -> str:
    return escape(neighbours[0].concept) if neighbours else ""


def _legend(drift: Audit) -> None:
    from ccr.core.explain.drift import FLAGS

    if drift.n:
        legend = f"images: those that show the concept before and after refinement, of {drift.n}; "
        console.print(legend + "same: those of both times / of either", style="dim", highlight=False)
    present = {flag for item in drift.concepts for flag in item.flags}
    for flag, meaning in FLAGS.items():
        if flag in present:
            console.print(f"flag {flag}: {meaning}", style="dim", highlight=False)
