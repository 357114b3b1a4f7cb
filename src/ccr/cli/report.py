"""`ccr report`: a model and a store as one static page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Json, ModelEncoder, ModelFolder, ModelStore, Split, console, fitting, note, print_json
from ccr.cli.common_data import measured_stability, model_encoder, split_of
from ccr.errors import CCRError
from ccr.io.files import write_bytes
from ccr.io.remote import is_url
from ccr.utils.texts import without_folders

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier
    from ccr.data.store import EmbeddingStore
    from ccr.model import ConceptModel
    from ccr.show.report import Locate
    from ccr.utils.processes import OnProgress

#: With more training images than this the linear probe is left out unless asked for.
MOST_PROBED = 20_000
FLATTERED = "These may be images that the model was trained on: accuracy is flattered."


class Compared(NamedTuple):
    """Baselines of a report: a model without refinement, where it is from, a linear probe's accuracy, and notes."""

    baseline: ConceptModel | None
    described: str
    probe: float | None
    notes: list[str]


def report(
    model: ModelFolder,
    store: ModelStore,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    baseline: Annotated[Path | None, typer.Option(help="Folder of a model to compare with.")] = None,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Do not fit a baseline (the same settings, unrefined) either.")
    ] = False,
    probe: Annotated[
        bool | None, typer.Option(help="Measure a linear probe. Default: if there are at most 20,000 training images.")
    ] = None,
    mistakes_first: Annotated[bool, typer.Option("--mistakes-first", help="Show wrong predictions first.")] = False,
    images: Annotated[int, typer.Option(min=0, help="Number of explained predictions to show.")] = 24,
    split: Split = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page. Default: made of the model's name.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where the images are now, if they moved.")] = None,
    where: Annotated[
        int, typer.Option(min=0, help="Number of predictions shown with maps over the picture, if the encoder can.")
    ] = 6,
    encoder: ModelEncoder = None,
    stability: Annotated[
        bool,
        typer.Option("--stability", help="Also fit five times again, and say how much of what is shown stays."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write one self-contained page: numbers beside a baseline and a linear probe, explained predictions, classes,
    fidelity of the concepts to their texts, edits, and the settings needed to reproduce it.

    Without --baseline, one is fitted on the split `train`: the model's settings, without refinement.

    Example: `ccr report photos-model photos-store --out report.html --mistakes-first`
    """
    from ccr.classifier import ConceptClassifier
    from ccr.data.store import EmbeddingStore
    from ccr.show.report import report_page

    if baseline is not None and no_baseline:
        raise typer.BadParameter("give --baseline or --no-baseline, not both")
    started = time.monotonic()
    loaded, opened = ConceptClassifier.load(model), EmbeddingStore.open(store, data=data)
    name, rows = split_of(opened, split)
    options: dict[str, Any] = {"--images": images, "--split": None if name == "all" else name, "--baseline": baseline}
    options |= {"--no-baseline": no_baseline, "--probe": probe, "--mistakes-first": mistakes_first, "--title": title}
    options |= {"--data": data, "--where": where, "--encoder": encoder, "--stability": stability}
    notes = [FLATTERED] if name in ("train", "all") else []
    locate, unlocated = _locate(loaded, encoder) if min(where, images) else (None, [])
    steady = measured_stability(model, opened, rows) if stability else None
    facts = [("model", _name(model)), ("store", f"{_name(store)}, split {name}")]
    with fitting() as tell:
        compared = _compared(loaded, opened, rows, baseline, fit=not no_baseline, probe=probe, tell=tell)
        facts += [("baseline", compared.described), ("made by", _command(model, store, options))]
        shown: dict[str, Any] = {"images": images, "mistakes_first": mistakes_first, "located": where}
        html = report_page(
            loaded.model_,
            rows,
            baseline=compared.baseline,
            probe=compared.probe,
            stability=steady,
            notes=[*notes, *compared.notes, *unlocated],
            locate=locate,
            title=title or _title(model, loaded),
            facts=facts,
            tell=tell,
            **shown,
        )
    content = html.encode(errors="replace")
    write_bytes(out, content)
    seconds, accuracy = time.monotonic() - started, loaded.score(rows, rows.y)
    if as_json:
        measured = {"report": str(out), "split": name, "images": len(rows), "accuracy": accuracy}
        measured |= {"linear_probe": compared.probe, "bytes": len(content), "seconds": round(seconds, 2)}
        beside = None if compared.baseline is None else float(compared.baseline.score(rows, rows.y))
        print_json({**measured, "baseline": beside})
        return
    for line in compared.notes:
        note(f"note: {line}")
    console.print(f"{accuracy:.1%} of {len(rows)} images right, split {escape(name)}")
    console.print(f"The report is {escape(str(out))}: {len(content) / 1e6:.1f} MB in {seconds:.0f} s")


def _locate(model: ConceptClassifier, spec: str | None) -> tuple[Locate | None, list[str]]:
    """Function from a picture to its explanation with maps, if the model's encoder is here and can; else a note."""
    from ccr.photos.on_photos import explain_image, why_not_exact

    if model.encoder_ is None and spec is None:
        return None, []
    try:
        encoder = model_encoder(model.model_, spec)
    except CCRError as error:
        return None, [f"Where in the picture is not shown: {error}"]
    reason = why_not_exact(encoder)
    if reason is not None:
        return None, [f"Where in the picture is not shown, because it would take long: {reason}."]
    return lambda image: explain_image(model, encoder, image), []


def _title(path: Path, model: ConceptClassifier) -> str:
    """Heading of the report, such as "fruit: 14 classes explained by 131 concepts". A folder called `model` takes the
    name of its parent."""
    folder = path.resolve()
    name = folder.parent.name if folder.name in ("model", "") else folder.name
    heading = f"{len(model.classes_):,} classes explained by {len(model.concepts_):,} concepts"
    return f"{name}: {heading}" if name else heading


def _compared(
    model: ConceptClassifier,
    store: EmbeddingStore,
    rows: EmbeddingStore,
    given: Path | None,
    *,
    fit: bool,
    probe: bool | None,
    tell: OnProgress,
) -> Compared:
    from ccr.model import ConceptModel
    from ccr.refine.region import chosen_radius
    from ccr.show.report import check_baseline

    baseline, notes = None if given is None else ConceptModel.load(given), []
    described = "none" if given is None else _name(given)
    if baseline is not None:
        check_baseline(baseline, rows)
    if "train" not in set(store.splits):
        notes.append("The store has no split train: no baseline is fitted and no linear probe.")
        return Compared(baseline, described, None, notes)
    train, probed = store.select("train"), None
    if given is None and fit and chosen_radius(model.radius, model.fidelity) == 0:
        notes.append("The model's concepts stayed where they started: it is its own baseline.")
    elif given is None and fit:
        fitted = _unfitted_baseline(model).fit(
            store, callback=lambda epoch, epochs: tell(epoch.epoch, epochs, "fitting a baseline")
        )
        baseline, described = fitted.model_, "fitted here on the split train: the same settings, concepts stay"
        if _fewer_known(model):
            left_out = len(model.model_.provenance.left_out)
            notes.append(f"The baseline has the concepts that the model kept, without the {left_out} that it left out.")
    if probe or (probe is None and len(train) <= MOST_PROBED):
        probed = _probe(train, rows, notes, tell)
    elif probe is None:
        notes.append(f"No linear probe: {len(train):,} training images are many; ask for it with --probe.")
    return Compared(baseline, described, probed, notes)


def _name(place: Path) -> str:
    """A folder by its name and that of the one above it: the page may be mailed."""
    return str(place) if is_url(place) else without_folders(str(place.resolve()))


def _fewer_known(model: ConceptClassifier) -> bool:
    """Is this a model of an older version, which knows only the concepts that it kept?"""
    origin = model.model_.provenance
    return bool(origin.left_out) and origin.left_out_texts is None


def _unfitted_baseline(model: ConceptClassifier) -> ConceptClassifier:
    """The model's settings and its whole list of concepts, which stay; of its own length, if it knows fewer."""
    from ccr.classifier import ConceptClassifier
    from ccr.coding import HardThreshold, Sign, ThresholdRule
    from ccr.refine.region import unrefined

    settings, rule = unrefined(model.get_params(deep=False)), model.rule_
    if _fewer_known(model) and isinstance(rule, ThresholdRule) and rule.length is not None:
        sign: Sign = "positive" if rule.positive else "both"
        settings["coder"] = HardThreshold(length=max(1.0, rule.length), sign=sign)
    return ConceptClassifier(**settings)


def _probe(train: EmbeddingStore, rows: EmbeddingStore, notes: list[str], tell: OnProgress) -> float | None:
    import numpy as np

    from ccr.controls import probe_accuracy
    from ccr.labels import Part

    counts = np.unique(train.y, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < 3:
        notes.append("No linear probe: it needs two classes and three training images of each.")
        return None
    tell(0, 1, "linear probe")
    return probe_accuracy(Part.of(train), Part.of(rows))


def _command(model: Path, store: Path, options: Mapping[str, Any]) -> str:
    """The call that makes this page again, of absolute paths their ends; of options that are on or off, those that
    were given."""
    words = ["ccr", "report", without_folders(str(model)), without_folders(str(store))]
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is False:
            words += ["--no-probe"] if name == "--probe" else []
        elif value is not None:
            words += [name, without_folders(str(value))]
    return shlex.join(words)
