"""`ccr evaluate` and `ccr audit`: a model measured on a store, and whether its concepts still see what their names
say."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ccr.cli.common import All, Json, ModelFolder, ModelStore, Split, console, fitting, note, print_json
from ccr.cli.common_data import measured_stability, split_of
from ccr.cli.common_photo import MOST_CLASSES, evaluation_table, note_few, plain_table, show_knowledge, show_sets
from ccr.utils.texts import listed, share_text

if TYPE_CHECKING:
    import numpy as np

    from ccr.controls import CrossValidation
    from ccr.data.store import EmbeddingStore
    from ccr.explain import Audit
    from ccr.metrics import Evaluation

#: Pairs of classes that are listed.
MOST_PAIRS = 8
#: With more classes than this there is no matrix, only the pairs.
MOST_MATRIX = 12
#: Concepts that do not transfer, named at most; --json has all.
MOST_NAMED = 20


def evaluate(
    model: ModelFolder,
    store: ModelStore,
    split: Split = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Also cross-validate the model's settings on all images of the store: a refit for each of so many "
            "folds, with copies and groups (`ccr embed --group`) in one fold.",
        ),
    ] = None,
    stability: Annotated[
        bool,
        typer.Option(
            "--stability",
            help="Also fit five times again, with other seeds and samples of the training images, and say how much of "
            "what is shown stays.",
        ),
    ] = False,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy with its interval, classes that are mistaken for each other, concepts and fidelity.

    It prints accuracy, how many concepts an image shows, fidelity of concepts to their texts; macro F1, calibration
    error, top-5 accuracy where there are more than ten classes; which classes are mistaken for which, the most frequent
    pairs first, with precision and recall by class; of a model fitted with --coverage, also how often its prediction
    sets hold the true class; of one fitted with --knowledge, also claims, truth and transfer.

    Example: `ccr evaluate photos-model photos-store --split test`

    Of few photos: `ccr evaluate photos-model photos-store --folds 5 --stability`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.model import ConceptModel

    loaded, opened = ConceptModel.load(model), EmbeddingStore.open(store)
    name, rows = split_of(opened, split)
    evaluation = loaded.evaluate(rows)
    counts, labels = _confusion(loaded, rows)
    calibration = loaded.calibration
    sets = None if calibration is None else loaded.evaluate_sets(rows)
    crossed = None if folds is None else _cross_validated(model, opened, folds)
    steady = measured_stability(model, opened, rows) if stability else None
    if as_json:
        known: dict[str, Any] = {}
        if sets is not None and calibration is not None:
            known |= {"sets": sets.to_dict(), "temperature": calibration.temperature}
        known |= {"confusions": _pairs(counts, labels), "precision": _shares(counts, labels, axis=0)}
        known |= {"recall": _shares(counts, labels, axis=1)}
        known |= {} if crossed is None else {"cross_validation": crossed.to_dict()}
        known |= {} if steady is None else {"stability": steady.to_dict()}
        print_json({"model": str(model), "store": str(store), "split": name, **evaluation.to_dict(), **known})
        return
    title = f"Measured on {evaluation.n} images, split {name}"
    console.print(evaluation_table({str(model): evaluation}, title))
    note_few(evaluation.n)
    top5 = f" top-5 accuracy {evaluation.top5:.1%};" if len(evaluation.per_class) > 10 else ""
    console.print(
        f"macro F1 {evaluation.macro_f1:.3f};{top5} calibration error "
        f"{100 * evaluation.calibration_error:.1f} points between confidence and accuracy",
    )
    show_knowledge({str(model): evaluation})
    if sets is not None and calibration is not None:
        show_sets(sets, calibration)
    console.print(_class_table(evaluation, counts, labels, everything=everything))
    _show_confusions(counts, labels)
    if crossed is not None:
        _show_folds(crossed)
    if steady is not None:
        from ccr.controls import stability_sentence

        console.print(stability_sentence(steady))


def _confusion(model: Any, rows: EmbeddingStore) -> tuple[np.ndarray, list[str]]:
    """Images by true and predicted class (C, C), and the classes: the model's, and those that it does not know."""
    import numpy as np

    truth, predicted = rows.y.astype(str).tolist(), model.predict(rows).astype(str).tolist()
    labels = list(dict.fromkeys([*map(str, model.classes), *sorted(set(truth))]))
    number = {label: at for at, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(counts, ([number[label] for label in truth], [number[label] for label in predicted]), 1)
    return counts, labels  # scikit-learn's confusion_matrix is the same, and takes half a second to import


def _pairs(counts: np.ndarray, labels: list[str]) -> list[dict[str, Any]]:
    """The classes that are mistaken for another, the most images first."""
    pairs = [
        {"true": true, "predicted": guessed, "images": images}
        for true, row in zip(labels, counts.tolist(), strict=True)
        for guessed, images in zip(labels, row, strict=True)
        if images and guessed != true
    ]
    return sorted(pairs, key=lambda pair: -pair["images"])


def _shares(counts: np.ndarray, labels: list[str], *, axis: int) -> dict[str, float | None]:
    """The share of right ones among the images predicted as each class (axis 0), or of it (axis 1); None of none."""
    right, totals = counts.diagonal(), counts.sum(axis=axis)
    return {label: float(right[at] / totals[at]) if totals[at] else None for at, label in enumerate(labels)}


def _cross_validated(path: Path, store: EmbeddingStore, folds: int) -> CrossValidation:
    from ccr.classifier import ConceptClassifier
    from ccr.controls import cross_validate

    rows = store.with_labels() or store
    with fitting() as tell:
        model, jobs = ConceptClassifier.load(path), min(folds, os.cpu_count() or 1)
        return cross_validate(model, rows, rows.y, groups=rows.groups, folds=folds, jobs=jobs, tell=tell)


def _class_table(evaluation: Evaluation, counts: np.ndarray, labels: list[str], *, everything: bool) -> Table:
    """Classes from the hardest to the easiest, with how far a prediction of each can be trusted."""
    precision = _shares(counts, labels, axis=0)
    classes = sorted(evaluation.per_class.items(), key=lambda item: (item[1], str(item[0])))
    shown = classes if everything else classes[:MOST_CLASSES]
    part = "" if len(shown) == len(classes) else f", {len(shown)} of {len(classes)} classes; the others with --all"
    rows = [
        (str(name), f"{evaluation.class_images[name]:,}", f"{recall:.1%}", _share_text(precision[str(name)]))
        for name, recall in shown
    ]
    caption = "recall: of its images, how many are found; precision: of the images called so, how many are"
    return plain_table(f"Hardest first{part}", ("class", "images", "recall", "precision"), rows, caption=caption)


def _share_text(share: float | None) -> str:
    return "never" if share is None else f"{share:.1%}"


def _show_confusions(counts: np.ndarray, labels: list[str]) -> None:
    """The worst pairs, and of few classes the whole matrix."""
    pairs = _pairs(counts, labels)
    if not pairs:
        console.print("No image is mistaken for another class.")
        return
    worst = [(pair["true"], pair["predicted"], str(pair["images"])) for pair in pairs[:MOST_PAIRS]]
    console.print(plain_table("Mistaken most often", ("it is", "called", "images"), worst, texts=(0, 1)))
    if len(pairs) > MOST_PAIRS:
        console.print(f"... and {len(pairs) - MOST_PAIRS} other pairs; --json lists them all")
    if len(labels) <= MOST_MATRIX:
        console.print(_matrix(counts, labels))


def _matrix(counts: np.ndarray, labels: list[str]) -> Table:
    """Images by true class (rows) and predicted class (columns, by the number before the name)."""
    rows = []
    for number, (label, row) in enumerate(zip(labels, counts.tolist(), strict=True)):
        cells: list[str | Text] = [f"{count or '·'}" for count in row]
        cells[number] = Text(str(row[number]), "bold")
        rows.append([f"{number + 1} {label}", *cells])
    title = "Rows: the true class; columns: what it is called, by number"
    return plain_table(title, ["", *map(str, range(1, len(labels) + 1))], rows)


def _show_folds(found: CrossValidation) -> None:
    by_fold = ", ".join(f"{share:.1%}" for share in found.by_fold)
    grouped = found.groups <= 0.9 * found.n  # copies alone are no groups
    joined = f" in {found.groups:,} groups" if grouped else ""
    console.print(
        f"Cross-validation: {found.accuracy:.1%} ({found.interval.low:.1%} to {found.interval.high:.1%}) of the "
        f"{found.n:,} images{joined} are right, each predicted by a refit that did not see it; "
        f"the {found.folds} folds: {by_fold}",
    )
    if not grouped:
        note("photos of one object in several folds flatter: ccr embed --group keeps them together")


def audit(
    model: ModelFolder,
    store: Annotated[
        Path | None, typer.Argument(help="Store: measure on its images, and list those gained and lost.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of concepts to show.")] = 20,
    split: Split = None,
    as_json: Json = False,
) -> None:
    """Show whether each concept still sees what its text sees, doubtful ones first.

    Its fidelity is the correlation of its scores with those of its own text, on the images of a store, or, without one,
    as measured on the training images. With a store also the images gained and lost: those that show the concept only
    by the model, or only by its text, at the same number of concepts per image. Of a model fitted with knowledge also
    each concept's transfer: does it recognise classes that it was not told about? Fidelity is not truth: concepts
    without knowledge are unverified, flagged or not.

    Example: `ccr audit photos-model photos-store --top 10`
    """
    from ccr.model import ConceptModel

    if split is not None and store is None:
        raise typer.BadParameter(f"--split {split} is a part of a store: give the store, too")
    loaded = ConceptModel.load(model)
    if store is None:
        drift = loaded.audit()
    else:
        from ccr.data.store import EmbeddingStore

        drift = loaded.audit(split_of(EmbeddingStore.open(store), split, labelled=False)[1])
    if as_json:
        print_json({"model": str(model), **drift.to_dict(top=top)})
        return
    console.print(_audit_table(drift, top))
    _audit_legend(drift, informed=loaded.provenance.knowledge is not None)


def _audit_table(drift: Audit, top: int) -> Table:
    known, informed = drift.fidelity, drift.transfer is not None
    unknown = known is None or math.isnan(known.mean)
    said = "fidelity unknown" if unknown else f"mean fidelity {known.mean:.2f}, lowest {known.min:.2f}"  # type: ignore[union-attr]
    flagged = f"{len(drift.flagged)} of {len(drift.concepts)} concepts flagged for drift"
    measured = ("images", "gained", "lost", "same") if drift.n else ()
    headings = ("concept", "flags", "fidelity", *(("transfer",) if informed else ()), *measured)
    rows = []
    for item in drift.concepts[:top]:
        cells: list[str | Text] = [item.concept, Text(", ".join(item.flags), "dark_orange3")]
        cells.append("" if item.fidelity is None else f"{item.fidelity:.2f}")
        if informed:
            cells.append("unverified" if item.transfer is None else f"{item.transfer:.2f}")
        if item.overlap is not None:
            cells += [str(item.active_after), str(item.gained), str(item.lost), share_text(item.overlap)]
        rows.append(cells)
    return plain_table(f"{flagged}; {said}; {drift.unverified} unverified", headings, rows, texts=(0, 1))


def _audit_legend(drift: Audit, *, informed: bool) -> None:
    from ccr.explain.drift import FLAGS, GROUNDED, NOT_TRUTH, TRANSFERS

    where = f"these {drift.n} images" if drift.n else "the training images"
    lines = [f"fidelity: correlation of a concept's scores with those of its own text, on {where}"]
    lines += [GROUNDED] if informed else []
    if drift.n:
        lines.append("images: those that show the concept; gained: only by the model; lost: only by its text")
        lines.append("same: those that show it by both / by either")
    present = {flag for item in drift.concepts for flag in item.flags}
    lines += [f"flag {flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in present]
    if drift.transfer is not None:
        lines.append(
            f"transfer: AUC of a concept's scores on classes that it was not told about, 0.5 is chance; mean "
            f"{drift.transfer:.2f}"
        )
    few = [item.concept for item in drift.not_transferring]
    if few:
        lines.append(f"transfer below {TRANSFERS:g} ({len(few)}): {listed(few, MOST_NAMED, ' and {} more')}")
    for line in [*lines, drift.footnote, NOT_TRUTH]:
        console.print(escape(line), style="dim")
