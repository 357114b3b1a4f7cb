"""`ccr figures`: the paper's figures, on your data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, print_json, warnings_as_notes, write_whole
from ccr.cli.fit import chosen_dispersion, load_concepts
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.concepts import Concepts
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.curves import Workbench


def figures(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")],
    concepts: Annotated[Path, typer.Option(help="Text file, one concept a line.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures (PNG) and figures.json.")],
    length: Annotated[float, typer.Option(min=1, help="Concepts an image; also fixes the sweeps' lambda.")] = 12,
    radius: Annotated[float, typer.Option(help="How far a concept may move.")] = 0.1,
    dispersion: Annotated[str, typer.Option(help="As in `ccr fit`.")] = "symmetric:0.9",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, for every fit.")] = 15,
    seeds: Annotated[int, typer.Option(min=1, help="Of the training curves.")] = 5,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures: correlations before and after dispersion, accuracy by epoch with seeds, sweeps over
    lambda and radius at fixed lambda, and what dispersion and projection do.

    Example: `ccr figures photos-store --concepts concepts.txt --out figures`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.fixed_lambda import LAMBDAS, RADII

    opened = EmbeddingStore.open(store)
    embedded = load_concepts(opened, concepts, spec=encoder, template=None, quiet=as_json)
    fits = 1 + 2 * seeds + 3 + 2 * len(LAMBDAS) + len(RADII)
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        done = iter(range(fits))
        bench = _bench(
            opened,
            embedded,
            {"dispersion": chosen_dispersion(dispersion), "max_iter": epochs, "random_state": 0},
            lambda what: advance(next(done), fits, what),
        )
        facts = _draw(bench, out, length=length, radius=radius, seeds=seeds)
    write_whole(out / "figures.json", json.dumps(facts, indent=1).encode())
    if as_json:
        print_json({"out": str(out), **facts})
    else:
        console.print(f"Figures and figures.json are in {escape(str(out))}")


def _bench(store: EmbeddingStore, concepts: Concepts, options: dict[str, Any], tell: Any) -> Workbench:
    from ccr.study.experiments import Part
    from ccr.study.experiments.curves import Workbench

    missing = {"train", "test"} - set(store.splits)
    if missing:
        raise CCRError(
            f"the figures need the splits train and test, {store.path} has no {' and no '.join(sorted(missing))}"
        )
    train, test = store.select("train"), store.select("test")
    return Workbench(concepts, Part(train, train.y), Part(test, test.y), options, tell)


def _draw(bench: Workbench, out: Path, *, length: float, radius: float, seeds: int) -> dict[str, Any]:
    from ccr.core.geometry import disperse, orthogonalize, unit_rows
    from ccr.show import experiment_plots, plots
    from ccr.study.experiments import curves
    from ccr.study.experiments.fixed_lambda import LAMBDAS, RADII

    texts = bench.concepts.embeddings
    centred = unit_rows(texts - texts.mean(axis=0))
    maps = {
        "as embedded": texts,
        "angular": disperse(texts),
        "centred": centred,
        "centred, symmetric 0.9": orthogonalize(centred, 0.9),
    }
    threshold = bench.threshold(length)
    training = curves.training_curves(bench, length=length, radius=radius, seeds=range(seeds))
    ablations = curves.ablation_curves(bench, threshold=threshold, radius=radius)
    lambdas = curves.threshold_sweep(bench, [threshold * factor for factor in LAMBDAS], radius=radius)
    radii = curves.radius_sweep(bench, RADII, threshold=threshold)
    for name, figure in {
        "dispersion": experiment_plots.heat_maps(maps),
        "training": experiment_plots.training_figure(training),
        "ablations": experiment_plots.ablation_figure(ablations),
        "thresholds": experiment_plots.sweep_figure(lambdas, "lambda"),
        "radii": experiment_plots.sweep_figure(radii, f"radius (lambda fixed at {threshold:.3f})"),
    }.items():
        write_whole(out / f"{name}.png", plots.png(figure, dpi=100))
    return {
        "threshold": threshold,
        "training": [curve.to_dict() for curve in training],
        "ablations": [curve.to_dict() for curve in ablations],
        "thresholds": [point.to_dict() for point in lambdas],
        "radii": [point.to_dict() for point in radii],
    }
