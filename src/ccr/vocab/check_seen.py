"""What photos say about concepts: in how many each is seen, what cannot be told apart, which classes nobody covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.coding import HardThreshold, apply_rule
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.geometry import coherence
from ccr.inputs import Embeddings
from ccr.space import Space
from ccr.utils.progress import Tell, no_progress
from ccr.vocab.check_texts import Problem
from ccr.vocab.choose import SAME, confusable
from ccr.vocab.statistics import ClassStatistics, ScoreStatistics, class_statistics, score_statistics, spreads

#: Images that are looked at, concepts per image, and images shown for each concept.
MOST_IMAGES, LENGTH, SHOWN = 20_000, 12, 5
#: Correlation of scores above which two concepts are hard to tell apart.
ALIKE = 0.85
#: A concept whose scores spread less than this share of what random words' usually do is hardly seen.
LEAST_SPREAD = 0.6
#: Shares of images: active in more is always active.
ALWAYS = 0.6
#: Standard deviations within classes by which some concept must lift a class above its nearest one.
LEAST_LIFT = 1.0
#: Of the images' covariance in their metric, as models have it.
SHRINKAGE = 0.5


@dataclass(frozen=True, eq=False)
class Seen:
    """What photos say about a list of n concepts: `problems` of each, `share` of images in which each is active (n,),
    `top` rows of X that show each most (n, up to 5), mean `coherence`, and the classes that no concept lifts above the
    one that is nearest to them, each with that one."""

    problems: list[list[Problem]]
    share: np.ndarray
    top: np.ndarray
    coherence: float
    uncovered: dict[str, str]


def check_seen(
    concepts: Concepts, X: Any, y: np.ndarray, *, control: np.ndarray | None = None, tell: Tell = no_progress
) -> Seen:
    """Check concepts on images.

    Parameters
    ----------
    X : (m, d), the images; at most 20,000 of them, evenly spaced, are looked at one by one.
    y : (m,), their labels; at least two classes.
    control : (k, d), text embeddings of words that have nothing to do with the images.
    """
    if len(concepts) < 2:
        raise CCRError(f"a list needs at least 2 concepts to be checked on images, got {len(concepts)}: add some")
    found = class_statistics(X, y)
    if len(found.classes) < 2:
        raise CCRError(f"concepts are checked on at least 2 classes, got {len(found.classes)}: add images of others")
    scores = score_statistics(found, concepts.embeddings)
    usual = None if control is None else float(np.median(spreads(found, control)))
    share, top, spread_out = _looked_at(concepts, X, tell)
    problems = [_problems(row, concepts.names, scores, share, usual) for row in range(len(concepts))]
    return Seen(problems, share, top, spread_out, uncovered(found, scores))


def uncovered(found: ClassStatistics, scores: ScoreStatistics) -> dict[str, str]:
    """Classes that no concept lifts a standard deviation above the class nearest to them, with that class."""
    nearest: dict[int, int] = {}
    for first, second in confusable(found):  # the nearest pairs come first
        nearest.setdefault(int(first), int(second))
        nearest.setdefault(int(second), int(first))
    lift = {
        row: float(((scores.means[row] - scores.means[other]) / scores.within).max()) for row, other in nearest.items()
    }
    names = [str(name) for name in found.classes]
    return {names[row]: names[nearest[row]] for row in sorted(lift) if lift[row] < LEAST_LIFT}


def _looked_at(concepts: Concepts, X: Any, tell: Tell) -> tuple[np.ndarray, np.ndarray, float]:
    """Shares of images in which concepts are active, the rows that show each most, and the mean coherence."""
    rows = np.linspace(0, len(X) - 1, min(MOST_IMAGES, len(X))).astype(np.int64)
    space = Space.fit_metric(concepts.embeddings, X, shrinkage=SHRINKAGE)
    D = space.own_texts(concepts.embeddings)
    images = Embeddings.ready(space.images(X).take(rows))
    rule = HardThreshold(length=min(LENGTH, max(1, len(concepts) / 4)), sign="positive").rule(images, D)
    share = np.asarray((apply_rule(rule, images, D) != 0).mean(axis=0)).ravel()
    best, top, start = np.full((len(concepts), 0), 0.0), np.zeros((len(concepts), 0), dtype=np.int64), 0
    for chunk in images.chunks(len(concepts)):
        tell(start, len(rows), "looking at images")
        scores = chunk.numpy() @ D.T
        best = np.concatenate([best, scores.T], axis=1)
        top = np.concatenate([top, np.tile(rows[start : start + len(scores)], (len(concepts), 1))], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :SHOWN]
        best, top = np.take_along_axis(best, order, axis=1), np.take_along_axis(top, order, axis=1)
        start += len(scores)
    return share, top, coherence(D).mean


def _problems(
    row: int, names: Sequence[str], scores: ScoreStatistics, share: np.ndarray, usual: float | None
) -> list[Problem]:
    problems = []
    alike = scores.correlation[row].copy()
    alike[row] = 0.0
    other = int(alike.argmax())
    if alike[other] > SAME and other < row:
        reason = f"its scores are those of {names[other]!r} (correlation {alike[other]:.2f})"
        problems.append(Problem("repeated", reason, "drop one"))
    elif alike[other] > ALIKE:
        reason = f"it can hardly be told from {names[other]!r} (correlation {alike[other]:.2f})"
        problems.append(Problem("alike", reason, "drop one, or say what is different", bad=False))
    if share[row] == 0.0:
        problems.append(Problem("never", "it is active in no image", "drop it, or use the word that people use"))
    elif share[row] > ALWAYS:
        reason = f"it is active in {share[row]:.0%} of the images"
        problems.append(Problem("always", reason, "say something that fewer images show", bad=False))
    if usual is not None and scores.spread[row] < LEAST_SPREAD * usual:
        reason = "the encoder hardly sees it: its scores spread less over images than those of random words"
        problems.append(
            Problem("faint", reason, "use a more visual word, or teach it by `ccr concepts learn`", bad=False)
        )
    return problems
