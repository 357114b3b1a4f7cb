"""`ccr evaluate`: a model on a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, print_json
from ccr.cli.common_data import split_of
from ccr.cli.common_tables import evaluation_table

if TYPE_CHECKING:
    from ccr.core.metrics import Evaluation


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed` with the model's encoder.")],
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test, else val, else everything.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy with its interval, length, concepts in play, weights per class, fidelity of concepts to
    their texts, accuracy by class.

    Example: `ccr evaluate photos-model photos-store --split test`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier

    loaded = ConceptClassifier.load(model)
    name, rows = split_of(EmbeddingStore.open(store), split)
    evaluation = loaded.evaluate(rows)
    if as_json:
        print_json({"model": str(model), "store": str(store), "split": name, **evaluation.to_dict()})
        return
    title = f"Measured on {evaluation.n} images, split {escape(name)}"
    console.print(evaluation_table({str(model): evaluation}, title))
    console.print(_class_table(evaluation))


def _class_table(evaluation: Evaluation) -> Table:
    """Classes from the hardest to the easiest."""
    table = Table(title="Hardest first", title_justify="left")
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, accuracy in sorted(evaluation.per_class.items(), key=lambda item: item[1]):
        table.add_row(escape(str(name)), f"{accuracy:.1%}")
    return table
