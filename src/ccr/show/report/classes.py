"""Class sections of a report: what carries a class, what it is confused with, how it looks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain import (
    Audit,
    CarryingConcept,
    ClassView,
    Coactivation,
    ConceptDrift,
    Confusion,
    ImageActivation,
    ModelView,
)
from ccr.explain.claims import Claim
from ccr.explain.drift import FLAGS, GROUNDED, NOT_TRUTH, TRANSFERS
from ccr.explain.terms import signed_name
from ccr.io.provenance import signature_in_words
from ccr.metrics import Evaluation, wilson_interval
from ccr.model import ConceptModel
from ccr.refine.region import bound_in_words
from ccr.show import model_plots, page, plots
from ccr.show.pages import claims_in_words, claims_table, count_claims
from ccr.show.pictures import TINY, Pictures
from ccr.utils.texts import percent, share_text

# Headline numbers of a report: the model against its baseline and the linear probe.
#: Concepts that do not transfer, named at most.
MOST_NAMED = 20


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


def check_baseline(baseline: Any, rows: Any) -> None:
    """Refuse a baseline that does not know all classes of these labelled rows."""
    known = set(map(str, getattr(baseline, "model_", baseline).classes.tolist()))
    unknown = [label for label in np.unique(rows.y).tolist() if str(label) not in known]
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        raise CCRError(
            f"the baseline must know every class of these images, but it does not know {shown}: give one "
            "that was fitted on the same classes"
        )


def headline(model: Measured, baseline: Measured | None, probe: float | None, truth: np.ndarray) -> list[str]:
    """The numbers in a table, and what they mean in a sentence; `probe` in [0, 1], `truth` (m,) are labels."""
    evaluation = model.evaluation
    rows = [("this model", *_numbers(evaluation))]
    if baseline is not None:
        bound = bound_in_words(baseline.model.provenance.settings)
        rows.append((f"baseline ({bound})", *_numbers(baseline.evaluation)))
    if probe is not None:
        interval = wilson_interval(round(probe * evaluation.n), evaluation.n)
        rows.append(("linear probe: no concepts, no explanation", f"{probe:.1%}", _interval(interval), *[""] * 5))
    header = ("", "accuracy", "95 % interval", "length", "in play", "weights", "fidelity", "lowest")
    parts = [
        f'<p><span class="big-number">{evaluation.accuracy:.1%}</span> of {evaluation.n:,} images right, with '
        f"{evaluation.length:.1f} of {len(model.model.concepts):,} concepts per image.</p>",
        page.table(header, rows),
        '<p class="muted">length: concepts that an image shows, on average; in play: those of them with a weight for '
        "any class; weights: per class; fidelity, mean and lowest: correlation of concepts' scores with those of their "
        "own texts over these images.</p>",
    ]
    if baseline is not None:
        parts.insert(1, _against(model, baseline, truth))
    signed = signature_in_words(model.model)
    return [*parts, *_knowledge(model), *([] if signed is None else [f"<p><strong>{page.name(signed)}</strong></p>"])]


def _knowledge(measured: Measured) -> list[str]:
    """The claims, their truth and transfer, and the concepts that do not transfer; nothing without knowledge."""
    found, model = measured.evaluation, measured.model
    if found.claims is None:
        return []
    parts = [claims_in_words(found.claims)]
    if found.truth is not None:
        parts.append(f"{found.truth:.0%} of the shown concepts with an answer are true of the image's class")
    if found.transfer is not None:
        parts.append(f"mean transfer {found.transfer:.2f} to classes that concepts were not told about (0.5 is chance)")
    if found.text_fidelity is not None and math.isfinite(found.text_fidelity.mean):
        parts.append(f"fidelity to the bare texts {found.text_fidelity.mean:.2f}, lowest {found.text_fidelity.min:.2f}")
    lines = [f"<p>{escape('; '.join(parts))}.</p>", f'<p class="muted">{escape(GROUNDED)}</p>']
    few = sorted((value, name) for name, value in (model.transfer or {}).items() if value < TRANSFERS)
    if few:
        named = ", ".join(f"{page.name(name)} ({value:.2f})" for value, name in few[:MOST_NAMED])
        more = f" and {len(few) - MOST_NAMED:,} more" if len(few) > MOST_NAMED else ""
        lines.append(f'<p class="muted">Transfer below {TRANSFERS:g}: {named}{more}.</p>')
    return lines


def _against(model: Measured, baseline: Measured, truth: np.ndarray) -> str:
    ours, theirs = model.predictions == truth, baseline.predictions == truth
    gain = 100 * (model.evaluation.accuracy - baseline.evaluation.accuracy)
    return (
        f"<p>{gain:+.1f} points against the baseline; images right only here: {int((ours & ~theirs).sum()):,}, "
        f"right only there: {int((theirs & ~ours).sum()):,}.</p>"
    )


def _numbers(evaluation: Evaluation) -> tuple[str, ...]:
    return (
        f"{evaluation.accuracy:.1%}",
        _interval(evaluation.interval),
        f"{evaluation.length:.1f}",
        f"{evaluation.in_play:.1f}",
        f"{evaluation.weights_per_class:.1f}",
        *("-" if math.isnan(value) else f"{value:.2f}" for value in evaluation.fidelity),
    )


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"


# Concept sections of a report: fidelity, use, co-activation, photos, edits.
#: Concepts of the audit's table, and those whose images are shown.
MOST_ROWS, MOST_STRIPS = 40, 6
#: Images of a kind of such a concept: gained, lost; showing it most, borderline.
CONCEPT_IMAGES = 3
#: Concepts with photos; those of more than so many are folded.
MOST_PHOTOS, MOST_OPEN_CONCEPTS = 200, 24


def drift_section(audit: Audit, *, least: float | None, pictures: Pictures) -> list[str]:
    """Which concepts may no longer see what their names say; `least` is the fidelity they were held to, if any."""
    flagged = len(audit.flagged)
    parts = [f"<p>{escape(_summary(audit))}</p>"]
    if audit.fidelity is not None and np.isfinite(audit.fidelity.mean):
        figure = model_plots.drift(audit, top=20, least=least)
        parts.append(page.drawing(plots.png(figure, dpi=110), "fidelity of the concepts, flagged ones first"))
    flags = "".join(f"<li>{escape(flag)}: {escape(text)}</li>" for flag, text in FLAGS.items())
    parts.append(f"<ul class='muted'>{flags}</ul>")
    shown = audit.concepts[: min(MOST_ROWS, max(flagged, 10))]
    header = ("concept", "flags", "fidelity", "images", "gained", "lost", "same", "nearest now")
    table = page.table(header, [_cells(item) for item in shown], texts=(1, 7))
    parts.append(page.details(f"The first {len(shown)} concepts of the audit", table))
    doubtful = [item for item in audit.concepts[:MOST_STRIPS] if item.gained or item.lost]
    parts += [_strip(item, pictures) for item in doubtful]
    return [*parts, f'<p class="muted">{escape(audit.footnote)} {escape(NOT_TRUTH)}</p>']


def _summary(audit: Audit) -> str:
    known = audit.fidelity
    said = "" if known is None or np.isnan(known.mean) else f" Mean fidelity {known.mean:.2f}, lowest {known.min:.2f}."
    return (
        "Does a concept see what its text sees? Fidelity is the correlation, over these images, of its scores with "
        f"those of its own text.{said} An image is gained if only the model shows the concept in it, lost if only the "
        f"text does, at the same number of concepts per image. {len(audit.flagged)} of {len(audit.concepts):,} "
        f"concepts are flagged: look before you trust their names. {audit.unverified:,} are unverified: no knowledge "
        "says of which classes they are true."
    )


def _cells(item: ConceptDrift) -> list[str]:
    fidelity = "" if item.fidelity is None else f"{item.fidelity:.2f}"
    counts = [str(item.active_after), str(item.gained), str(item.lost), f"{item.overlap:.0%}"]
    near = ", ".join(neighbour.concept for neighbour in item.nearest_after[:3])
    return [item.concept, ", ".join(item.flags), fidelity, *(counts if item.overlap is not None else [""] * 4), near]


def _strip(item: ConceptDrift, pictures: Pictures) -> str:
    """Images that a concept gained and lost, of largest code."""
    images = [
        (image.row, f"{kind}, {image.code:.2f}")
        for kind, listed in (("gained", item.gained_images), ("lost", item.lost_images))
        for image in listed[:CONCEPT_IMAGES]
    ]
    title = f"{page.name(item.concept)}: {item.gained:,} images gained, {item.lost:,} lost"
    return f"<h4>{title}</h4>{pictures.strip(images)}"


def use_section(view: ModelView, pairs: Sequence[Coactivation]) -> list[str]:
    """How much concepts are used, and which come together."""
    used = [(use.concept, f"{use.share:.0%}", f"{use.code:+.3f}", f"{use.weight:.2f}") for use in view.use()[:12]]
    together = [(pair.first, pair.second, f"{pair.jaccard:.0%}", f"{pair.lift:.1f}") for pair in pairs[:12]]
    unused = view.unused()
    names = ", ".join(page.name(name) for name in unused[:200]) or "none"
    rest = f" and {len(unused) - 200:,} others" if len(unused) > 200 else ""
    tables = (
        f"<div><h4>Most used</h4>{page.table(('concept', 'images', 'mean code', 'largest weight'), used)}</div>",
        f"<div><h4>Most often together</h4>"
        f"{page.table(('concept', 'and', 'both / either', 'lift'), together, texts=(1,))}</div>",
    )
    idle = f'<p class="muted">Concepts that no image shows, or that have no weight ({len(unused)}): {names}{rest}.</p>'
    return [f'<div class="columns">{"".join(tables)}</div>', idle]


def photo_sections(model: ConceptModel, rows: Any, view: ModelView, pictures: Pictures) -> list[str]:
    """The photos of every concept that the model uses, most used first: those that show it most, and borderline ones,
    which show it only just."""
    uses = [use for use in view.use() if use.share > 0 and use.weight != 0]
    shown = [use.concept for use in uses[:MOST_PHOTOS]]
    most, least = (model.images_of(rows, shown, top=CONCEPT_IMAGES, borderline=edge) for edge in (False, True))
    cards = "".join(
        f'<section class="card"><h4>{page.name(use.concept)} <span class="muted">in {use.share:.0%} of images</span>'
        f"</h4>{_photos(most[use.concept], least[use.concept], pictures)}</section>"
        for use in uses[:MOST_PHOTOS]
    )
    more = f"; {len(uses) - len(shown):,} that are used less have none here" if len(uses) > len(shown) else ""
    summary = f"Photos of {len(shown)} concepts, most used first{more}"
    return [
        page.details(
            summary, f'<div class="cards">{cards}</div>', opened=len(shown) <= MOST_OPEN_CONCEPTS, kind="photos"
        )
    ]


def _photos(most: Sequence[ImageActivation], least: Sequence[ImageActivation], pictures: Pictures) -> str:
    """Photos that show a concept most, and below others that show it only just."""
    top = {image.row for image in most}
    edge = [image for image in reversed(least) if image.row not in top]
    strips = (("shows it most", most), ("borderline", edge))
    return "".join(
        pictures.strip([(image.row, f"{kind}, {image.code:.2f}") for image in images], TINY) for kind, images in strips
    )


def edit_section(edits: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table of the edits made by hand, oldest first."""
    rows = [
        (
            str(number),
            str(edit["action"]),
            ", ".join(f"{key}: {value}" for key, value in edit.items() if key != "action"),
        )
        for number, edit in enumerate(edits, 1)
    ]
    return [page.table(("", "edit", "of"), rows, texts=(1, 2))]


#: Images of a class, and of all classes together: beyond, the hardest classes have them.
EACH, MOST_IMAGES = 4, 240
#: Concepts that are named in a class's row; models with few weights per class have them all there.
MOST_REASONS = 12
#: With more classes than this, sections are folded.
MOST_OPEN = 20
#: Concepts of a list; confusions of a class, and of a class among many.
TOP, MOST_CONFUSIONS, FEW_CONFUSIONS = 8, 3, 1


def class_sections(
    view: ModelView,
    model: Measured,
    baseline: Measured | None,
    truth: np.ndarray,
    confidence: np.ndarray,
    pictures: Pictures,
    rows: Any,
) -> list[str]:
    """A table of all classes, hardest first, and a section for each, as HTML.

    `truth` (m,) are labels of the `rows` (m, d), `confidence` (m,) the probabilities of the model's predictions.
    """
    views = {name: view.of_class(name, top=TOP) for name in view.classes if view.images[view.classes.index(name)]}
    order = sorted(views, key=lambda name: (views[name].accuracy, str(name)))
    numbers = {name: number for number, name in enumerate(view.classes)}
    parts = [_table([views[name] for name in order], numbers, view, model.model, baseline)]
    claims = _claims_by_class(model.model, rows)
    with_images = set(order[: MOST_IMAGES // EACH])
    if len(order) > len(with_images):
        parts.append(f'<p class="muted">The {len(with_images)} hardest of {len(order)} classes have images.</p>')
    for name in order:
        shown = _examples(truth == name, model.predictions, truth, confidence) if name in with_images else []
        body = _section(views[name], _confusions(view, numbers[name]), pictures.strip(shown))
        body += _claims(claims.get(name, []))
        summary = f"{page.name(name)} <span class='muted'>{_counted(views[name])}</span>"
        # The anchor is inside: a link to it unfolds the section.
        inner = f'<div id="class-{numbers[name]}">{body}</div>'
        parts.append(page.details(summary, inner, opened=len(order) <= MOST_OPEN, kind="class"))
    return parts


def _table(
    views: Sequence[ClassView], numbers: dict, view: ModelView, model: ConceptModel, baseline: Measured | None
) -> str:
    """A row for every class, with all its reasons: first those with images, hardest first, then the others."""
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
    for name in (one for one in view.classes if one not in shown):
        blank = ["0", "", *([""] if baseline is not None else []), ""]
        rows.append([page.name(name), *blank, _reasons(model, numbers[name])])
    header = ["class", "images", "right", *(["vs baseline"] if baseline is not None else []), "most taken for"]
    texts = (len(header) - 1, len(header))
    return page.table_of_html([*header, "weights for"], rows, texts=texts)


def _reasons(model: ConceptModel, row: int) -> str:
    """Every concept with a positive weight for a class, largest first; of many, how many more there are."""
    coef = model.head.coef[row]
    order = [column for column in np.argsort(-coef, kind="stable").tolist() if coef[column] > 0]
    more = f" and {len(order) - MOST_REASONS} more" if len(order) > MOST_REASONS else ""
    return ", ".join(page.name(model.names[column]) for column in order[:MOST_REASONS]) + more


def _section(view: ClassView, confusions: Sequence[Confusion], strip: str) -> str:
    scale = max((abs(item.contribution) for item in (*view.carrying, *view.opposing)), default=0.0)
    lists = [_concepts("Speaks for it", view.carrying, scale), _concepts("Speaks against it", view.opposing, scale)]
    pairs = [_pair(pair, view) for pair in confusions]
    return "".join([strip, f'<div class="columns">{"".join(lists)}</div>', *pairs])


def _claims_by_class(model: ConceptModel, rows: Any) -> dict[Any, list[Claim]]:
    """The claims of each class, measured on these rows; none without knowledge."""
    found: dict[Any, list[Claim]] = {}
    if model.provenance.knowledge is not None:
        for claim in model.claims(rows):
            found.setdefault(claim.label, []).append(claim)
    return found


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    return page.details(f"Claims: {claims_in_words(count_claims(claims))}", claims_table(claims))


def _concepts(title: str, items: Sequence[CarryingConcept], scale: float) -> str:
    if not items:
        return f"<div><h4>{escape(title)}</h4><div class='muted'>nothing</div></div>"
    rows = [
        (
            signed_name(item),
            item.contribution,
            f"weight {item.weight:.2f} x mean code {item.code:.3f} in the {item.share:.0%} of its images that show it",
        )
        for item in items
    ]
    return f"<div><h4>{escape(title)}</h4>{page.bars(rows, scale=scale)}</div>"


def _pair(pair: Confusion, view: ClassView) -> str:
    other = pair.second if pair.first == view.name else pair.first
    apart = ", ".join(page.name(item.concept) for item in pair.separating[:4]) or "nothing"
    mixed = ", ".join(page.name(item.concept) for item in pair.confusing[:4])
    errors = "error" if pair.errors == 1 else "errors"
    text = f"Confused with {page.name(other)} ({pair.errors} {errors}): told apart by {apart}"
    return f'<p class="muted">{text}{f"; mixed up by {mixed}" if mixed else ""}.</p>'


def _confusions(view: ModelView, row: int) -> list[Confusion]:
    """The classes that this one is most confused with."""
    errors = view.confusion[row] + view.confusion[:, row]
    errors[row] = 0
    most = MOST_CONFUSIONS if len(errors) <= 100 else FEW_CONFUSIONS
    rivals = np.argsort(-errors, kind="stable")[:most]
    return [view.separation(view.classes[row], view.classes[rival]) for rival in rivals.tolist() if errors[rival]]


def _examples(
    of_class: np.ndarray, predictions: np.ndarray, truth: np.ndarray, confidence: np.ndarray
) -> list[tuple[int, str]]:
    """The surest right ones and the surest wrong ones, half and half where there are enough."""
    rows = np.flatnonzero(of_class)
    rows = rows[np.argsort(-confidence[rows], kind="stable")]
    right = rows[predictions[rows] == truth[rows]].tolist()
    wrong = rows[predictions[rows] != truth[rows]].tolist()
    few = min(len(wrong), max(EACH // 2, EACH - len(right)))
    return [(row, f"right, {percent(float(confidence[row]))}") for row in right[: EACH - few]] + [
        (row, f"taken for {page.name(predictions[row])}, {percent(float(confidence[row]))}") for row in wrong[:few]
    ]


def _counted(view: ClassView) -> str:
    return f"{view.images:,} images, {share_text(view.accuracy)} right"
