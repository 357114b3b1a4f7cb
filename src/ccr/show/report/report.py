"""The report as one page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import ccr
from ccr.core.explain import ModelView
from ccr.models.bound import chosen_fidelity
from ccr.models.classifier import ConceptClassifier
from ccr.models.concept_model import ConceptModel
from ccr.progress import Tell, no_progress
from ccr.show import model_plots, page, plots
from ccr.show.report import classes, concepts, gallery
from ccr.show.report.headline import Measured, check_baseline, headline
from ccr.show.report.pictures import Pictures

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
    locate: gallery.Locate | None = None,
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
    cards = partial(gallery.cards, view=view, pictures=pictures, baseline=theirs, locate=locate, located=located)
    parts |= _explained(ours, theirs, rows, view, pictures, images, tell, cards, mistakes_first=mistakes_first)
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
    chosen = gallery.gallery_rows(truth, right, confidence, count=images, mistakes=mistakes_first)
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
        "is an exact sum: a bias and a contribution (code x weight) of each active concept. Blue speaks for the class, "
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
    facts = [
        ("images", f"{len(rows):,}, embeddings {_digest(_chunks(rows))}"),
        ("classes", f"{len(model.classes):,}"),
        ("concepts", f"{len(model.concepts):,}"),
        ("encoder", f"{made.encoder or 'unknown'}, fingerprint {made.encoder_fingerprint or 'unknown'}"),
        ("weights", _digest([model.concepts.embeddings, head.coef, head.intercept])),
        ("threshold", f"{model.rule.threshold:.4g}"),
        ("epochs", f"{made.epochs}, kept {made.best_epoch}"),
        ("library", f"ccr {ccr.__version__}"),
    ]
    settings = ", ".join(f"{name}={value!r}" for name, value in sorted(made.settings.items()))
    return [*facts, ("settings", settings)]


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
