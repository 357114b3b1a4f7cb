"""`ccr figures`: the paper's figures, on your data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, console, fitting, print_json, write_files
from ccr.cli.common_data import load_concepts
from ccr.cli.common_options import chosen_dispersion

if TYPE_CHECKING:
    import numpy as np

    from ccr.study.experiments.curves import PaperCurves


def figures(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")],
    concepts: Annotated[Path, typer.Option(help="Text file with one concept per line.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures (PNG) and figures.json.")],
    length: Annotated[float, typer.Option(min=1, help="Concepts per image; also fixes the sweeps' lambda.")] = 12,
    radius: Annotated[float, typer.Option(help="How far a concept may move.")] = 0.1,
    dispersion: Annotated[str, typer.Option(help="As in `ccr fit`.")] = "symmetric:0.9",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, for every fit.")] = 15,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of the training curves.")] = 5,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures: correlations before and after dispersion, accuracy by epoch with seeds, sweeps over
    lambda and radius at fixed lambda, and what dispersion and projection do.

    Example: `ccr figures photos-store --concepts concepts.txt --out figures`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.curves import Workbench, paper_curves, paper_fits
    from ccr.study.experiments.part import store_parts

    opened = EmbeddingStore.open(store)
    embedded = load_concepts(opened, concepts, spec=encoder, silent=as_json)
    parts = store_parts(opened, "figures")
    options = {"dispersion": chosen_dispersion(dispersion), "max_iter": epochs, "random_state": 0}
    with fitting(silent=as_json) as tell:
        bench = Workbench(embedded, parts["train"], parts["test"], options, tell, paper_fits(seeds))
        curves = paper_curves(bench, length=length, radius=radius, seeds=range(seeds))
    facts = curves.to_dict()
    write_files(out, {**_pictures(embedded.embeddings, curves), "figures.json": json.dumps(facts, indent=1).encode()})
    if as_json:
        print_json({"out": str(out), **facts})
    else:
        console.print(f"Figures and figures.json are in {escape(str(out))}")


def _pictures(texts: np.ndarray, curves: PaperCurves) -> dict[str, bytes]:
    from ccr.core.geometry import disperse, orthogonalize, unit_rows
    from ccr.show import experiment_plots, plots

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
