"""`ccr compare`: CCR, its ablations, the other methods and the controls on the same task."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, Ray, StoreEncoder, bar, console, fitting, note, pool_at, print_json, write_files
from ccr.cli.common_data import (
    Candidates,
    Center,
    ClaimsOption,
    ConceptFile,
    KnowledgeFile,
    MinProbability,
    SplitStore,
    chosen_bound,
    chosen_candidates,
    chosen_knowledge,
    chosen_weights,
    store_encoder,
)
from ccr.cli.common_photo import add_whole_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccr_lab.experiments.compare import MethodComparison
    from ccr_lab.experiments.methods import Method
    from ccr_lab.experiments.table import Column

#: As in `ccr_lab.experiments.methods.METHODS`, which is not imported for a help text.
NAMES = (
    "ccr", "baseline", "ccr-ball", "ccr-angular", "baseline-angular", "ccr-none", "baseline-none", "ccr-unbound",
    "ip-omp", "omp", "label-free", "splice", "probe", "zero-shot", "random-words", "random-vectors",
)  # fmt: skip


def compare(
    store: SplitStore,
    concepts: ConceptFile,
    methods: Annotated[
        str | None, typer.Option(help=f"Some of these, separated by commas. Default: all of {', '.join(NAMES)}.")
    ] = None,
    length: Annotated[float, typer.Option(min=1, help="Concepts per image, for every method.")] = 12,
    seeds: Annotated[int, typer.Option(min=1, help="How many times each method is fitted.")] = 5,
    fidelity: Annotated[
        float | None,
        typer.Option(help="Least correlation, 0 to 1, of CCR's concepts with their own texts, in the images' metric."),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="Instead: how far CCR may move a concept. Default of both: as `ccr fit`.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Weights per class of CCR, baseline and controls, all or auto. Default: as `ccr fit`."),
    ] = None,
    candidates: Candidates = None,
    knowledge: KnowledgeFile = None,
    claims: ClaimsOption = "open",
    min_probability: MinProbability = None,
    center: Center = True,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes of CCR and baseline. Default: as many as help.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and finished runs.")] = Path("comparison"),
    encoder: StoreEncoder = None,
    details: Annotated[bool, typer.Option("--details", help="Print every table, not only the first.")] = False,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Compare methods on the same images, concepts and length.

    Each method learns on the split `train`, chooses between a few variants and head penalties on `val` (or on a tenth
    of train), has its head solved to convergence, and is measured on `test`. Finished runs are kept in the folder: the
    same command continues where it was stopped. A method that fails is listed with its reason, and the others go on.

    CCR always comes with its controls, random words and random vectors in place of the concepts, at the same settings;
    the meaning gap is its accuracy minus theirs. The rows "ball" are CCR as in the paper, whatever --fidelity is. With
    --weights a head is kept as trained, since a solved one would have all weights.

    With --knowledge, the other methods with concepts get the table, too, as a mask of their heads, and every method
    that gets it is also run without it and with a shuffled table: only what the true table gains beyond a shuffled one
    is meaning.

    Example: `ccr compare photos-store --concepts concepts.txt --length 10 --out comparison`

    What names are worth in short explanations: `--methods ccr,probe --fidelity 0.95 --weights 3`
    """
    from ccr.data.store import EmbeddingStore
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.compare import run_comparison
    from ccr_lab.experiments.methods import all_methods, methods_named, with_controls
    from ccr_lab.experiments.task import store_task

    names = [name.strip() for name in methods.split(",")] if methods else None
    if names is not None:
        methods_named(names)  # a wrong name is refused before anything is read
    bound, sparse = chosen_bound(fidelity, radius), chosen_weights(weights)
    opened = EmbeddingStore.open(store)
    asked = (sparse["weights_per_class"] or "all") if sparse else None
    told = chosen_knowledge(knowledge, claims, min_probability=min_probability)
    told["candidates"] = chosen_candidates(candidates, weights)
    options = {**told, "length": length, "weights": asked, "center": "data" if center else None, "max_iter": epochs}
    embedder = store_encoder(opened, encoder)
    with bar() as tell:
        task = store_task(opened, concepts, embedder, tell=tell, **options, **bound)
    asked_for = [method.name for method in all_methods(task)] if names is None else names
    chosen = methods_named(with_controls(asked_for, knowledge=knowledge is not None))
    cache = RunCache(out / "runs")
    with fitting() as tell, pool_at(ray) as pool:
        comparison = run_comparison(task, chosen, seeds=range(seeds), cache=cache, tell=tell, pool=pool)
    files = write_files(out, _files(comparison))
    if as_json:
        print_json({"out": str(out), "files": files, **comparison.to_dict()})
        return
    what = f"{task.train.X.shape[0]} training images, {len(task.concepts)} concepts; CCR: {task.described}"
    _show(comparison, chosen, what, details=details)
    console.print(f"All tables (results.md, results.csv) and figures are in {escape(str(out))}: {', '.join(files)}")


def _files(comparison: MethodComparison) -> dict[str, bytes]:
    from ccr.show import plots
    from ccr_lab.experiments.table import as_csv, markdown
    from ccr_lab.plots import experiment_plots

    return {
        "results.json": json.dumps(comparison.to_dict(), indent=1).encode(),
        "results.csv": as_csv(comparison).encode(),
        "results.md": markdown(comparison).encode(),
        "accuracies.png": plots.png(experiment_plots.accuracies(comparison), dpi=100),
        "cut.png": plots.png(experiment_plots.cut_explanations(comparison), dpi=100),
    }


def _show(comparison: MethodComparison, methods: Sequence[Method], what: str, *, details: bool) -> None:
    """The first table and what it means; with `details`, the others; what could not be run."""
    from ccr_lab.experiments.table import DETAILS, DETAILS_LEGEND, SUMMARY, knowledge_worth, legend, meaning

    _print_table(comparison, f"{comparison.images} test images, {what}", SUMMARY)
    for title, columns in DETAILS.items() if details else ():
        _print_table(comparison, title, columns)
    for line in [meaning(comparison), *knowledge_worth(comparison)]:
        if line:
            console.print(escape(line))
    note(f"{legend(comparison)} {DETAILS_LEGEND}" if details else legend(comparison))
    run = {row.method for row in comparison.rows}
    for method in methods:
        if method.name in run and method.about:
            note(f"{method.title}: {method.about}")
    for failure in comparison.failures:
        note(f"{failure.method}, seed {failure.seed} could not be run: {failure.reason}")


def _print_table(comparison: MethodComparison, title: str, columns: Sequence[Column]) -> None:
    from ccr_lab.experiments.table import columns_of, lines_of

    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    told = columns_of(comparison, columns)
    lines = lines_of(comparison, told)
    for number, column in enumerate(zip(*lines, strict=True)):
        heading = told[number - 1].heading if number else "method"
        add_whole_column(table, heading, column, justify="right" if number else "left")
    for name, *texts in lines:
        # A control stands below its method.
        below = re.sub(r"^[^=]*, (without|shuffled) knowledge$", r"  \1 knowledge", name)
        table.add_row(*map(escape, (below, *texts)))
    console.print(table, crop=False)
