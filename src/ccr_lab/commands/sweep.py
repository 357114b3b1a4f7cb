"""`ccr sweep`: a grid of settings, their Pareto front, and one recommended on validation data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import (
    Json,
    Ray,
    StoreEncoder,
    console,
    fitting,
    note,
    pool_at,
    print_json,
    write_files,
)
from ccr.cli.common_data import (
    Candidates,
    ClaimsOption,
    Device,
    KnowledgeFile,
    MinProbability,
    SplitStore,
    Template,
    chosen_candidates,
    chosen_knowledge,
    load_concepts,
)
from ccr.cli.common_photo import add_whole_column
from ccr.errors import CCRError
from ccr.utils.texts import fidelity_text

if TYPE_CHECKING:
    from ccr_lab.experiments.sweep import Outcome, Setting, Sweep

#: More rows than this are only in sweep.csv.
MOST_ROWS = 40
#: Headings of what was measured.
MEASURED = ("val\nacc.", "val\nlength", "in\nplay", "weights", "fidelity", "worst", "test\nacc.")


def sweep(
    store: SplitStore,
    concepts: Annotated[Path, typer.Option(help="Text file with one concept per line; # begins a comment.")],
    over: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,...",
            help="An axis of the grid: length or threshold, fidelity, radius, weights (per class), dispersion, center, "
            "sign.",
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Fits of every setting, with seeds 0, 1, ...")] = 1,
    at_most: Annotated[
        float | None,
        typer.Option(min=1, help="Concepts per image of the recommended setting, on validation. Default: any length."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for finished runs, tables and figures.")] = Path("ccr-sweep"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data. Default: as many as help.")] = None,
    template: Template = None,
    encoder: StoreEncoder = None,
    candidates: Candidates = None,
    knowledge: KnowledgeFile = None,
    claims: ClaimsOption = "open",
    min_probability: MinProbability = None,
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Fit a grid of settings, show which are worth having, and recommend one.

    Every combination of the --over axes is fitted on the split `train`. `val` (or, where there is none, a tenth of
    `train`, the same for all) chooses the epoch and the setting; `test` is only reported. Finished fits are kept in
    OUT/runs and not made again, so a stopped sweep continues and a grid can grow. OUT also gets sweep.json, sweep.csv
    and pareto.png.

    Fidelity and radius are alternatives: with an axis of each, a setting has a value of one of them. What no axis names
    is as in `ccr fit`.

    Recommended is the setting with the best validation accuracy among those with at most --at-most concepts per image
    (2 % over is allowed); ties go to the highest fidelity, then to the shortest length.

    Example: `ccr sweep photos-store --concepts concepts.txt --over length=5,10,20 --over radius=0,0.05,0.1,0.2`

    Short and true to the texts: `--over fidelity=0.875,0.955 --over weights=1,3,5,all`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab import read_concepts
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.sweep import run_sweep, with_validation

    settings = _grid(over, len(read_concepts(concepts)))
    for setting in settings:
        chosen_candidates(candidates, str(setting.weights))
    opened = EmbeddingStore.open(store)
    task: dict[str, Any] = {**with_validation(opened, "a sweep"), "cache": RunCache(out / "runs")}
    task["concepts"] = load_concepts(opened, concepts, spec=encoder, template=template)
    task["options"] = {
        "max_iter": epochs,
        "device": device,
        **chosen_knowledge(knowledge, claims, min_probability=min_probability),
    }
    if candidates is not None:
        task["options"]["candidates"] = candidates
    with fitting() as tell, pool_at(ray) as pool:
        results = run_sweep(**task, settings=settings, seeds=range(seeds), tell=tell, pool=pool)
    if not results.outcomes:
        raise CCRError(f"none of the {len(settings)} settings could be fitted; the first: {results.failures[0].reason}")
    chosen = results.recommended(at_most)
    told: dict[str, Any] = {"--knowledge": knowledge, "--claims": None if claims == "open" else claims}
    told |= {"--candidates": candidates, "--min-probability": min_probability}
    extra = {**told, "--encoder": encoder, "--template": template, "--epochs": epochs, "--device": device}
    command = None if chosen is None else _fit_command(chosen.setting, store, concepts, out / "model", extra)
    facts = _facts(results, chosen, at_most, command)
    write_files(out, _files(results, chosen, facts))
    if as_json:
        print_json({"out": str(out), **facts})
    else:
        _show(results, chosen, at_most, command, out)


def _grid(over: list[str], concepts: int) -> list[Setting]:
    """The settings of the --over axes, with the length that `ccr fit` would take; a mistake in them is misuse."""
    from ccr.coding.coders import usual_length
    from ccr_lab.experiments.sweep import grid, parse_axis

    try:
        return grid([parse_axis(text) for text in over], length=usual_length(concepts))
    except CCRError as error:
        raise typer.BadParameter(f"--over: {error}") from None


def _fit_command(setting: Setting, store: Path, concepts: Path, out: Path, extra: dict[str, Any]) -> str:
    """`ccr fit` with this setting, ready for the shell."""
    words = ["ccr", "fit", str(store), "--concepts", str(concepts), "--out", str(out), *setting.arguments()]
    for option, value in extra.items():
        words += [] if value in (None, "auto") else [option, str(value)]
    return shlex.join(words)


def _facts(results: Sweep, chosen: Outcome | None, at_most: float | None, command: str | None) -> dict[str, Any]:
    return {
        **results.to_dict(),
        "at_most": at_most,
        "recommended": None if chosen is None else {**chosen.to_dict(), "command": command},
    }


def _files(results: Sweep, chosen: Outcome | None, facts: dict[str, Any]) -> dict[str, bytes]:
    from ccr.show import plots
    from ccr_lab.experiments.cache import records_csv
    from ccr_lab.plots import experiment_plots

    return {
        "pareto.png": plots.png(experiment_plots.sweep_pareto(results, chosen=chosen)),
        "sweep.csv": records_csv(results.rows()).encode(),
        "sweep.json": json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False).encode(),
    }


def _show(results: Sweep, chosen: Outcome | None, at_most: float | None, command: str | None, out: Path) -> None:
    from ccr_lab.experiments.sweep import RULE

    console.print(_table(results, chosen), crop=False)
    for reason, names in _reasons(results).items():
        note(f"{len(names)} failed ({'; '.join(names[:3])}{'; ...' if len(names) > 3 else ''}): {reason}")
    if chosen is None:
        shortest = min(outcome.mean("validation_length") for outcome in results.outcomes)
        console.print(f"No setting has at most {at_most:g} concepts per image; the shortest has {shortest:.1f}")
    else:
        limit = "" if at_most is None else f" for at most {at_most:g} concepts per image"
        console.print(f"[bold]Recommended[/bold]{limit}: {escape(chosen.setting.name)}")
        console.print(f"Chosen on validation: {RULE}.")
        console.print(f"Recommended setting's accuracy on test: {_accuracy(chosen, 'test_accuracy')}. To fit it:")
        console.print(escape(str(command)), soft_wrap=True)
    console.print(f"Tables and figures are in {escape(str(out))}")


def _table(results: Sweep, chosen: Outcome | None) -> Table:
    images, varied = results.images, results.varied()
    title = f"Chosen on {images['validation']} validation images; {images['train']} training, {images['test']} test"
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=0)
    asked = [f"{name}\nasked" if name in ("fidelity", "weights") else name for name in varied]
    front, ranked = results.front(), results.ranked()
    marks = ["->" if outcome is chosen else "*" if outcome in front else "" for outcome in ranked[:MOST_ROWS]]
    rows = [
        [mark, *map(outcome.setting.value, varied), *_measures(outcome)]
        for mark, outcome in zip(marks, ranked, strict=False)
    ]
    for heading, texts in zip(("", *asked, *MEASURED), zip(*rows, strict=True), strict=True):
        add_whole_column(table, heading, texts)
    for row in rows:
        table.add_row(*map(escape, row), style="bold" if row[0] == "->" else None)
    seeds, more = len(ranked[0].runs), len(ranked) - MOST_ROWS
    table.caption = (
        "->: recommended; *: on the front: none is both shorter and more accurate\n"
        "in play: concepts with a weight for any class; weights: per class\n"
        "fidelity, worst: correlation of concepts with their texts, on validation"
    )
    table.caption += f"\naccuracy: mean of {seeds} seeds, worst to best below" if seeds > 1 else ""
    table.caption += f"\n{more} more rows are in sweep.csv" if more > 0 else ""
    return table


def _measures(outcome: Outcome) -> tuple[str, ...]:
    return (
        _accuracy(outcome, "validation_accuracy"),
        f"{outcome.mean('validation_length'):.1f}",
        f"{outcome.mean('validation_in_play'):.1f}",
        f"{outcome.mean('weights_per_class'):.1f}",
        *(fidelity_text(outcome.mean(f"validation_{name}")) for name in ("fidelity", "min_fidelity")),
        _accuracy(outcome, "test_accuracy"),
    )


def _accuracy(outcome: Outcome, measure: str) -> str:
    values = [getattr(run, measure) for run in outcome.runs]
    spread = f" {100 * min(values):.1f}-{100 * max(values):.1f}" if len(values) > 1 else ""
    return f"{outcome.mean(measure):.1%}{spread}"


def _reasons(results: Sweep) -> dict[str, list[str]]:
    """Print the settings that failed, and the reasons."""
    reasons: dict[str, list[str]] = {}
    for failure in results.failures:
        name = failure.setting.described(results.varied()) or "the only setting"
        reasons.setdefault(failure.reason, []).append(name)
    return reasons
