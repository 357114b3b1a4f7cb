"""Class sections of a report: what carries a class, what it is confused with, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ccr.core.explain import CarryingConcept, ClassView, Confusion, ModelView
from ccr.core.explain.claims import Claim
from ccr.models.concept_model import ConceptModel
from ccr.show import page
from ccr.show.claims_page import claims_in_words, claims_table, count_claims
from ccr.show.report.headline import Measured
from ccr.show.report.pictures import Pictures
from ccr.show.style import signed_name
from ccr.texts import percent

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
        cells = [f'<a href="#class-{row}">{page.name(item.name)}</a>', f"{item.images:,}", f"{item.accuracy:.0%}"]
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
    return f"{view.images:,} images, {view.accuracy:.0%} right"
