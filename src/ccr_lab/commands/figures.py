"""`ccr figures`: the paper's figures, and what accuracy costs in fidelity and in concepts, on your data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, console, fitting, note, print_json, write_files
from ccr.cli.common_data import chosen_bound, chosen_coder, chosen_dispersion, store_encoder

if TYPE_CHECKING:
    import numpy as np

    from ccr.utils.processes import Tell
    from ccr_lab.experiments.curves import PaperCurves
    from ccr_lab.experiments.frontier import Frontier
    from ccr_lab.experiments.task import ComparisonTask


def figures(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")],
    concepts: Annotated[Path, typer.Option(help="Text file with one concept per line.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures (PNG) and figures.json.")],
    length: Annotated[float, typer.Option(min=1, help="Concepts per image; also fixes the sweeps' lambda.")] = 12,
    radius: Annotated[float, typer.Option(help="How far a concept may move.")] = 0.1,
    dispersion: Annotated[str, typer.Option(help="As in `ccr fit`.")] = "symmetric:0.9",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, for every fit.")] = 15,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of the training curves.")] = 5,
    paper: Annotated[bool, typer.Option(help="Draw the paper's figures.")] = True,
    frontier: Annotated[bool, typer.Option(help="Draw accuracy against fidelity and against concepts in play.")] = True,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures: correlations before and after dispersion, accuracy by epoch with seeds, sweeps over
    lambda, sweeps over the radius at fixed lambda, and what dispersion and projection do. And two frontiers: accuracy
    against fidelity at 1, 3, 5 and all weights per class, for these concepts, random words and random vectors; and
    accuracy against concepts in play, for CCR, its baseline and the other methods.

    --radius, --dispersion, --epochs and --seeds apply to the paper's figures only. Fits of the frontiers are kept in
    the folder: the same command continues where it was stopped.

    Example: `ccr figures photos-store --concepts concepts.txt --out figures`
    """
    from ccr.data.store import EmbeddingStore
    from ccr_lab.experiments.task import store_task
    from ccr_lab.plots.experiment_plots import frontier_files

    if not paper and not frontier:
        raise typer.BadParameter("--no-paper and --no-frontier leave nothing to draw: drop one of them")
    chosen_bound(None, radius)
    spread = chosen_dispersion(dispersion)
    opened = EmbeddingStore.open(store)
    task = store_task(opened, concepts, store_encoder(opened, encoder, silent=as_json), length=length)
    files: dict[str, bytes] = {}
    facts: dict[str, Any] = {}
    with fitting(silent=as_json) as tell:
        if paper:
            options = {"dispersion": spread, "max_iter": epochs, "random_state": 0}
            curves = _paper_curves(task, options, length=length, radius=radius, seeds=seeds, tell=tell)
            facts |= curves.to_dict()
            files |= {
                **_pictures(task.concepts.embeddings, curves),
                "figures.json": json.dumps(facts, indent=1).encode(),
            }
        if frontier:
            found = _frontier(task, length, out / "runs", tell)
            facts["frontier"] = found.to_dict()
            files |= frontier_files(found)
    write_files(out, files)
    if as_json:
        print_json({"out": str(out), **facts})
        return
    for what, reason in facts.get("frontier", {}).get("failures", {}).items():
        note(f"{what} could not be fitted: {reason}")
    console.print(f"In {escape(str(out))}: {', '.join(files)}")


def _paper_curves(
    task: ComparisonTask, options: dict[str, Any], *, length: float, radius: float, seeds: int, tell: Tell
) -> PaperCurves:
    from ccr_lab.experiments.curves import CurveFits, paper_curves, paper_fits

    bench = CurveFits(task.concepts, task.train, task.test, options, tell, paper_fits(seeds))
    return paper_curves(bench, length=length, radius=radius, seeds=range(seeds))


def _frontier(task: ComparisonTask, length: float, runs: Path, tell: Tell) -> Frontier:
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.frontier import FrontierGrid, measure_frontier

    return measure_frontier(task, FrontierGrid({"coder": chosen_coder(length, None)}), cache=RunCache(runs), tell=tell)


def _pictures(texts: np.ndarray, curves: PaperCurves) -> dict[str, bytes]:
    from ccr.geometry import disperse, orthogonalize, unit_rows
    from ccr.show import plots
    from ccr_lab.plots import experiment_plots

    centred = unit_rows(texts - texts.mean(axis=0))
    dictionaries = {
        "as embedded": texts,
        "angular": disperse(texts),
        "centred": centred,
        "centred, symmetric 0.9": orthogonalize(centred, 0.9),
    }
    drawn = {
        "dispersion": experiment_plots.heat_maps(dictionaries),
        "training": experiment_plots.training_figure(curves.training),
        "ablations": experiment_plots.ablation_figure(curves.ablations),
        **experiment_plots.fixed_lambda_figures(curves.thresholds, curves.radii, curves.threshold),
    }
    return {f"{name}.png": plots.png(figure, dpi=100) for name, figure in drawn.items()}
