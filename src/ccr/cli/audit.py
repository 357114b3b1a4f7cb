"""`ccr audit`: are refined concepts still what their names say?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, print_json, split_of

if TYPE_CHECKING:
    from ccr.core.explain import Audit, ConceptDrift, Neighbour


def audit(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path | None, typer.Argument(help="Store: also compare the images that show a concept.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Concepts to show.")] = 20,
    split: Annotated[
        str | None, typer.Option(help="train, val, test; default: test, else val, else everything.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far each concept moved in refinement and whether it is still itself, doubtful ones first.

    Example: `ccr audit photos-model photos-store --top 10`
    """
    from ccr.models.classifier import ConceptClassifier

    loaded = ConceptClassifier.load(model)
    if store is None:
        found = loaded.audit()
    else:
        from ccr.data.store import EmbeddingStore

        found = loaded.audit(split_of(EmbeddingStore.open(store), split)[1])
    if as_json:
        print_json({"model": str(model), **found.to_dict(top=top)})
        return
    console.print(_table(found, top))
    _legend(found)


def _table(found: Audit, top: int) -> Table:
    table = Table(
        title=f"{len(found.flagged)} of {len(found.concepts)} concepts flagged; mean deviation "
        f"{found.deviation.mean:.3f}, most {found.deviation.max:.3f}; {found.retention:.0%} retained",
        title_justify="left",
    )
    table.add_column("concept", overflow="fold")
    table.add_column("flags")
    numbers = ("moved", "images", "same") if found.n else ("moved",)
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column("nearest", overflow="fold")
    for item in found.concepts[:top]:
        table.add_row(*_cells(item, with_images=bool(found.n)))
    return table


def _cells(item: ConceptDrift, *, with_images: bool) -> list[str]:
    flags = f"[dark_orange3]{', '.join(item.flags)}[/dark_orange3]" if item.flags else ""
    seen = [f"{item.active_before} > {item.active_after}", f"{item.overlap:.0%}"] if with_images else []
    before, after = _nearest(item.nearest_before), _nearest(item.nearest_after)
    near = before if before == after else f"{before}, now {after}"
    return [escape(item.concept), flags, f"{item.deviation:.3f}", *seen, near]


def _nearest(found: tuple[Neighbour, ...]) -> str:
    return escape(found[0].concept) if found else ""


def _legend(found: Audit) -> None:
    from ccr.core.explain.drift import FLAGS

    if found.n:
        legend = "images: that show it before and after refinement, of {n}; same: both times / either time"
        console.print(legend.format(n=found.n), style="dim", highlight=False)
    present = {flag for item in found.concepts for flag in item.flags}
    for flag, meaning in FLAGS.items():
        if flag in present:
            console.print(f"flag {flag}: {meaning}", style="dim", highlight=False)
