"""Explained predictions of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ccr.core.explain import Counterfactual, Explanation, Mistake, ModelView
from ccr.core.explain.comparison import overlap
from ccr.errors import CCRError
from ccr.show import page, where_pictures
from ccr.show.report.headline import Measured
from ccr.show.report.pictures import Pictures
from ccr.show.style import signed_name
from ccr.texts import percent

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
    """What would change the prediction, in a sentence."""
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
