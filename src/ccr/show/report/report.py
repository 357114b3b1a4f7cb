"""The report as one page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import ccr
from ccr.classifier import ConceptClassifier
from ccr.errors import CCRError
from ccr.explain import Counterfactual, Explanation, Mistake, ModelView
from ccr.explain.explanation import overlap
from ccr.explain.terms import signed_name
from ccr.model import ConceptModel
from ccr.refine.region import chosen_fidelity
from ccr.show import model_plots, page, plots
from ccr.show import pictures as where_pictures
from ccr.show.pictures import Pictures
from ccr.show.report import classes
from ccr.show.report import classes as concepts
from ccr.show.report.classes import Measured, check_baseline, headline
from ccr.space import Symmetric
from ccr.utils.processes import Tell, no_progress
from ccr.utils.texts import percent, without_folders

# Explained predictions of a report.
#: Concepts of a card.
TOP = 8
#: Concepts of a card that are drawn on the picture.
DRAWN = 4
#: From a picture to its explanation with `where`.
Locate = Callable[[Any], Explanation]


def gallery_rows(
    truth: np.ndarray, right: np.ndarray, confidence: np.ndarray, *, count: int, mistakes: bool
) -> list[int]:
    """Rows of at most `count` images to show: an even sample over the classes, or mistakes first.

    Mistakes: the surest one of every class, then the second of every class, and so on; the rest is sampled from the
    right ones. `truth` (m,) are labels, `right` (m,) booleans, `confidence` (m,) probabilities of the predictions.
    """
    chosen: list[int] = []
    if mistakes:
        wrong = np.flatnonzero(~right)
        wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
        turn = _turns(truth[wrong])
        chosen = wrong[np.argsort(turn, kind="stable")][:count].tolist()
    pool = np.flatnonzero(right) if mistakes else np.arange(len(truth))
    pool = pool[np.argsort(truth[pool], kind="stable")]
    rest = min(count - len(chosen), len(pool))
    picks = (np.arange(rest) + 0.5) * len(pool) / max(rest, 1)
    return chosen + pool[picks.astype(int)].tolist()


def cards(
    rows: Any,
    truth: np.ndarray,
    explained: Mapping[int, Explanation],
    *,
    view: ModelView,
    pictures: Pictures,
    baseline: Measured | None,
    locate: Locate | None = None,
    located: int = 0,
) -> Iterator[str]:
    """One card per explained row: the sum, what would change it, and for mistakes why not the true class; on the first
    `located` of them, where in the picture."""
    for number, (row, explanation) in enumerate(explained.items()):
        more = [counterfactual(explanation.counterfactual())]
        if locate is not None and number < located:
            more.append(_where(rows, row, locate))
        if str(explanation.prediction) != str(truth[row]):
            more.append(_mistake(explanation.mistake(truth[row], view=view, top=5)))
        if baseline is not None:
            more.append(beside(baseline.model.explain(rows[row]), explanation, truth[row]))
        caption = f"image {pictures.name(row)}"
        yield page.explanation_card(
            explanation, pictures.of(row), truth=truth[row], caption=caption, more=more, top=TOP
        )


def _where(rows: Any, row: int, locate: Locate) -> str:
    """Maps on the picture, to unfold; nothing where the picture cannot be read."""
    try:
        image = rows.image(row)
    except (CCRError, OSError, AttributeError):
        return ""
    where = locate(image).where
    return "" if where is None else page.details("Where in the picture", where_pictures.strip(where, image, top=DRAWN))


def counterfactual(change: Counterfactual | None) -> str:
    """Counterfactual as a sentence: the concepts whose removal would change the prediction."""
    if change is None:
        return '<div class="muted">No removal of active concepts would change the prediction.</div>'
    removed = ", ".join(f"“{page.name(signed_name(term))}”" for term in change.removed[:TOP])
    rest = f" and {len(change.removed) - TOP} others" if len(change.removed) > TOP else ""
    return f'<div class="muted">Without {removed}{rest} it would be {page.name(change.becomes)}.</div>'


def _mistake(mistake: Mistake) -> str:
    parts = [page.contrast(mistake.contrast, TOP)]
    if mistake.missing:
        rows = [
            (signed_name(item), item.contribution, f"{item.share:.0%} of the class's images show it")
            for item in mistake.missing
        ]
        parts.append(f'<p class="verdict">Concepts of {page.name(mistake.truth)} missing here</p>{page.bars(rows)}')
        parts.append('<div class="muted">what each adds to that class in the images that show it</div>')
    summary = f"Why not {page.name(mistake.truth)}? It came {_ordinal(mistake.rank)}, {percent(mistake.probability)}"
    return page.details(summary, "".join(parts))


def beside(theirs: Explanation, ours: Explanation, truth: Any | None = None, *, top: int = TOP) -> str:
    """Another model's explanation of the same image, to unfold."""
    body = page.verdict(theirs, truth) + page.terms(theirs.bias, theirs.contributions, top)
    right = "" if truth is None else ", right" if str(theirs.prediction) == str(truth) else ", wrong"
    prediction = f"{page.name(theirs.prediction)}, {percent(theirs.probability)}"
    return page.details(f"Baseline: {prediction}{right}; {overlap(ours, theirs):.0%} of concepts shared", body)


def _turns(labels: np.ndarray) -> np.ndarray:
    """For each entry, how many before it have the same label."""
    seen: dict[Any, int] = {}
    turns = np.empty(len(labels), np.int64)
    for entry, label in enumerate(labels.tolist()):
        turns[entry] = seen.get(label, 0)
        seen[label] = int(turns[entry]) + 1
    return turns


def _ordinal(rank: int) -> str:
    ending = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{ending}"


SECTIONS = {
    "numbers": "Numbers",
    "gallery": "Predictions",
    "classes": "Classes",
    "concepts": "Concepts",
    "fidelity": "Fidelity",
    "edits": "Edits",
    "settings": "Settings",
}
#: Rows read at a time.
CHUNK = 8192


def report_page(
    model: ConceptModel | ConceptClassifier,
    rows: Any,
    *,
    baseline: ConceptModel | ConceptClassifier | None = None,
    probe: float | None = None,
    mistakes_first: bool = False,
    images: int = 24,
    title: str = "Report",
    notes: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
    locate: Locate | None = None,
    located: int = 6,
    tell: Tell = no_progress,
) -> str:
    """A model on the labelled `rows` (an embedding store, or a part of one) as one static page.

    Parameters
    ----------
    rows : EmbeddingStore
        m embeddings with labels `y` (m,); images that cannot be read are named instead of shown.
    baseline : ConceptModel, ConceptClassifier or None
        Another model to compare with.
    probe : float or None
        A linear probe's accuracy on the same rows, in [0, 1].
    images : int
        Number of explained predictions, at least 0; `mistakes_first` shows wrong ones before right ones.
    notes : sequence of str
        Sentences at the top of the page.
    facts : sequence of (name, value)
        Joined to the settings at the end.
    locate : callable, optional
        From a picture to its explanation with `where`, which the first `located` explained predictions then show.
    """
    tell(0, len(SECTIONS), "measuring")
    ours = Measured.on(model, rows)
    if baseline is not None:
        check_baseline(baseline, rows)
    theirs = None if baseline is None else Measured.on(baseline, rows)
    pictures, view = Pictures(rows), ours.model.view(rows)
    parts = {"numbers": headline(ours, theirs, probe, rows.y)}
    made = partial(cards, view=view, pictures=pictures, baseline=theirs, locate=locate, located=located)
    parts |= _explained(ours, theirs, rows, view, pictures, images, tell, made, mistakes_first=mistakes_first)
    parts |= _concepts(ours, rows, view, pictures, tell)
    parts["settings"] = [page.table(("what", ""), [*facts, *_settings(ours.model, rows)], texts=(1,))]
    tell(len(SECTIONS), len(SECTIONS), "done")
    return page.page(title, [_top(title, parts, [*notes, *_missing(pictures)]), *_bodies(parts)])


def _explained(
    ours: Measured,
    theirs: Measured | None,
    rows: Any,
    view: ModelView,
    pictures: Pictures,
    images: int,
    tell: Tell,
    cards: Callable[..., Iterable[str]],
    *,
    mistakes_first: bool,
) -> dict[str, list[str]]:
    """The sections of single predictions and of classes."""
    tell(1, len(SECTIONS), "explaining predictions")
    truth, confidence = rows.y, _confidence(ours.model, rows)
    right = np.asarray(ours.predictions == truth)
    chosen = gallery_rows(truth, right, confidence, count=images, mistakes=mistakes_first)
    explained = {row: ours.model.explain(rows[row]) for row in chosen}
    shown = cards(rows, truth, explained)
    signed = any(term.code < 0 for explanation in explained.values() for term in explanation.contributions)
    how = _how_chosen(len(chosen), right, mistakes_first, signed=signed)
    predictions = [how, f'<div class="cards">{"".join(shown)}</div>']
    tell(2, len(SECTIONS), "classes")
    sections = classes.class_sections(view, ours, theirs, truth, confidence, pictures, rows)
    return {"gallery": predictions, "classes": [_confusion(view), *sections]}


def _concepts(ours: Measured, rows: Any, view: ModelView, pictures: Pictures, tell: Tell) -> dict[str, list[str]]:
    """The sections of concepts: how they are used, what they see, what was edited."""
    tell(3, len(SECTIONS), "concepts")
    model = ours.model
    use = concepts.use_section(view, model.coactivation(rows, top=12))
    use += concepts.photo_sections(model, rows, view, pictures)
    settings, edits = model.provenance.settings, model.provenance.edits
    least = chosen_fidelity(settings.get("radius"), settings.get("fidelity"))
    drift = concepts.drift_section(model.audit(rows), least=least, pictures=pictures)
    return {"concepts": use, "fidelity": drift} | ({"edits": concepts.edit_section(edits)} if edits else {})


def _top(title: str, parts: dict[str, list[str]], notes: Sequence[str]) -> str:
    links = "".join(f'<a href="#{key}">{SECTIONS[key]}</a> ' for key in parts)
    lines = "".join(f'<p class="muted">{page.name(note)}</p>' for note in notes)
    return f"<h1>{page.name(title)}</h1><nav>{links}</nav>{lines}"


def _bodies(parts: dict[str, list[str]]) -> list[str]:
    return [f'<h2 id="{key}">{SECTIONS[key]}</h2>\n' + "\n".join(body) for key, body in parts.items()]


def _how_chosen(count: int, right: np.ndarray, mistakes_first: bool, *, signed: bool) -> str:
    how = "mistakes first, the surest of every class" if mistakes_first else "an even sample over the classes"
    far = '; "not:" marks a concept that counts by being far from the image' if signed else ""
    return (
        f"<p>{count} of {len(right):,} images, {how}; {int((~right).sum()):,} of all are wrong. Every prediction "
        "is an exact sum: a bias and, for each concept that the image shows, a contribution: its code (how strongly) "
        "x its weight (for the class). Blue speaks for the class, "
        f"orange against it{far}.</p>"
    )


def _confusion(view: ModelView) -> str:
    drawn = plots.png(model_plots.confusion_map(view), dpi=90)
    return page.details("Map of errors", page.drawing(drawn, "errors by true and predicted class"))


def _missing(pictures: Pictures) -> list[str]:
    if not pictures.missing:
        return []
    count = "1 image" if pictures.missing == 1 else f"{pictures.missing:,} images"
    return [f"{count} could not be read; the first: {pictures.reason}"]


def _settings(model: ConceptModel, rows: Any) -> list[tuple[str, str]]:
    made, head = model.provenance, model.head
    encoder = without_folders(made.encoder or "unknown")
    facts = [
        ("images", f"{len(rows):,}, embeddings {_digest(_chunks(rows))}"),
        ("classes", f"{len(model.classes):,}"),
        ("concepts", f"{len(model.concepts):,}"),
        (
            "encoder",
            f"{encoder}, fingerprint {made.encoder_fingerprint or 'unknown'}",
        ),
        ("weights", _digest([model.concepts.embeddings, head.coef, head.intercept])),
        ("threshold", f"{model.rule.threshold:.4g}"),
        ("epochs", f"{made.epochs}; the model is that of epoch {made.best_epoch}"),
        ("library", f"ccr {ccr.__version__}"),
    ]
    return [*facts, *_settings_used(model)]


def _settings_used(model: ConceptModel) -> list[tuple[str, str]]:
    """The settings that the fit worked with: those that were given, and what was chosen where none was."""
    made = model.provenance
    used = dict(made.settings)
    fidelity = chosen_fidelity(used.get("radius"), used.get("fidelity"))
    chosen: dict[str, Any] = {"fidelity": fidelity, "max_iter": made.epochs}
    length = getattr(model.rule, "length", None)
    if length is not None:
        chosen["coder"] = f"the default, {length:.1f} concepts an image"
    used |= {name: value for name, value in chosen.items() if name in used and used[name] is None}
    if "weights_per_class" in used and used["weights_per_class"] is None:
        used["weights_per_class"] = "all"
    if used.get("dispersion") == "auto":
        used["dispersion"] = Symmetric(0.9)
    listed = ", ".join(f"{name}={value!r}" for name, value in sorted(used.items()) if value is not None)
    none = ", ".join(name for name, value in sorted(used.items()) if value is None)
    return [("settings", listed), *([("not set, or by the size of the data", none)] if none else [])]


def _confidence(model: ConceptModel, rows: Any) -> np.ndarray:
    """The probability of each prediction (m,), without holding all classes' at once."""
    return np.concatenate([model.predict_proba(chunk).max(axis=1) for chunk in _chunks(rows)])


def _chunks(rows: Any) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), CHUNK):
        yield np.asarray(rows[start : start + CHUNK])


def _digest(arrays: Iterable[np.ndarray]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what the arrays hold."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
