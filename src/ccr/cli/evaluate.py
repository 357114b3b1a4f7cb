"""`ccr evaluate`: a model on a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, evaluation_table, print_json, split_of

if TYPE_CHECKING:
    from ccr.core.metrics import Evaluation


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed` with the model's encoder.")],
    split: Annotated[
        str | None, typer.Option(help="train, val, test; default: test, else val, else everything.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy with its interval, length, how far concepts moved, accuracy by class.

    Example: `ccr evaluate photos-model photos-store --split test`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier

    loaded = ConceptClassifier.load(model)
    name, rows = split_of(EmbeddingStore.open(store), split)
    found = loaded.evaluate(rows)
    if as_json:
        print_json({"model": str(model), "store": str(store), "split": name, **found.to_dict()})
        return
    console.print(evaluation_table({str(model): found}, f"Measured on {found.n} images, split {escape(name)}"))
    console.print(_class_table(found))


def _class_table(found: Evaluation) -> Table:
    """Classes from the hardest to the easiest."""
    table = Table(title="Hardest first", title_justify="left")
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, share in sorted(found.per_class.items(), key=lambda item: item[1]):
        table.add_row(escape(str(name)), f"{share:.1%}")
    return table
