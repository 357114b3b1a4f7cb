"""`ccr claims`: every claim of a model, with what is known of it and what images say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import All, Json, ModelFolder, Split, console, note, print_json
from ccr.cli.common_data import split_of
from ccr.cli.common_photo import MOST_CLASSES, claim_legend
from ccr.errors import CCRError
from ccr.io.files import write_text
from ccr.utils.texts import csv_text, share_text

if TYPE_CHECKING:
    from ccr.explain.claims import Claim
    from ccr.model import ConceptModel

ENDINGS = (".csv", ".html")
#: Columns of the CSV table and fields of a claim's JSON, in their order.
COLUMNS = (
    *("class", "concept", "claim", "weight", "status", "answer", "source", "by", "at"),
    *("share", "purity", "accuracy", "accuracy_without"),
)


def claims(
    model: ModelFolder,
    store: Annotated[Path | None, typer.Argument(help="Store with labels: measure the claims on its images.")] = None,
    split: Split = None,
    out: Annotated[Path | None, typer.Option(help="Write a table (.csv) or a page (.html).")] = None,
    label: Annotated[str | None, typer.Option("--class", help="Only the claims of this class.")] = None,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """List every claim of a model: a positive weight says "the class shows the concept".

    With each: the weight; whether knowledge confirms or contradicts it, and who said so; the share of the class's
    images that show the concept; the share of the images showing it that are of the class; the accuracy without it.
    Measured on the images of a store, or, without one, as noted on the training images.

    Example: `ccr claims photos-model photos-store --out claims.html`
    """
    from ccr.explain.terms import position
    from ccr.io.provenance import signature_sentence
    from ccr.model import ConceptModel
    from ccr.show.pages import claims_in_words, count_claims

    if out is not None and out.suffix.lower() not in ENDINGS:
        raise CCRError(f"--out must end in {' or '.join(ENDINGS)}, got {out.name!r}")
    if split is not None and store is None:
        raise typer.BadParameter(f"--split {split} is a part of a store: give the store, too")
    loaded = ConceptModel.load(model)
    wanted = None if label is None else loaded.classes.tolist()[position(loaded.classes.tolist(), label)]
    found, measured = _measured(loaded, store, split)
    if wanted is not None:
        found = [claim for claim in found if claim.label == wanted]
    knowledge, signed = loaded.provenance.knowledge, signature_sentence(loaded)
    if out is not None:
        _write(out, found, f"Claims of {model.name}", measured, loaded, signed)
    counts = count_claims(found)
    if as_json:
        facts = {"knowledge": None if knowledge is None else knowledge.digest, "measured": measured, "counts": counts}
        facts["signature"] = signed
        print_json({"model": str(model), **facts, "claims": [_row(claim) for claim in found]})
        return
    _show(found, everything=everything or wanted is not None)
    console.print(claims_in_words(counts), style="bold")
    console.print(escape(measured))
    said = "Fitted without knowledge." if knowledge is None else f"Fitted with knowledge {knowledge.digest}."
    console.print(said)
    if signed is not None:
        console.print(escape(signed), style="bold")
    if out is not None:
        console.print(f"Written to {escape(str(out))}")


def _measured(model: ConceptModel, store: Path | None, split: str | None) -> tuple[Sequence[Claim], str]:
    """The claims, and a sentence that says on which images they were measured, with the accuracy of all claims, which
    the accuracies without a claim compare with."""
    seen = model.provenance.seen
    if store is not None:
        from ccr.data.store import EmbeddingStore

        name, rows = split_of(EmbeddingStore.open(store), split)
        found, where = model.claims(rows), f"Measured on {len(rows):,} images of {store.name}, split {name}"
    elif seen is not None:
        images = int(seen.images.sum())
        found, where = model.claims(), f"Measured on {images:,} of the training images, as the model noted"
    else:
        why = "the model noted nothing of its training images"
        note(f"note: {why}: give a store to measure its claims on")
        return model.claims(), f"Not measured on images: {why}."
    accuracy = found[0].accuracy if found else None
    return found, f"{where}{'' if accuracy is None else f': accuracy {accuracy:.1%} with all claims'}."


def _row(claim: Claim) -> dict[str, object]:
    fields = {**claim.to_dict(), "claim": claim.sentence}
    return {name: fields[name] for name in COLUMNS}


def _write(
    out: Path, claims: Sequence[Claim], title: str, measured: str, model: ConceptModel, signed: str | None
) -> None:
    if out.suffix.lower() == ".html":
        from ccr.show.pages import claims_page

        known = model.provenance.knowledge
        write_text(out, claims_page(title, claims, measured=measured, knowledge=known, signed=signed))
        return
    write_text(out, csv_text(COLUMNS, (_row(claim).values() for claim in claims)))


_LEGEND = (
    "share: of the class's images, those that show it; purity: of the images showing it, those of the class\n"
    "without: accuracy without this weight"
)


def _show(claims: Sequence[Claim], *, everything: bool) -> None:
    from ccr.explain.terms import claim_marks

    signs = claim_marks(console.encoding)
    groups = [list(found) for _, found in groupby(claims, key=lambda claim: str(claim.label))]
    shown = groups if everything else groups[:MOST_CLASSES]
    part = "" if len(shown) == len(groups) else f", {len(shown)} of {len(groups)} classes; the others with --all"
    table = Table(title=f"By class{part}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.caption, table.caption_justify = f"{claim_legend(signs)}\n{_LEGEND}", "left"
    table.add_column("claim", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("weight", "share", "purity", "without"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source", overflow="fold")
    for group in shown:
        for claim in group:
            shares = ["" if value is None else share_text(value) for value in (claim.share, claim.purity)]
            without = "" if claim.accuracy_without is None else f"{claim.accuracy_without:.1%}"
            origin = ", ".join(part for part in (claim.source, claim.by, claim.at) if part)
            numbers = f"{claim.weight:.2f}", *shares, without
            table.add_row(escape(claim.sentence), signs[claim.status], *numbers, escape(origin))
        table.add_section()
    console.print(table)
