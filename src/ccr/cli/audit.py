"""`ccr audit`: do refined concepts still see what their names say?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ccr.cli.common import Json, ModelFolder, Split, console, print_json
from ccr.cli.common_data import split_of
from ccr.cli.common_photo import plain_table
from ccr.utils.texts import listed

if TYPE_CHECKING:
    from ccr.explain import Audit


#: Concepts that do not transfer, named at most; --json has all.
MOST_NAMED = 20


def audit(
    model: ModelFolder,
    store: Annotated[
        Path | None, typer.Argument(help="Store: measure on its images, and list those gained and lost.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of concepts to show.")] = 20,
    split: Split = None,
    as_json: Json = False,
) -> None:
    """Show whether each concept still sees what its text sees, doubtful ones first.

    Its fidelity is the correlation of its scores with those of its own text, on the images of a store, or, without one,
    as measured on the training images. With a store also the images gained and lost: those that show the concept only
    by the model, or only by its text, at the same number of concepts per image. Of a model fitted with knowledge also
    each concept's transfer: does it recognise classes that it was not told about? Fidelity is not truth: concepts
    without knowledge are unverified, flagged or not.

    Example: `ccr audit photos-model photos-store --top 10`
    """
    from ccr.model import ConceptModel

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
    _legend(drift, informed=loaded.provenance.knowledge is not None)


def _table(drift: Audit, top: int) -> Table:
    known, informed = drift.fidelity, drift.transfer is not None
    unknown = known is None or math.isnan(known.mean)
    said = "fidelity unknown" if unknown else f"mean fidelity {known.mean:.2f}, lowest {known.min:.2f}"  # type: ignore[union-attr]
    flagged = f"{len(drift.flagged)} of {len(drift.concepts)} concepts flagged for drift"
    measured = ("images", "gained", "lost", "same") if drift.n else ()
    headings = ("concept", "flags", "fidelity", *(("transfer",) if informed else ()), *measured)
    rows = []
    for item in drift.concepts[:top]:
        cells: list[str | Text] = [item.concept, Text(", ".join(item.flags), "dark_orange3")]
        cells.append("" if item.fidelity is None else f"{item.fidelity:.2f}")
        if informed:
            cells.append("unverified" if item.transfer is None else f"{item.transfer:.2f}")
        if item.overlap is not None:
            cells += [str(item.active_after), str(item.gained), str(item.lost), f"{item.overlap:.0%}"]
        rows.append(cells)
    return plain_table(f"{flagged}; {said}; {drift.unverified} unverified", headings, rows, texts=(0, 1))


def _legend(drift: Audit, *, informed: bool) -> None:
    from ccr.explain.drift import FLAGS, GROUNDED, NOT_TRUTH, TRANSFERS

    where = f"these {drift.n} images" if drift.n else "the training images"
    lines = [f"fidelity: correlation of a concept's scores with those of its own text, on {where}"]
    lines += [GROUNDED] if informed else []
    if drift.n:
        lines.append("images: those that show the concept; gained: only by the model; lost: only by its text")
        lines.append("same: those that show it by both / by either")
    present = {flag for item in drift.concepts for flag in item.flags}
    lines += [f"flag {flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in present]
    if drift.transfer is not None:
        lines.append(
            f"transfer: AUC of a concept's scores on classes that it was not told about, 0.5 is chance; mean "
            f"{drift.transfer:.2f}"
        )
    few = [item.concept for item in drift.not_transferring]
    if few:
        lines.append(f"transfer below {TRANSFERS:g} ({len(few)}): {listed(few, MOST_NAMED, ' and {} more')}")
    for line in [*lines, drift.footnote, NOT_TRUTH]:
        console.print(escape(line), style="dim", highlight=False)
