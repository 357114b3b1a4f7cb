"""`ccr sweep`: a grid of settings, their Pareto front, and one recommended on validation data."""

from __future__ import annotations

import csv
import json
import shlex
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, bar, console, note, print_json, warnings_as_notes, write_whole
from ccr.cli.fit import load_concepts
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.concepts import Concepts
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments import Part
    from ccr.study.experiments.cache import RunCache
    from ccr.study.experiments.fixed_lambda import FixedLambda
    from ccr.study.experiments.sweep import Outcome, Setting, Sweep

#: Passes over the data for the figures at fixed lambda, as in `ccr figures`.
FIGURE_EPOCHS = 15
#: More lines than this are only in sweep.csv.
MOST_LINES = 40


def sweep(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")],
    concepts: Annotated[Path, typer.Option(help="Text file, one concept a line; # begins a comment.")],
    over: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,...", help="An axis of the grid: length or threshold, radius, dispersion, center, sign."
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Fits of every setting, with seeds 0, 1, ...")] = 1,
    at_most: Annotated[
        float | None,
        typer.Option(min=1, help="Concepts an image of the recommended setting, on validation; default: any length."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for finished runs, tables and figures.")] = Path("ccr-sweep"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data; default: enough.")] = None,
    center: Annotated[
        bool | None,
        typer.Option("--center/--no-center", help="For every setting: measure from the data's means. Default: yes."),
    ] = None,
    template: Annotated[
        str | None, typer.Option(help='How a concept is put to the encoder, such as "a photo of {}".')
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    figures: Annotated[bool, typer.Option(help="Also draw accuracy over lambda and over radius: more fits.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Fit a grid of settings, show which are worth having, and recommend one.

    Every combination of the --over axes is fitted on the split `train`. `val` (or, where there is none, a tenth of
    `train`, the same for all) chooses the epoch and the setting; `test` is only reported. Finished fits are kept in
    OUT/runs and not made again, so a stopped sweep continues and a grid can grow. OUT also gets sweep.json, sweep.csv,
    pareto.png, and the paper's thresholds.png and radii.png (radius at fixed lambda).

    Recommended: the best validation accuracy of the settings of at most --at-most concepts an image (2 % over is
    allowed); of equals the smallest radius, then the shortest length.

    Example: `ccr sweep photos-store --concepts concepts.txt --over length=5,10,20 --over radius=0,0.05,0.1,0.2`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.cache import RunCache
    from ccr.study.experiments.sweep import run_sweep

    settings = chosen_grid(over, center)
    opened = EmbeddingStore.open(store)
    parts = parts_of(opened)
    cache = RunCache(_folder(out) / "runs")
    embedded = load_concepts(opened, concepts, spec=encoder, template=template, quiet=as_json)
    options = {"max_iter": epochs, "device": device}
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        found = run_sweep(
            embedded, **parts, settings=settings, options=options, seeds=range(seeds), cache=cache, tell=advance
        )
    if not found.outcomes:
        raise CCRError(f"none of the {len(settings)} settings could be fitted; the first: {found.failures[0].reason}")
    chosen = found.recommended(at_most)
    extra = {"--encoder": encoder, "--template": template, "--epochs": epochs}
    extra["--device"] = None if device == "auto" else device
    command = None if chosen is None else fit_command(chosen.setting, store, concepts, out / "model", extra)
    curves = None
    if figures:
        fitted = [outcome.setting for outcome in found.outcomes]
        like = (chosen or found.ranked()[0]).setting
        options = {**options, "max_iter": epochs or FIGURE_EPOCHS}
        curves = _curves(embedded, parts, fitted, like, options, cache, quiet=as_json)
    facts = _facts(found, chosen, at_most, command, curves)
    _write(out, found, chosen, curves, facts)
    if as_json:
        print_json({"out": str(out), **facts})
    else:
        _print(found, chosen, at_most, command, out)


def chosen_grid(over: list[str], center: bool | None) -> list[Setting]:
    """The settings of the --over axes; a mistake in them is misuse."""
    from ccr.study.experiments.sweep import Setting, grid, parse_axis

    try:
        axes = [parse_axis(text) for text in over]
        if center is not None and "center" in [axis.name for axis in axes]:
            raise CCRError("give --over center=... or --center/--no-center, not both: the axis sets it")
        return grid(axes, Setting(center="none" if center is False else "data"))
    except CCRError as error:
        raise typer.BadParameter(f"--over: {error}") from None


def fit_command(setting: Setting, store: Path, concepts: Path, out: Path, extra: dict[str, Any]) -> str:
    """`ccr fit` with this setting, ready for the shell."""
    words = ["ccr", "fit", str(store), "--concepts", str(concepts), "--out", str(out), *setting.arguments()]
    for option, value in extra.items():
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)


def _folder(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise CCRError(f"--out must be a folder, but {out} is a file: choose another name")
    return out


def parts_of(store: EmbeddingStore) -> dict[str, Part]:
    """The splits train, val and test; without a val, a part of train is held out."""
    from ccr.study.experiments import Part
    from ccr.study.experiments.sweep import hold_out

    present = set(store.splits)
    missing = {"train", "test"} - present
    if missing:
        raise CCRError(
            f"a sweep needs the splits train and test, {store.path} has no {' and no '.join(sorted(missing))}: embed a "
            "data set that has them"
        )
    found = {name: _read(store.select(name)) for name in ("train", "val", "test") if name in present}
    if "val" not in found:
        train, val = hold_out(found["train"])
        found |= {"train": Part(*train), "val": Part(*val)}
    return found


def _read(part: EmbeddingStore) -> Part:
    """A part in memory if it is small, for it is read once a fit and epoch; else where it lies."""
    import numpy as np

    from ccr.core.inputs import RESIDENT_BYTES
    from ccr.study.experiments import Part

    small = 4 * part.shape[0] * part.shape[1] <= RESIDENT_BYTES // 2
    return Part(np.array(part) if small else part, part.y)


def _curves(
    concepts: Concepts,
    parts: dict[str, Part],
    settings: list[Setting],
    like: Setting,
    options: dict[str, Any],
    cache: RunCache,
    *,
    quiet: bool,
) -> FixedLambda | None:
    from ccr.study.experiments.fixed_lambda import fixed_lambda

    data = {name: parts[name] for name in ("train", "test")}
    try:
        with warnings_as_notes(quiet=quiet), bar(quiet=quiet) as advance:
            return fixed_lambda(
                concepts, **data, settings=settings, like=like, options=options, cache=cache, tell=advance
            )
    except CCRError as error:
        note(f"thresholds.png and radii.png are left out: {error}", quiet=quiet)
        return None


def _facts(
    found: Sweep, chosen: Outcome | None, at_most: float | None, command: str | None, curves: FixedLambda | None
) -> dict[str, Any]:
    return {
        **found.to_dict(),
        "at_most": at_most,
        "recommended": None if chosen is None else {**chosen.to_dict(), "command": command},
        "fixed_lambda": None if curves is None else curves.to_dict(),
    }


def _write(out: Path, found: Sweep, chosen: Outcome | None, curves: FixedLambda | None, facts: dict[str, Any]) -> None:
    from ccr.show import experiment_plots, plots

    figures = {"pareto": experiment_plots.sweep_pareto(found, chosen=chosen)}
    if curves is not None:
        figures["thresholds"] = experiment_plots.sweep_figure(curves.thresholds, "lambda")
        fixed = f"radius (lambda fixed at {curves.threshold:.3f})"
        figures["radii"] = experiment_plots.sweep_figure(curves.radii, fixed)
    for name, figure in figures.items():
        write_whole(out / f"{name}.png", plots.png(figure))
    table = StringIO()
    rows = found.rows()
    writer = csv.DictWriter(table, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(out / "sweep.csv", table.getvalue().encode())
    write_whole(out / "sweep.json", json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False).encode())


def _print(found: Sweep, chosen: Outcome | None, at_most: float | None, command: str | None, out: Path) -> None:
    from ccr.study.experiments.sweep import RULE

    console.print(_table(found, chosen))
    for reason, names in _reasons(found).items():
        note(f"{len(names)} failed ({'; '.join(names[:3])}{'; ...' if len(names) > 3 else ''}): {reason}")
    if chosen is None:
        shortest = min(outcome.mean("validation_length") for outcome in found.outcomes)
        console.print(f"No setting has at most {at_most:g} concepts an image; the shortest has {shortest:.1f}")
    else:
        limit = "" if at_most is None else f" for at most {at_most:g} concepts an image"
        console.print(f"[bold]Recommended[/bold]{limit}: {escape(chosen.setting.name)}")
        console.print(f"Chosen on validation: {RULE}.")
        console.print(f"Recommended setting's accuracy on test: {_share(chosen, 'test_accuracy')}. To fit it:")
        console.print(escape(str(command)), soft_wrap=True, highlight=False)
    console.print(f"Tables and figures are in {escape(str(out))}")


def _table(found: Sweep, chosen: Outcome | None) -> Table:
    images = found.images
    title = f"Chosen on {images['validation']} validation images; {images['train']} training, {images['test']} test"
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    varied = found.varied()
    for name in ("", *varied, "val\nacc.", "val\nlength", "moved", "kept", "fit\ns", "test\nacc."):
        table.add_column(name, justify="right", no_wrap=name != "dispersion" and not name.endswith("acc."))
    front, ranked = found.front(), found.ranked()
    for outcome in ranked[:MOST_LINES]:
        mark = "->" if outcome is chosen else "*" if outcome in front else ""
        table.add_row(
            mark,
            *(escape(outcome.setting.value(name)) for name in varied),
            _share(outcome, "validation_accuracy"),
            f"{outcome.mean('validation_length'):.1f}",
            f"{outcome.mean('mean_deviation'):.3f}",
            f"{outcome.mean('retention'):.0%}",
            f"{outcome.mean('fit_seconds'):.1f}",
            _share(outcome, "test_accuracy"),
            style="bold" if outcome is chosen else None,
        )
    seeds = len(ranked[0].runs)
    more = len(ranked) - MOST_LINES
    table.caption = (
        "->: recommended; *: on the front: none is both shorter and more accurate\n"
        "moved: mean deviation; kept: concepts still nearest to themselves"
    )
    table.caption += f"\naccuracy: mean of {seeds} seeds, worst to best below" if seeds > 1 else ""
    table.caption += f"\n{more} more lines are in sweep.csv" if more > 0 else ""
    return table


def _reasons(found: Sweep) -> dict[str, list[str]]:
    """Why settings failed, and which did so."""
    reasons: dict[str, list[str]] = {}
    for failure in found.failures:
        reasons.setdefault(failure.reason, []).append(failure.setting.described(found.varied()) or "the only setting")
    return reasons


def _share(outcome: Outcome, measure: str) -> str:
    values = [getattr(run, measure) for run in outcome.runs]
    spread = f" {100 * min(values):.1f}-{100 * max(values):.1f}" if len(values) > 1 else ""
    return f"{outcome.mean(measure):.1%}{spread}"
