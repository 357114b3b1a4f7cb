"""Explained predictions of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ccr.core.explain import Counterfactual, Explanation, Mistake, ModelView
from ccr.show import page
from ccr.show.report.headline import Measured
from ccr.show.report.pictures import Pictures
from ccr.show.style import said

#: Concepts of a card.
TOP = 8


def gallery_rows(
    truth: np.ndarray, right: np.ndarray, sureness: np.ndarray, *, count: int, mistakes: bool
) -> list[int]:
    """The images to show: an even sample over the classes, or mistakes first.

    Mistakes: the surest one of every class, then the second of every class, and so on; what room is left is
    sampled from the right ones.
    """
    chosen: list[int] = []
    if mistakes:
        wrong = np.flatnonzero(~right)
        wrong = wrong[np.argsort(-sureness[wrong], kind="stable")]
        turn = _turns(truth[wrong])
        chosen = wrong[np.argsort(turn, kind="stable")][:count].tolist()
    pool = np.flatnonzero(right) if mistakes else np.arange(len(truth))
    pool = pool[np.argsort(truth[pool], kind="stable")]
    room = min(count - len(chosen), len(pool))
    places = (np.arange(room) + 0.5) * len(pool) / max(room, 1)
    return chosen + pool[places.astype(int)].tolist()


def cards(
    model: Measured,
    rows: Any,
    truth: np.ndarray,
    chosen: list[int],
    *,
    view: ModelView,
    pictures: Pictures,
    baseline: Measured | None,
) -> Iterator[str]:
    """One card an image: the sum, what would change it, and for mistakes why not the true class."""
    for row in chosen:
        found = model.model.explain(rows[row])
        more = [counterfactual(found.counterfactual())]
        if str(found.prediction) != str(truth[row]):
            more.append(_mistake(found.mistake(truth[row], view=view, top=5)))
        if baseline is not None:
            more.append(beside(baseline.model.explain(rows[row]), found, truth[row]))
        caption = f"image {pictures.path(row)}"
        yield page.explanation_card(found, pictures.of(row), truth=truth[row], caption=caption, more=more, top=TOP)


def counterfactual(found: Counterfactual | None) -> str:
    """What would change the prediction, in a sentence."""
    if found is None:
        return '<div class="quiet">No removal of active concepts would change the prediction.</div>'
    removed = ", ".join(f"“{page.name(said(term))}”" for term in found.removed[:TOP])
    rest = f" and {len(found.removed) - TOP} others" if len(found.removed) > TOP else ""
    return f'<div class="quiet">Without {removed}{rest} it would be {page.name(found.becomes)}.</div>'


def _mistake(found: Mistake) -> str:
    parts = [page.contrast(found.contrast, TOP)]
    if found.missing:
        missing = [(item.concept if item.code >= 0 else f"not: {item.concept}", item) for item in found.missing]
        rows = [(name, item.contribution, f"{item.share:.0%} of the class's images show it") for name, item in missing]
        parts.append(f'<p class="verdict">Concepts of {page.name(found.truth)} missing here</p>{page.bars(rows)}')
        parts.append('<div class="quiet">what each adds to that class in the images that show it</div>')
    summary = f"Why not {page.name(found.truth)}? It came {_ordinal(found.rank)}, {found.probability:.0%}"
    return page.details(summary, "".join(parts))


def beside(theirs: Explanation, ours: Explanation, truth: Any | None = None) -> str:
    """Another model's explanation of the same image, to unfold."""
    shared = ours.compare(theirs).overlap if str(ours.prediction) in map(str, theirs.classes) else 0.0
    body = page.verdict(theirs, truth) + page.terms(theirs.bias, theirs.contributions, TOP)
    right = "" if truth is None else ", right" if str(theirs.prediction) == str(truth) else ", wrong"
    said_class = f"{page.name(theirs.prediction)}, {theirs.probability:.0%}"
    return page.details(f"Baseline: {said_class}{right}; {shared:.0%} of concepts shared", body)


def _turns(labels: np.ndarray) -> np.ndarray:
    """For each entry, how many before it have the same label."""
    seen: dict[Any, int] = {}
    turns = np.empty(len(labels), np.int64)
    for place, label in enumerate(labels.tolist()):
        turns[place] = seen.get(label, 0)
        seen[label] = int(turns[place]) + 1
    return turns


def _ordinal(rank: int) -> str:
    ending = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{ending}"
