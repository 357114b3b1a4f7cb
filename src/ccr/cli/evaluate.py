"""`ccr evaluate`: a model on a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import All, Json, console, print_json
from ccr.cli.common_data import split_of
from ccr.cli.common_photo import MOST_CLASSES, evaluation_table, show_knowledge, show_sets

if TYPE_CHECKING:
    from ccr.metrics import Evaluation


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed` with the model's encoder.")],
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test, else val, else everything.")
    ] = None,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy with its interval, length, concepts in play, weights per class, fidelity of concepts to
    their texts; macro F1, top-5 accuracy, calibration error; images and accuracy of the ten hardest classes; of a model
    fitted with --coverage, also how often its prediction sets hold the true class; of one fitted with --knowledge, also
    claims, truth and transfer.

    Example: `ccr evaluate photos-model photos-store --split test`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.model import ConceptModel

    loaded = ConceptModel.load(model)
    name, rows = split_of(EmbeddingStore.open(store), split)
    evaluation = loaded.evaluate(rows)
    calibration = loaded.calibration
    sets = None if calibration is None else (loaded.evaluate_sets(rows), calibration.temperature)
    if as_json:
        known = {} if sets is None else {"sets": sets[0].to_dict(), "temperature": sets[1]}
        print_json({"model": str(model), "store": str(store), "split": name, **evaluation.to_dict(), **known})
        return
    title = f"Measured on {evaluation.n} images, split {escape(name)}"
    console.print(evaluation_table({str(model): evaluation}, title))
    console.print(
        f"macro F1 {evaluation.macro_f1:.3f};{_top5(evaluation)} calibration error "
        f"{100 * evaluation.calibration_error:.1f} points between confidence and accuracy",
        highlight=False,
    )
    show_knowledge({str(model): evaluation})
    if sets is not None:
        show_sets(*sets)
    console.print(_class_table(evaluation, everything=everything))


def _top5(evaluation: Evaluation) -> str:
    """Top-5 accuracy, which says something where there are many classes."""
    return f" top-5 accuracy {evaluation.top5:.1%};" if len(evaluation.per_class) > 10 else ""


def _class_table(evaluation: Evaluation, *, everything: bool) -> Table:
    """Classes from the hardest to the easiest."""
    classes = sorted(evaluation.per_class.items(), key=lambda item: (item[1], str(item[0])))
    shown = classes if everything else classes[:MOST_CLASSES]
    part = "" if len(shown) == len(classes) else f", {len(shown)} of {len(classes)} classes; the others with --all"
    table = Table(title=f"Hardest first{part}", title_justify="left")
    table.add_column("class", overflow="fold")
    for heading in ("images", "accuracy"):
        table.add_column(heading, justify="right")
    for name, accuracy in shown:
        table.add_row(escape(str(name)), f"{evaluation.class_images[name]:,}", f"{accuracy:.1%}")
    return table
