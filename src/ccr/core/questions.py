"""Questions about photos: which photo to ask about next, so that few answers find where a concept stops being shown.

The photos are put in the order of the concept's score. The first questions are spread over the photos on which the
model makes the claim; the next ones bisect the place where yes turns into no (Knowledge, docs/method.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

#: Photos over which the first questions about a concept are spread: the highest, the middle and the lowest claim.
FIRST = 3
#: Answers that a concept gets unless another number is asked for.
ANSWERS = 7

#: Answers so far by the photo's row: 1 yes, -1 no, 0 unclear; None for a photo that nobody can be shown.
Asked = Mapping[int, int | None]


def next_photos(scores: np.ndarray, claimed: np.ndarray, asked: Asked, *, answers: int = ANSWERS) -> list[int]:
    """Rows of the photos to ask about now, the highest score first; empty where enough is known.

    At first these are several, whose answers do not depend on each other; later one, chosen by the answers before.

    Parameters
    ----------
    scores : (m,) of each photo for the concept, finite.
    claimed : (m,) bool, photos for which the model claims the concept.
    asked : answers so far.
    answers : most answers, those given included.
    """
    left = _left(asked, answers)
    if left <= 0:
        return []
    order, size = _in_order(scores, claimed, asked, FIRST)
    first = _spread(order, size, asked, FIRST)
    if first:
        return first[:left]
    chosen = _bisected(scores, order, asked)
    if chosen is None:
        chosen = _in_widest_gap(order[:size], asked)
    return [] if chosen is None else [chosen]


def spread_photos(scores: np.ndarray, claimed: np.ndarray, asked: Asked, *, answers: int = ANSWERS) -> list[int]:
    """Rows of the photos to ask about where answers come too late to choose the next one: spread evenly over the
    claims, the highest score first. Where there are fewer claims than answers, the photos that score highest below
    them, too. Parameters as for `next_photos`."""
    left = _left(asked, answers)
    if left <= 0:
        return []
    order, size = _in_order(scores, claimed, asked, answers)
    chosen, taken = _spread(order, size, asked, answers)[:left], dict(asked)
    while len(chosen) < left:  # what is near an answer was left out
        taken |= dict.fromkeys(chosen, 0)
        more = _in_widest_gap(order[:size], taken)
        if more is None:
            break
        chosen.append(more)
    place = {int(row): at for at, row in enumerate(order)}
    return sorted(chosen, key=place.__getitem__)


def contradicts(scores: np.ndarray, answers: np.ndarray) -> bool:
    """Do the answers say that the encoder does not see the concept?

    So they do if at least two are yes and two are no, and the scores (k,) order the answers (k,), 1 yes, -1 no, 0
    unclear, no better than chance: the AUC is at most 0.5.
    """
    yes, no = scores[answers > 0], scores[answers < 0]
    if min(len(yes), len(no)) < 2:
        return False
    above = (yes[:, None] > no).sum() + 0.5 * (yes[:, None] == no).sum()
    return bool(above <= 0.5 * len(yes) * len(no))


def _left(asked: Asked, answers: int) -> int:
    return answers - sum(value is not None for value in asked.values())


def _in_order(scores: np.ndarray, claimed: np.ndarray, asked: Asked, fewest: int) -> tuple[np.ndarray, int]:
    """Rows by falling score: claims, what was asked about, and all that score below the claims; and how many of them,
    at least `fewest` where there are so many, the spread-out questions are about."""
    given = np.zeros(len(scores), bool)
    given[list(asked)] = True
    lowest = scores[claimed].min() if claimed.any() else np.inf
    rows = np.flatnonzero(claimed | given | (scores < lowest))
    order = rows[np.argsort(-scores[rows], kind="stable")]
    return order, max(int((scores[order] >= lowest).sum()), min(fewest, len(order)))


def _spread(order: np.ndarray, size: int, asked: Asked, count: int) -> list[int]:
    """Photos evenly over the first `size` of the order, without those that an answer is near to."""
    targets = np.unique(np.linspace(0, size - 1, count).round().astype(int)) if size else np.zeros(0, int)
    given = np.flatnonzero(np.isin(order, list(asked)))
    near = (size - 1) / max(count - 1, 1) / 4
    return [int(order[at]) for at in targets if not (np.abs(given - at) <= near).any()]


def _bisected(scores: np.ndarray, order: np.ndarray, asked: Asked) -> int | None:
    """The middle of the photos between the lowest yes and the highest no; below all yes where there is no no.

    Answers that contradict the order leave several such places: that which contradicts the fewest answers counts, then
    that with the most photos. Photos whose score is that of an answer cannot be told from it and are not asked about.
    """
    at = np.flatnonzero(np.isin(order, [row for row, value in asked.items() if value]))
    if not len(at):
        return None
    said = np.array([asked[row] for row in order[at].tolist()])
    wrong = np.append(0, np.cumsum(said < 0)) + np.append(np.cumsum((said > 0)[::-1])[::-1], 0)
    places = []
    for cut in np.flatnonzero(wrong == wrong.min()):
        above, below = at[cut - 1] if cut else -1, at[cut] if cut < len(at) else len(order)
        high = scores[order[above]] if cut else np.inf
        low = scores[order[below]] if cut < len(at) else -np.inf
        between = order[above + 1 : below]
        apart = (low < scores[between]) & (scores[between] < high)
        places.append(between[apart & ~np.isin(between, list(asked))])
    widest = max(places, key=len)
    return int(widest[(len(widest) - 1) // 2]) if len(widest) else None


def _in_widest_gap(order: np.ndarray, asked: Asked) -> int | None:
    """The middle of the longest run of photos without an answer, the first of equals; None where all have one."""
    free = np.flatnonzero(~np.isin(order, list(asked)))
    if not len(free):
        return None
    runs = np.split(free, np.flatnonzero(np.diff(free) > 1) + 1)
    longest = max(runs, key=len)
    return int(order[longest[(len(longest) - 1) // 2]])
