"""`ccr compare`: CCR, its ablations, the other methods and the controls under one roof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, bar, console, note, print_json, warnings_as_notes, write_whole
from ccr.cli.fit import encoder_of
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.concepts import Concepts
    from ccr.data.encoders import Encoder
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.compare import Comparison, Task
    from ccr.study.experiments.curves import Curve

#: As in `ccr.study.experiments.compare.METHODS`, which is not imported for a help text.
NAMES = (
    "ccr", "baseline", "ccr-angular", "baseline-angular", "ccr-none", "baseline-none", "ccr-unbound", "ip-omp",
    "omp", "label-free", "splice", "probe", "zero-shot", "random-words", "random-vectors",
)  # fmt: skip


def compare(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")],
    concepts: Annotated[Path, typer.Option(help="Text file, one concept a line.")],
    methods: Annotated[
        str | None, typer.Option(help=f"Some of these, by commas; default all: {', '.join(NAMES)}.")
    ] = None,
    length: Annotated[float, typer.Option(min=1, help="Concepts an image, for every method.")] = 12,
    seeds: Annotated[int, typer.Option(min=1, help="Each method is fitted so many times.")] = 5,
    radius: Annotated[float, typer.Option(help="How far CCR may move a concept.")] = 0.1,
    center: Annotated[bool, typer.Option(help="Measure images and concepts from their own means.")] = True,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes of CCR and baseline; default: enough.")] = None,
    curves: Annotated[bool, typer.Option(help="Also follow CCR and baseline by epoch, for the figure.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and finished runs.")] = Path("comparison"),
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Compare methods on the same images, concepts and length.

    Each method learns on the split `train`, chooses between a few variants and head penalties on `val` (or on a tenth
    of train), has its head solved to convergence, and is measured on `test`. Finished runs are kept in the folder: the
    same command goes on where it was stopped. A method that fails is listed with its reason; the others stand.

    Example: `ccr compare photos-store --concepts concepts.txt --length 10 --out comparison`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.cache import RunCache
    from ccr.study.experiments.compare import methods_named, run_comparison
    from ccr.study.experiments.compare.by_epoch import followed_curves

    chosen = methods_named([name.strip() for name in methods.split(",")] if methods else None)
    opened = EmbeddingStore.open(store)
    task = comparison_task(
        opened,
        concepts,
        encoder_of(opened, encoder, quiet=as_json),
        length=length,
        radius=radius,
        center="data" if center else None,
        max_iter=epochs,
    )
    cache = RunCache(out / "runs")
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        found = run_comparison(task, chosen, seeds=range(seeds), cache=cache, tell=advance)
        drawn = followed_curves(task, seeds=range(seeds), cache=cache, tell=advance) if curves else []
    files = write_comparison(found, drawn, out)
    if as_json:
        print_json({"out": str(out), "files": files, **found.to_dict()})
        return
    print_comparison(found, f"{task.train.X.shape[0]} training images, {len(task.concepts)} concepts")
    console.print(f"Tables and figures are in {escape(str(out))}: {', '.join(files)}")


def comparison_task(store: EmbeddingStore, concepts: Path, encoder: Encoder, **options: Any) -> Task:
    """The task of a store: its splits, the concepts of a file, and the texts that the controls need."""
    from ccr.data.vocab import embed_concepts, random_words, read_concepts
    from ccr.study.experiments.compare import Task

    names = read_concepts(concepts)
    classes = [str(name) for name in store.classes]
    return Task(
        embed_concepts(names, encoder),
        train=_part(store, "train"),
        test=_part(store, "test"),
        validation=_part(store, "val") if "val" in store.splits else None,
        class_texts=_embedded(classes, encoder),
        random_words=_embedded(random_words(len(names), seed=0, exclude=[*names, *classes]), encoder),
        **options,
    )


def write_comparison(found: Comparison, curves: list[Curve], out: Path) -> list[str]:
    """Tables and figures into a folder; their names."""
    from ccr.show import compare_plots, plots
    from ccr.study.experiments.compare.table import as_csv, markdown

    facts = {**found.to_dict(), "curves": [curve.to_dict() for curve in curves]}
    files = {
        "results.json": json.dumps(facts, indent=1).encode(),
        "results.csv": as_csv(found).encode(),
        "results.md": markdown(found).encode(),
        "accuracies.png": plots.png(compare_plots.accuracies(found), dpi=100),
        "cut.png": plots.png(compare_plots.cut_explanations(found), dpi=100),
    }
    if curves:
        files["by_epoch.png"] = plots.png(compare_plots.by_epoch(curves, found), dpi=100)
    for name, content in files.items():
        write_whole(out / name, content)
    return list(files)


def print_comparison(found: Comparison, what: str) -> None:
    """The tables, and what could not be run."""
    from ccr.study.experiments.compare.table import LEGEND, TABLES

    for title, columns in TABLES.items():
        where = f", {found.images} test images, {what}" if columns is next(iter(TABLES.values())) else ""
        table = Table(title=escape(title + where), title_justify="left", box=None, padding=(0, 1, 0, 0))
        table.add_column("method", no_wrap=True)
        for column in columns:
            table.add_column(column.heading, justify="right")
        for row in found.rows:
            table.add_row(escape(row.title), *(column.text(row) for column in columns))
        console.print(table)
    note(LEGEND)
    for failure in found.failures:
        note(f"{failure.method}, seed {failure.seed} could not be run: {failure.reason}")


def _part(store: EmbeddingStore, split: str) -> Any:
    from ccr.study.experiments import Part

    if split not in store.splits:
        raise CCRError(
            f"a comparison needs the splits train and test, {store.path} has no {split}: embed the images again with "
            "folders train/ and test/, or let `ccr embed` split them"
        )
    rows = store.select(split)
    return Part(rows, rows.y)


def _embedded(texts: list[str], encoder: Encoder) -> Concepts:
    from ccr.data.vocab import embed_concepts

    return embed_concepts(texts, encoder)
