"""The report: a fitted model, and data to show it on, as one static page."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

import ccr
from ccr.classifier import ConceptClassifier
from ccr.errors import CCRError
from ccr.explain import (
    Audit,
    CarryingConcept,
    ClassView,
    Coactivation,
    ConceptDrift,
    Confusion,
    Counterfactual,
    Explanation,
    ImageActivation,
    Mistake,
    ModelView,
)
from ccr.explain.claims import Claim
from ccr.explain.drift import FLAGS, GROUNDED, NOT_TRUTH, TRANSFERS
from ccr.explain.explanation import overlap
from ccr.explain.terms import signed_name
from ccr.io.provenance import signature_sentence
from ccr.metrics import Evaluation, wilson_interval
from ccr.model import ConceptModel
from ccr.refine.region import bound_text, chosen_fidelity
from ccr.show import page, plots
from ccr.show import pictures as where_pictures
from ccr.show.pages import claims_in_words, claims_table, count_claims, edit_rows, knowledge_in_words
from ccr.show.pictures import TINY, Pictures
from ccr.space import Symmetric
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import counted, fidelity_text, listed, percent, share_text, without_folders

if TYPE_CHECKING:
    from ccr.controls import Stability

SECTIONS = {
    "numbers": "Numbers",
    "gallery": "Predictions",
    "classes": "Classes",
    "concepts": "Concepts",
    "fidelity": "Fidelity",
    "edits": "Edits",
    "settings": "Settings",
}
#: From a picture to its explanation with `where`.
Locate = Callable[[Any], Explanation]
#: Concepts of a card or a list, and those that are drawn on the picture.
TOP, DRAWN = 8, 4
#: Rows read at a time.
CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on the rows of a report: what `evaluate` measured and what it predicted (m,)."""

    model: ConceptModel
    evaluation: Evaluation
    predictions: np.ndarray

    @classmethod
    def on(cls, model: Any, rows: Any) -> Measured:
        """Evaluate a `ConceptModel`, or the estimator that fitted it, on labelled rows."""
        model = getattr(model, "model_", model)
        return cls(model, model.evaluate(rows), model.predict(rows))


def report_page(
    model: ConceptModel | ConceptClassifier,
    rows: Any,
    *,
    baseline: ConceptModel | ConceptClassifier | None = None,
    probe: float | None = None,
    mistakes_first: bool = False,
    images: int = 24,
    title: str = "Report",
    stability: Stability | None = None,
    notes: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
    locate: Locate | None = None,
    located: int = 6,
    tell: OnProgress = no_progress,
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
    stability : Stability, optional
        How much of what is shown stays in refits, as `ccr.controls.stability` measures it.
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
    fitted, pictures, view = ours.model, Pictures(rows), ours.model.view(rows)
    parts = {"numbers": headline(ours, theirs, probe, rows.y)}
    if stability is not None:
        from ccr.controls import stability_sentence  # scikit-learn takes a while to import

        parts["numbers"].append(f"<p>{escape(stability_sentence(stability))}</p>")

    tell(1, len(SECTIONS), "explaining predictions")
    confidence = np.concatenate([fitted.predict_proba(chunk).max(axis=1) for chunk in _chunks(rows)])
    right = np.asarray(ours.predictions == rows.y)
    chosen = gallery_rows(rows.y, right, confidence, count=images, mistakes=mistakes_first)
    explained = {row: fitted.explain(rows[row]) for row in chosen}
    cards = [
        _card(rows, row, found, view, pictures, theirs, locate if number < located else None)
        for number, (row, found) in enumerate(explained.items())
    ]
    how = _how_chosen(explained.values(), right, mistakes_first=mistakes_first)
    parts["gallery"] = [how, f'<div class="cards">{"".join(cards)}</div>']

    tell(2, len(SECTIONS), "classes")
    drawn = page.drawing(plots.png(plots.confusion_map(view), dpi=90), "errors by true and predicted class")
    sections = class_sections(view, ours, theirs, rows, confidence, pictures)
    parts["classes"] = [page.details("Map of errors", drawn), *sections]

    tell(3, len(SECTIONS), "concepts")
    settings, edits = fitted.provenance.settings, fitted.provenance.edits
    parts["concepts"] = use_section(view, fitted.coactivation(rows, top=12))
    parts["concepts"] += photo_sections(fitted, rows, view, pictures)
    least = chosen_fidelity(settings.get("radius"), settings.get("fidelity"))
    parts["fidelity"] = drift_section(fitted.audit(rows), least=least, pictures=pictures)
    if edits:
        parts["edits"] = [page.table(("", "edit", "of"), edit_rows(edits), texts=(1, 2))]
    parts["settings"] = [page.table(("what", ""), [*facts, *_settings(fitted, rows)], texts=(1,))]

    tell(len(SECTIONS), len(SECTIONS), "done")
    links = "".join(f'<a href="#{key}">{SECTIONS[key]}</a> ' for key in parts)
    lines = "".join(f'<p class="muted">{page.name(note)}</p>' for note in [*notes, *_missing(pictures)])
    top = f"<h1>{page.name(title)}</h1><nav>{links}</nav>{lines}"
    bodies = [f'<h2 id="{key}">{SECTIONS[key]}</h2>\n' + "\n".join(body) for key, body in parts.items()]
    return page.page(title, [top, *bodies])


def check_baseline(baseline: Any, rows: Any) -> None:
    """Refuse a baseline that does not know all classes of these labelled rows."""
    known = set(map(str, getattr(baseline, "model_", baseline).classes.tolist()))
    unknown = [label for label in np.unique(rows.y).tolist() if str(label) not in known]
    if unknown:
        shown = listed([repr(label) for label in unknown], 5)
        raise CCRError(
            f"the baseline must know every class of these images, but it does not know {shown}: give one "
            "that was fitted on the same classes"
        )


def _missing(pictures: Pictures) -> list[str]:
    if not pictures.missing:
        return []
    return [f"{counted(f'{pictures.missing:,}', 'image')} could not be read; the first: {pictures.reason}"]


def _chunks(rows: Any) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), CHUNK):
        yield np.asarray(rows[start : start + CHUNK])


# Numbers: the model against its baseline and the linear probe.
#: Concepts that do not transfer, named at most.
MOST_NAMED = 20


def headline(model: Measured, baseline: Measured | None, probe: float | None, truth: np.ndarray) -> list[str]:
    """The numbers in a table, and what they mean in a sentence; `probe` in [0, 1], `truth` (m,) are labels."""
    evaluation = model.evaluation
    parts = [
        f'<p><span class="big-number">{evaluation.accuracy:.1%}</span> of {evaluation.n:,} images right, with '
        f"{evaluation.length:.1f} of {len(model.model.concepts):,} concepts per image.</p>"
    ]
    rows = [("this model", *_numbers(evaluation))]
    if baseline is not None:
        rows.append((f"baseline ({bound_text(baseline.model.provenance.settings)})", *_numbers(baseline.evaluation)))
        ours, theirs = model.predictions == truth, baseline.predictions == truth
        gain = 100 * (evaluation.accuracy - baseline.evaluation.accuracy)
        parts.append(
            f"<p>{gain:+.1f} points against the baseline; images right only here: {int((ours & ~theirs).sum()):,}, "
            f"right only there: {int((theirs & ~ours).sum()):,}.</p>"
        )
    if probe is not None:
        interval = wilson_interval(round(probe * evaluation.n), evaluation.n)
        rows.append(("linear probe: no concepts, no explanation", f"{probe:.1%}", _interval(interval), *[""] * 5))
    header = ("", "accuracy", "95 % interval", "length", "in play", "weights", "fidelity", "lowest")
    parts += [
        page.table(header, rows),
        '<p class="muted">length: concepts that an image shows, on average; in play: those of them with a weight for '
        "any class; weights: per class; fidelity, mean and lowest: correlation of concepts' scores with those of their "
        "own texts over these images.</p>",
        *_knowledge(model),
    ]
    signed = signature_sentence(model.model)
    return parts if signed is None else [*parts, f"<p><strong>{page.name(signed)}</strong></p>"]


def _knowledge(measured: Measured) -> list[str]:
    """The claims, their truth and transfer, and the concepts that do not transfer; nothing without knowledge."""
    found = measured.evaluation
    if found.claims is None:
        return []
    lines = [f"<p>{escape(knowledge_in_words(found))}.</p>", f'<p class="muted">{escape(GROUNDED)}</p>']
    few = sorted((value, name) for name, value in (measured.model.transfer or {}).items() if value < TRANSFERS)
    if few:
        named = listed([f"{page.name(name)} ({value:.2f})" for value, name in few], MOST_NAMED, " and {:,} more")
        lines.append(f'<p class="muted">Transfer below {TRANSFERS:g}: {named}.</p>')
    return lines


def _numbers(found: Evaluation) -> tuple[str, ...]:
    means = (f"{value:.1f}" for value in (found.length, found.in_play, found.weights_per_class))
    return f"{found.accuracy:.1%}", _interval(found.interval), *means, *map(fidelity_text, found.fidelity)


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"


# Explained predictions.


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
        turn, seen = [], Counter[Any]()
        for label in truth[wrong].tolist():
            turn.append(seen[label])
            seen[label] += 1
        chosen = wrong[np.argsort(turn, kind="stable")][:count].tolist()
    pool = np.flatnonzero(right) if mistakes else np.arange(len(truth))
    pool = pool[np.argsort(truth[pool], kind="stable")]
    rest = min(count - len(chosen), len(pool))
    picks = (np.arange(rest) + 0.5) * len(pool) / max(rest, 1)
    return chosen + pool[picks.astype(int)].tolist()


def _how_chosen(explained: Iterable[Explanation], right: np.ndarray, *, mistakes_first: bool) -> str:
    shown = list(explained)
    signed = any(term.code < 0 for explanation in shown for term in explanation.contributions)
    how = "mistakes first, the surest of every class" if mistakes_first else "an even sample over the classes"
    far = '; "not:" marks a concept that counts by being far from the image' if signed else ""
    return (
        f"<p>{len(shown)} of {len(right):,} images, {how}; {int((~right).sum()):,} of all are wrong. Every prediction "
        "is an exact sum: a bias and, for each concept that the image shows, a contribution: its code (how strongly) "
        "x its weight (for the class). Blue speaks for the class, "
        f"orange against it{far}.</p>"
    )


def _card(
    rows: Any,
    row: int,
    explanation: Explanation,
    view: ModelView,
    pictures: Pictures,
    baseline: Measured | None,
    locate: Locate | None,
) -> str:
    """The sum of one row, what would change it, where in the picture, and for a mistake why not the true class."""
    truth, more = rows.y[row], [counterfactual(explanation.counterfactual())]
    if locate is not None:
        more.append(_where(rows, row, locate))
    if str(explanation.prediction) != str(truth):
        more.append(_mistake(explanation.mistake(truth, view=view, top=5)))
    if baseline is not None:
        more.append(beside(baseline.model.explain(rows[row]), explanation, truth))
    caption = f"image {pictures.name(row)}"
    return page.explanation_card(explanation, pictures.of(row), truth=truth, caption=caption, more=more, top=TOP)


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
    removed = listed([f"“{page.name(signed_name(term))}”" for term in change.removed], TOP, " and {} others")
    return f'<div class="muted">Without {removed} it would be {page.name(change.becomes)}.</div>'


def _mistake(mistake: Mistake) -> str:
    parts = [page.contrast(mistake.contrast, TOP)]
    if mistake.missing:
        rows = [
            (signed_name(item), item.contribution, f"{share_text(item.share)} of the class's images show it")
            for item in mistake.missing
        ]
        parts.append(f'<p class="verdict">Concepts of {page.name(mistake.truth)} missing here</p>{page.bars(rows)}')
        parts.append('<div class="muted">what each adds to that class in the images that show it</div>')
    rank = mistake.rank
    place = f"{rank}{'th' if 10 <= rank % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(rank % 10, 'th')}"
    summary = f"Why not {page.name(mistake.truth)}? It came {place}, {percent(mistake.probability)}"
    return page.details(summary, "".join(parts))


def beside(theirs: Explanation, ours: Explanation, truth: Any | None = None, *, top: int = TOP) -> str:
    """Another model's explanation of the same image, to unfold."""
    body = page.verdict(theirs, truth) + page.terms(theirs.bias, theirs.contributions, top)
    right = "" if truth is None else ", right" if str(theirs.prediction) == str(truth) else ", wrong"
    prediction = f"{page.name(theirs.prediction)}, {percent(theirs.probability)}"
    return page.details(f"Baseline: {prediction}{right}; {share_text(overlap(ours, theirs))} of concepts shared", body)


# Classes: what carries them, what they are confused with, how they look.
#: Images of a class, and of all classes together: beyond, the hardest classes have them.
EACH, MOST_IMAGES = 4, 240
#: Concepts that are named in a class's row; models with few weights per class have them all there.
MOST_REASONS = 12
#: With more classes than this, sections are folded.
MOST_OPEN = 20
#: Confusions of a class, and of a class among many.
MOST_CONFUSIONS, FEW_CONFUSIONS = 3, 1


def class_sections(
    view: ModelView, model: Measured, baseline: Measured | None, rows: Any, confidence: np.ndarray, pictures: Pictures
) -> list[str]:
    """A table of all classes, hardest first, and a section for each, as HTML; `confidence` (m,) are the probabilities
    of the model's predictions."""
    numbers = {name: number for number, name in enumerate(view.classes)}
    views = {name: view.of_class(name, top=TOP) for name, number in numbers.items() if view.images[number]}
    order = sorted(views, key=lambda name: (views[name].accuracy, str(name)))
    parts = [_class_table([views[name] for name in order], numbers, view, model.model, baseline)]
    claims: dict[Any, list[Claim]] = {}
    if model.model.provenance.knowledge is not None:
        for claim in model.model.claims(rows):
            claims.setdefault(claim.label, []).append(claim)
    with_images = set(order[: MOST_IMAGES // EACH])
    if len(order) > len(with_images):
        parts.append(f'<p class="muted">The {len(with_images)} hardest of {len(order)} classes have images.</p>')
    for name in order:
        found, shown = views[name], _examples(name, model, rows.y, confidence) if name in with_images else []
        scale = max((abs(item.contribution) for item in (*found.carrying, *found.opposing)), default=0.0)
        lists = _bars("Speaks for it", found.carrying, scale) + _bars("Speaks against it", found.opposing, scale)
        body = f'{pictures.strip(shown)}<div class="columns">{lists}</div>'
        body += "".join(_pair(pair, found) for pair in _confusions(view, numbers[name]))
        if own := claims.get(name):
            body += page.details(f"Claims: {claims_in_words(count_claims(own))}", claims_table(own))
        right = f"<span class='muted'>{found.images:,} images, {share_text(found.accuracy)} right</span>"
        # The anchor is inside: a link to it unfolds the section.
        inner = f'<div id="class-{numbers[name]}">{body}</div>'
        opened = len(order) <= MOST_OPEN
        parts.append(page.details(f"{page.name(name)} {right}", inner, opened=opened, kind="class"))
    return parts


def _class_table(
    views: Sequence[ClassView], numbers: dict, view: ModelView, model: ConceptModel, baseline: Measured | None
) -> str:
    """A row for every class, with all its reasons: first those with images, hardest first, then the others."""
    header = ["class", "images", "right", *(["vs baseline"] if baseline is not None else []), "most taken for"]
    rows = []
    for item in views:
        row = numbers[item.name]
        wrong = view.confusion[row].copy()
        wrong[row] = 0
        rival = int(wrong.argmax())
        taken = f"{page.name(view.classes[rival])} ({wrong[rival]})" if wrong[rival] else ""
        cells = [f'<a href="#class-{row}">{page.name(item.name)}</a>', f"{item.images:,}", share_text(item.accuracy)]
        if baseline is not None:
            before = baseline.evaluation.per_class.get(item.name)
            cells.append("" if before is None else f"{100 * (item.accuracy - before):+.0f}")
        rows.append([*cells, taken, _reasons(model, row)])
    shown = {item.name for item in views}
    blank = ["0", *[""] * (len(header) - 2)]
    rows += [[page.name(name), *blank, _reasons(model, numbers[name])] for name in view.classes if name not in shown]
    return page.table_of_html([*header, "weights for"], rows, texts=(len(header) - 1, len(header)))


def _reasons(model: ConceptModel, row: int) -> str:
    """Every concept with a positive weight for a class, largest first; of many, how many more there are."""
    coef = model.head.coef[row]
    order = [column for column in np.argsort(-coef, kind="stable").tolist() if coef[column] > 0]
    return listed([page.name(model.names[column]) for column in order], MOST_REASONS, " and {} more")


def _bars(title: str, items: Sequence[CarryingConcept], scale: float) -> str:
    if not items:
        return f"<div><h4>{title}</h4><div class='muted'>nothing</div></div>"
    rows = [
        (
            signed_name(item),
            item.contribution,
            f"weight {item.weight:.2f} x mean code {item.code:.3f} in the {share_text(item.share)} of its images that "
            "show it",
        )
        for item in items
    ]
    return f"<div><h4>{title}</h4>{page.bars(rows, scale=scale)}</div>"


def _pair(pair: Confusion, view: ClassView) -> str:
    other = pair.second if pair.first == view.name else pair.first
    apart = ", ".join(page.name(item.concept) for item in pair.separating[:4]) or "nothing"
    mixed = ", ".join(page.name(item.concept) for item in pair.confusing[:4])
    text = f"Confused with {page.name(other)} ({counted(pair.errors, 'error')}): told apart by {apart}"
    return f'<p class="muted">{text}{f"; mixed up by {mixed}" if mixed else ""}.</p>'


def _confusions(view: ModelView, row: int) -> list[Confusion]:
    """The classes that this one is most confused with."""
    errors = view.confusion[row] + view.confusion[:, row]
    errors[row] = 0
    most = MOST_CONFUSIONS if len(errors) <= 100 else FEW_CONFUSIONS
    rivals = np.argsort(-errors, kind="stable")[:most]
    return [view.separation(view.classes[row], view.classes[rival]) for rival in rivals.tolist() if errors[rival]]


def _examples(label: Any, model: Measured, truth: np.ndarray, confidence: np.ndarray) -> list[tuple[int, str]]:
    """The surest right ones and the surest wrong ones of a class, half and half where there are enough."""
    rows = np.flatnonzero(truth == label)
    rows = rows[np.argsort(-confidence[rows], kind="stable")]
    hits = model.predictions[rows] == truth[rows]
    right, wrong = rows[hits].tolist(), rows[~hits].tolist()
    few = min(len(wrong), max(EACH // 2, EACH - len(right)))
    return [(row, f"right, {percent(float(confidence[row]))}") for row in right[: EACH - few]] + [
        (row, f"taken for {page.name(model.predictions[row])}, {percent(float(confidence[row]))}")
        for row in wrong[:few]
    ]


# Concepts: use, co-activation, photos, fidelity, edits.
#: Concepts of the audit's table, and those whose images are shown.
MOST_ROWS, MOST_STRIPS = 40, 6
#: Images of a kind of such a concept: gained, lost; showing it most, borderline.
CONCEPT_IMAGES = 3
#: Concepts with photos; those of more than so many are folded.
MOST_PHOTOS, MOST_OPEN_CONCEPTS = 200, 24


def use_section(view: ModelView, pairs: Sequence[Coactivation]) -> list[str]:
    """Section on the use of concepts, and those that come together."""
    used = [(use.concept, share_text(use.share), f"{use.code:+.3f}", f"{use.weight:.2f}") for use in view.use()[:12]]
    together = [(pair.first, pair.second, share_text(pair.jaccard), f"{pair.lift:.1f}") for pair in pairs[:12]]
    unused = view.unused()
    names = listed([page.name(name) for name in unused], 200, " and {:,} others") or "none"
    return [
        '<div class="columns"><div><h4>Most used</h4>'
        f"{page.table(('concept', 'images', 'mean code', 'largest weight'), used)}</div><div><h4>Most often together"
        f"</h4>{page.table(('concept', 'and', 'both / either', 'lift'), together, texts=(1,))}</div></div>",
        f'<p class="muted">Concepts that no image shows, or that have no weight ({len(unused)}): {names}.</p>',
    ]


def photo_sections(model: ConceptModel, rows: Any, view: ModelView, pictures: Pictures) -> list[str]:
    """The photos of every concept that the model uses, most used first: those that show it most, and borderline ones,
    which show it only just."""
    uses = [use for use in view.use() if use.share > 0 and use.weight != 0]
    shown = [use.concept for use in uses[:MOST_PHOTOS]]
    most, least = (model.images_of(rows, shown, top=CONCEPT_IMAGES, borderline=edge) for edge in (False, True))
    cards = "".join(
        f'<section class="card"><h4>{page.name(use.concept)} '
        f'<span class="muted">in {share_text(use.share)} of images</span></h4>'
        f"{_photos(most[use.concept], least[use.concept], pictures)}</section>"
        for use in uses[:MOST_PHOTOS]
    )
    more = f"; {len(uses) - len(shown):,} that are used less have none here" if len(uses) > len(shown) else ""
    summary, opened = f"Photos of {len(shown)} concepts, most used first{more}", len(shown) <= MOST_OPEN_CONCEPTS
    return [page.details(summary, f'<div class="cards">{cards}</div>', opened=opened, kind="photos")]


def _photos(most: Sequence[ImageActivation], least: Sequence[ImageActivation], pictures: Pictures) -> str:
    """Photos that show a concept most, and below others that show it only just."""
    top = {image.row for image in most}
    edge = [image for image in reversed(least) if image.row not in top]
    strips = (("shows it most", most), ("borderline", edge))
    return "".join(
        pictures.strip([(image.row, f"{kind}, {image.code:.2f}") for image in images], TINY) for kind, images in strips
    )


def drift_section(audit: Audit, *, least: float | None, pictures: Pictures) -> list[str]:
    """Section on concepts that may no longer see what their names say; `least` is the fidelity they were held to, if
    any."""
    known, flagged = audit.fidelity, len(audit.flagged)
    measured = known is not None and not np.isnan(known.mean)
    said = f" Mean fidelity {known.mean:.2f}, lowest {known.min:.2f}." if known is not None and measured else ""
    summary = (
        "Does a concept see what its text sees? Fidelity is the correlation, over these images, of its scores with "
        f"those of its own text.{said} An image is gained if only the model shows the concept in it, lost if only the "
        f"text does, at the same number of concepts per image. {flagged} of {len(audit.concepts):,} "
        f"concepts are flagged: look before you trust their names. {audit.unverified:,} are unverified: no knowledge "
        "says of which classes they are true."
    )
    parts = [f"<p>{escape(summary)}</p>"]
    if measured:
        figure = plots.png(plots.drift(audit, top=20, least=least), dpi=110)
        parts.append(page.drawing(figure, "fidelity of the concepts, flagged ones first"))
    flags = "".join(f"<li>{escape(flag)}: {escape(text)}</li>" for flag, text in FLAGS.items())
    shown = audit.concepts[: min(MOST_ROWS, max(flagged, 10))]
    header = ("concept", "flags", "fidelity", "images", "gained", "lost", "same", "nearest now")
    table = page.table(header, [_drift_cells(item) for item in shown], texts=(1, 7))
    parts += [f"<ul class='muted'>{flags}</ul>", page.details(f"The first {len(shown)} concepts of the audit", table)]
    for item in audit.concepts[:MOST_STRIPS]:
        if item.gained or item.lost:  # images of largest code
            images = [
                (image.row, f"{kind}, {image.code:.2f}")
                for kind, listed in (("gained", item.gained_images), ("lost", item.lost_images))
                for image in listed[:CONCEPT_IMAGES]
            ]
            title = f"{page.name(item.concept)}: {counted(f'{item.gained:,}', 'image')} gained, {item.lost:,} lost"
            parts.append(f"<h4>{title}</h4>{pictures.strip(images)}")
    return [*parts, f'<p class="muted">{escape(audit.footnote)} {escape(NOT_TRUTH)}</p>']


def _drift_cells(item: ConceptDrift) -> list[str]:
    fidelity = "" if item.fidelity is None else f"{item.fidelity:.2f}"
    counts = [""] * 4
    if item.overlap is not None:
        counts = [str(item.active_after), str(item.gained), str(item.lost), share_text(item.overlap)]
    near = ", ".join(neighbour.concept for neighbour in item.nearest_after[:3])
    return [item.concept, ", ".join(item.flags), fidelity, *counts, near]


# Settings and fingerprints: enough to make the same model again.


def _settings(model: ConceptModel, rows: Any) -> list[tuple[str, str]]:
    """Facts of the model, and the settings of its fit: those given, and what was chosen where none was."""
    made, head, used = model.provenance, model.head, dict(model.provenance.settings)
    chosen: dict[str, Any] = {
        "fidelity": chosen_fidelity(used.get("radius"), used.get("fidelity")),
        "max_iter": made.epochs,
        "weights_per_class": "all",
    }
    length = getattr(model.rule, "length", None)
    if length is not None:
        chosen["coder"] = f"the default, {length:.1f} concepts an image"
    used |= {name: value for name, value in chosen.items() if name in used and used[name] is None}
    if used.get("dispersion") == "auto":
        used["dispersion"] = Symmetric(0.9)
    none = ", ".join(name for name, value in sorted(used.items()) if value is None)
    encoder = without_folders(made.encoder or "unknown")
    return [
        ("images", f"{len(rows):,}, embeddings {_digest(_chunks(rows))}"),
        ("classes", f"{len(model.classes):,}"),
        ("concepts", f"{len(model.concepts):,}"),
        ("encoder", f"{encoder}, fingerprint {made.encoder_fingerprint or 'unknown'}"),
        ("weights", _digest([model.concepts.embeddings, head.coef, head.intercept])),
        ("threshold", f"{model.rule.threshold:.4g}"),
        ("epochs", f"{made.epochs}; the model is that of epoch {made.best_epoch}"),
        ("library", f"ccr {ccr.__version__}"),
        ("settings", ", ".join(f"{name}={value!r}" for name, value in sorted(used.items()) if value is not None)),
        *([("not set, or by the size of the data", none)] if none else []),
    ]


def _digest(arrays: Iterable[np.ndarray]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what the arrays hold."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
