"""Shown: the probability that an image shows a concept, by the concept's score (True of this photo, docs/method.md).

A logistic map with one slope for all concepts and an intercept for each, fitted to answers about photos. Few answers
make an intercept uncertain, so that intercepts have a Gaussian prior whose covariance is the likeness of the concepts'
texts: a concept without answers has what concepts like it have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

#: Least slope, in units of the scores' spread: the map stays monotone whatever the answers say.
LEAST_SLOPE = 0.05
#: Mean and standard deviation of the slope before any answer, in the same units.
SLOPE, SLOPE_SPREAD = 1.0, 2.0
#: Standard deviation of the mean intercept, and those of single intercepts among which cross-validation chooses.
COMMON_SPREAD, SPREADS = 2.0, (0.4, 0.8, 1.6)
#: Share of an intercept's variance that concepts with like texts have in common, and the difference of cosines at which
#: likeness has fallen to 1/e. Of eight pairs tried on CUB's photos (docs/knowledge.md) among the best.
ALIKE, REACH = 0.8, 0.5
#: Texts are compared for at most so many concepts with answers; above, intercepts are independent.
MOST_COMPARED = 1000
#: Folds of answers, each left out once to choose the spread and to measure calibration.
FOLDS = 5
#: A claim is stated as shown from this probability on; below it an explanation says that it is not sure.
STATED = 0.6

Source = Literal["photos", "classes"]


@dataclass(frozen=True, eq=False)
class Shown:
    """P(image shows concept j | its score s) = 1 / (1 + exp(-(intercepts[j] + slope * s))).

    Parameters
    ----------
    intercepts : (n,), one for each concept.
    slope : above 0, the same for all concepts.
    answers : (n,), on how many answers about photos each intercept rests.
    source : "photos" for answers about photos, "classes" where there was only a table of classes: then it is the
        probability that the image's class has the concept.
    error : calibration error (ECE) on answers left out of the fit; NaN where it could not be measured.
    """

    intercepts: np.ndarray
    slope: float
    answers: np.ndarray
    source: Source
    error: float = math.nan

    def probabilities(self, scores: np.ndarray, concepts: Any = slice(None)) -> np.ndarray:
        """Probabilities for scores (..., k) of these concepts (k), by default of all."""
        return sigmoid(self.intercepts[concepts] + self.slope * np.asarray(scores, np.float64))

    def thresholds(self, probability: float) -> np.ndarray:
        """The score (n,) at which each concept is shown with this probability, in (0, 1)."""
        return np.asarray((math.log(probability / (1.0 - probability)) - self.intercepts) / self.slope)

    def of(self, rows: np.ndarray | Sequence[int]) -> Shown:
        """The map of these concepts alone."""
        return replace(self, intercepts=self.intercepts[rows], answers=self.answers[rows])

    def with_one_more(self) -> Shown:
        """The map with one more concept, behind the others, of which nothing is known: it has the mean intercept."""
        return replace(
            self,
            intercepts=np.append(self.intercepts, self.intercepts.mean()),
            answers=np.append(self.answers, 0),
        )


def of_photos(shown: Shown | None) -> Shown | None:
    """The map if it rests on answers about photos. One that was fitted to a table of classes is no probability to show:
    on CUB its calibration error is 0.24, because an image need not show what is true of its class."""
    return shown if shown is not None and shown.source == "photos" else None


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-v)), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def fit_shown(
    scores: np.ndarray, concepts: np.ndarray, shows: np.ndarray, texts: np.ndarray, *, source: Source = "photos"
) -> Shown:
    """The map fitted to answers: `scores` (k,) of concept numbers `concepts` (k,) on some images, and whether the image
    `shows` it (k,). `texts` (n, d) are the text embeddings of all concepts, which say how alike they are."""
    scores, concepts = np.asarray(scores, np.float64), np.asarray(concepts, np.int64)
    shows = np.asarray(shows, np.float64)
    spread = float(scores.std())
    unit = spread if spread > 1e-6 * float(np.abs(scores).max()) else 1.0  # equal scores say nothing of the slope
    asked, place = np.unique(concepts, return_inverse=True)
    likeness = _likeness(texts, asked)
    fold = np.random.default_rng(0).permutation(len(scores)) % FOLDS
    best: tuple[float, float, np.ndarray] | None = None
    for spread in SPREADS if len(scores) >= 2 * FOLDS else SPREADS[1:2]:
        left_out = np.full(len(scores), np.nan)
        for number in range(FOLDS if len(scores) >= 2 * FOLDS else 0):
            test = fold == number
            intercepts, slope = _solve(scores[~test] / unit, place[~test], shows[~test], likeness, spread)
            left_out[test] = intercepts[place[test]] + slope * scores[test] / unit
        loss = float(np.nanmean(np.logaddexp(0.0, left_out) - shows * left_out)) if len(scores) // 2 >= FOLDS else 0.0
        if best is None or loss < best[0]:
            best = (loss, spread, left_out)
    assert best is not None
    intercepts, slope = _solve(scores / unit, place, shows, likeness, best[1])
    every = _to_others(intercepts, asked, texts, likeness, best[1])
    counts = np.bincount(concepts, minlength=len(texts))
    error = math.nan if np.isnan(best[2]).any() else expected_error(sigmoid(best[2]), shows)
    return Shown(every, slope / unit, counts, source, error)


def expected_error(probabilities: np.ndarray, shows: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: the mean distance, over bins of equal width, of the mean probability to the share of
    images that show it."""
    which = np.minimum((probabilities * bins).astype(int), bins - 1)
    found = [np.abs((probabilities - shows)[which == number].sum()) for number in range(bins)]
    return float(sum(found) / max(len(shows), 1))


def _likeness(texts: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """How alike the texts of these concepts are (a, a), 1 for equal ones; None: they are not compared."""
    if len(asked) > MOST_COMPARED:
        return None
    likeness = _kernel(texts, asked, asked)
    np.fill_diagonal(likeness, 1.0)  # also for a text that is the mean of all
    return likeness


def _kernel(texts: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    from ccr.geometry import unit_rows  # brings torch, which the light runtime does without

    centred = np.asarray(texts, np.float64) - np.mean(texts, axis=0)
    rows = unit_rows(centred)
    return np.exp((rows[one] @ rows[other].T - 1.0) / REACH)


def _covariance(likeness: np.ndarray | None, n: int, spread: float) -> np.ndarray:
    """Prior covariance (n, n) of intercepts: a common part, one shared by like concepts, and their own."""
    own = np.eye(n)
    shared = own if likeness is None else (1.0 - ALIKE) * own + ALIKE * likeness
    return COMMON_SPREAD**2 + spread**2 * shared


def _solve(
    scores: np.ndarray, place: np.ndarray, shows: np.ndarray, likeness: np.ndarray | None, spread: float
) -> tuple[np.ndarray, float]:
    """The most probable intercepts (a,) and slope, by damped Newton steps; the problem is convex."""
    n = int(place.max()) + 1 if likeness is None else len(likeness)
    precision = np.linalg.inv(_covariance(likeness, n, spread) + 1e-6 * np.eye(n))
    intercepts, slope = np.zeros(n), SLOPE

    def loss(intercepts: np.ndarray, slope: float) -> float:
        logits = intercepts[place] + slope * scores
        prior = intercepts @ precision @ intercepts + ((slope - SLOPE) / SLOPE_SPREAD) ** 2
        return float((np.logaddexp(0.0, logits) - shows * logits).sum() + 0.5 * prior)

    now = loss(intercepts, slope)
    for _ in range(50):
        found = sigmoid(intercepts[place] + slope * scores)
        weight, off = found * (1.0 - found), found - shows
        hessian = np.empty((n + 1, n + 1))
        hessian[:n, :n] = precision
        hessian[np.arange(n), np.arange(n)] += np.bincount(place, weight, minlength=n)
        hessian[n, :n] = hessian[:n, n] = np.bincount(place, weight * scores, minlength=n)
        hessian[n, n] = weight @ scores**2 + SLOPE_SPREAD**-2
        gradient = np.append(
            np.bincount(place, off, minlength=n) + precision @ intercepts,
            off @ scores + (slope - SLOPE) / SLOPE_SPREAD**2,
        )
        step, size = np.linalg.solve(hessian, gradient), 1.0
        while size > 1e-4:
            tried = intercepts - size * step[:n], max(slope - size * float(step[n]), LEAST_SLOPE)
            after = loss(*tried)
            if after <= now:
                break
            size *= 0.5
        else:
            break
        (intercepts, slope), gained, now = tried, now - after, after
        if gained < 1e-10 * max(1.0, abs(now)):
            break
    return intercepts, slope


def _to_others(
    intercepts: np.ndarray, asked: np.ndarray, texts: np.ndarray, likeness: np.ndarray | None, spread: float
) -> np.ndarray:
    """Intercepts of all concepts (n,), those without answers by their likeness to the others."""
    every = np.full(len(texts), float(intercepts.mean()))
    if likeness is not None:
        others = np.setdiff1d(np.arange(len(texts)), asked)
        cross = COMMON_SPREAD**2 + spread**2 * ALIKE * _kernel(texts, others, asked)
        known = _covariance(likeness, len(asked), spread) + 1e-6 * np.eye(len(asked))
        every[others] = cross @ np.linalg.solve(known, intercepts)
    every[asked] = intercepts
    return every
