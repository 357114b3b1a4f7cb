"""The demo's page: what was measured, one prediction that is right, one that is wrong, and a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ccr.core.explain import Explanation
from ccr.models.gain import Gain
from ccr.show import page


class Shown(NamedTuple):
    """An image to show with its explanation and its true class."""

    image: Image.Image
    explanation: Explanation
    truth: Any


def demo_page(
    gain: Gain,
    known: Gain,
    shuffled: Gain,
    *,
    truth: Sequence[Sequence[float]],
    probe: float,
    right: Shown,
    untold: Shown,
    wrong: Shown,
    gallery: Sequence[Shown],
    facts: Sequence[tuple[str, str]],
) -> str:
    """The page as HTML: fits without (`gain`), with knowledge (`known`) and with it `shuffled`, the `truth` of what
    each shows, one for each seed, the linear probe's accuracy, all in [0, 1]; `untold` is the photo of `right`,
    explained without knowledge; `facts` are (name, value)."""
    rows = [
        ("baseline: concepts stay where they were", *_spread(gain.baseline), ""),
        ("baseline with its head refitted by L-BFGS", *_spread(gain.refitted), ""),
        ("CCR: concepts refined", *_spread(gain.refined), f"{np.mean(truth[0]):.0%}"),
        (
            "CCR with knowledge: says only what is confirmed of the class",
            *_spread(known.refined),
            f"{np.mean(truth[1]):.0%}",
        ),
        (
            "control: that knowledge shuffled, so that it is nonsense",
            *_spread(shuffled.refined),
            f"{np.mean(truth[2]):.0%}",
        ),
        ("linear probe: no concepts, no explanation", f"{probe:.1%}", "", ""),
    ]
    cards = [page.explanation_card(item.explanation, item.image, truth=item.truth, top=6) for item in gallery]
    body = [
        "<h1>Fruit by concepts</h1>",
        "<p>Every prediction on this page is an exact sum: a bias and one contribution for each active concept. "
        "Blue bars speak for the predicted class, orange ones against it. Hold the pointer over a bar to see code and "
        "weight.</p>",
        "<h2>A prediction that is right</h2>",
        _featured(right),
        "<h2>The same photo, without knowledge</h2>",
        "<p>This model says whatever tells its classes apart, true or not; nobody was asked.</p>",
        _featured(untold),
        f"<h2>Test accuracy over {len(gain.seeds)} seeds</h2>",
        page.table(("model", "mean", "min to max", "true"), rows),
        '<p class="muted">true: share of the five concepts shown first that a table, written by hand, says are true '
        "of the photo's kind of fruit. The model of this page was fitted with the same table, so that what it shows is "
        "untrue by it only where a prediction is wrong. \u2713: the table confirms the concept for the predicted kind "
        "of fruit, which is not yet a check of this photo. Nonsense raises accuracy, too, because any code of the "
        "classes helps; it does not make explanations true.</p>",
        "<h2>A prediction that is wrong</h2>",
        "<p>The second sum says why the predicted class won over the true one.</p>",
        _featured(wrong),
        "<h2>More test images, mistakes first</h2>",
        f'<div class="cards">{"".join(cards)}</div>',
        "<h2>How this was made</h2>",
        page.table(("what", ""), facts),
        '<p class="muted">' + escape("Photos: supermarket fruit, MIT licence, from a registry package.") + "</p>",
    ]
    return page.page("Fruit by concepts", body)


def _featured(item: Shown) -> str:
    mistaken = str(item.truth) != str(item.explanation.prediction)
    against = item.explanation.contrast(item.truth) if mistaken else None
    return page.explanation_card(item.explanation, item.image, truth=item.truth, against=against, top=12, big=True)


def _spread(accuracies: Sequence[float]) -> tuple[str, str]:
    return f"{np.mean(accuracies):.1%}", f"{min(accuracies):.1%} to {max(accuracies):.1%}"
