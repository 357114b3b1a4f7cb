"""`ccr report`: a model and a store as one static page."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Advance, Json, bar, console, note, print_json, split_of, warnings_as_notes, write_whole

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier

#: With more training images than this the linear probe is left out unless asked for.
MOST_PROBED = 20_000


class Controls(NamedTuple):
    """What a model is compared with."""

    baseline: ConceptClassifier | None
    probe: float | None
    notes: list[str]


def report(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed` with the model's encoder.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    baseline: Annotated[Path | None, typer.Option(help="Folder of a model to compare with.")] = None,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Do not fit a baseline (the same settings, radius 0) either.")
    ] = False,
    probe: Annotated[
        bool | None, typer.Option(help="Measure a linear probe; default: if there are at most 20,000 training images.")
    ] = None,
    mistakes_first: Annotated[bool, typer.Option("--mistakes-first", help="Show wrong predictions first.")] = False,
    images: Annotated[int, typer.Option(min=0, help="Explained predictions to show.")] = 24,
    split: Annotated[
        str | None, typer.Option(help="train, val, test; default: test, else val, else everything.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the images are now, if they moved.")] = None,
    as_json: Json = False,
) -> None:
    """Write one page that stands alone: numbers against baseline and linear probe, explained predictions, classes,
    drift of the concepts, edits, and the settings to make it again.

    Without --baseline, one is fitted on the split `train`: the model's settings with radius 0.

    Example: `ccr report photos-model photos-store --out report.html --mistakes-first`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier
    from ccr.show.report import report_page

    if baseline is not None and no_baseline:
        raise typer.BadParameter("give --baseline or --no-baseline, not both")
    started = time.monotonic()
    loaded, opened = ConceptClassifier.load(model), EmbeddingStore.open(store, data=data)
    name, rows = split_of(opened, split)
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        given = None if baseline is None else ConceptClassifier.load(baseline)
        controls = _controls(loaded, opened, rows, given, fit=not no_baseline, probe=probe, advance=advance)
        html = report_page(
            loaded,
            rows,
            baseline=controls.baseline,
            probe=controls.probe,
            mistakes_first=mistakes_first,
            images=images,
            title=f"{model.resolve().name} on {store.resolve().name}, {name}",
            notes=[*_flattered(name), *controls.notes],
            facts=[
                ("model", str(model.resolve())),
                ("store", f"{store.resolve()}, split {name}"),
                ("baseline", _said_baseline(controls, baseline)),
                ("made by", _command(model, store, name, baseline, images, mistakes_first)),
            ],
            progress=advance,
        )
    content = html.encode(errors="replace")
    write_whole(out, content)
    seconds, accuracy = time.monotonic() - started, loaded.score(rows, rows.y)
    if as_json:
        found = {"report": str(out), "split": name, "images": len(rows), "accuracy": accuracy}
        found |= {"linear_probe": controls.probe, "bytes": len(content), "seconds": round(seconds, 2)}
        print_json({**found, "baseline": _accuracy(controls.baseline, rows)})
        return
    for line in controls.notes:
        note(f"note: {line}")
    console.print(f"{accuracy:.1%} of {len(rows)} images right, split {escape(name)}")
    console.print(f"The report is {escape(str(out))}: {len(content) / 1e6:.1f} MB in {seconds:.0f} s")


def _controls(
    model: ConceptClassifier,
    store: EmbeddingStore,
    rows: EmbeddingStore,
    given: ConceptClassifier | None,
    *,
    fit: bool,
    probe: bool | None,
    advance: Advance,
) -> Controls:
    notes: list[str] = []
    if "train" not in set(store.splits):
        return Controls(given, None, ["The store has no split train: no baseline is fitted and no linear probe."])
    train, baseline = store.select("train"), given
    if given is None and fit and model.radius == 0:
        notes.append("The model's radius is 0: it is its own baseline.")
    elif given is None and fit:
        baseline = _fitted_baseline(model, store, train, advance)
    few = len(train) <= MOST_PROBED
    if probe or (probe is None and few):
        return Controls(baseline, _probe(train, rows, notes, advance), notes)
    if probe is None:
        notes.append(f"No linear probe: {len(train):,} training images are many; ask for it with --probe.")
    return Controls(baseline, None, notes)


def _fitted_baseline(
    model: ConceptClassifier, store: EmbeddingStore, train: EmbeddingStore, advance: Advance
) -> ConceptClassifier:
    """The model's settings with radius 0; the split `val`, if there is one, chooses the epoch as in `ccr fit`."""
    from ccr.models.classifier import ConceptClassifier

    validation = None
    if "val" in set(store.splits) and model.validation_fraction > 0:
        val = store.select("val")
        validation = (val, val.y)
    baseline = ConceptClassifier(**{**model.get_params(deep=False), "radius": 0.0})
    return baseline.fit(
        train, validation=validation, callback=lambda epoch, epochs: advance(epoch.epoch, epochs, "fitting a baseline")
    )


def _probe(train: EmbeddingStore, rows: EmbeddingStore, notes: list[str], advance: Advance) -> float | None:
    import numpy as np

    from ccr.study.experiments import Part, linear_probe

    counts = np.unique(train.y, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < 3:
        notes.append("No linear probe: it needs two classes and three training images of each.")
        return None
    advance(0, 1, "linear probe")
    return linear_probe(train=Part(train, train.y), test=Part(rows, rows.y))


def _said_baseline(controls: Controls, path: Path | None) -> str:
    if path is not None:
        return str(path.resolve())
    return "none" if controls.baseline is None else "fitted here on the split train: the same settings, radius 0"


def _command(model: Path, store: Path, split: str, baseline: Path | None, images: int, mistakes_first: bool) -> str:
    """The call that makes this page again."""
    words = ["ccr", "report", str(model), str(store), "--images", str(images)]
    words += ["--split", split] if split != "all" else []
    words += ["--baseline", str(baseline)] if baseline is not None else []
    words += ["--mistakes-first"] if mistakes_first else []
    return shlex.join(words)


def _flattered(split: str) -> list[str]:
    if split not in ("train", "all"):
        return []
    return ["These may be images that the model was trained on: accuracy is flattered."]


def _accuracy(model: Any, rows: EmbeddingStore) -> float | None:
    return None if model is None else float(model.score(rows, rows.y))
