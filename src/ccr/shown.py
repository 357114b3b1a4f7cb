"""Shown: the probability that an image shows a concept, by the concept's score (True of this photo, docs/method.md).

A logistic map with one slope for all concepts and an intercept for each, fitted to answers about photos. Few answers
make an intercept uncertain, so that intercepts have a Gaussian prior: concepts with like texts have like intercepts,
and so have concepts that are true of as many classes. One without answers has what concepts like it have.
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
#: Standard deviation of the intercepts' slope on how common a concept is, in units of that one's spread.
COMMONNESS_SPREAD = 0.5
#: Share of an intercept's variance that concepts with like texts have in common, and the difference of cosines at which
#: likeness has fallen to 1/e. Of eight pairs tried on CUB's photos (docs/knowledge.md) among the best.
ALIKE, REACH = 0.8, 0.5
#: Texts are compared for at most so many concepts with answers; above, intercepts are independent.
MOST_COMPARED = 1000
#: Folds of answers, each left out once to choose the spread and to measure calibration.
FOLDS = 5
#: A claim is stated as shown from this probability on, unless a model has another one; below it an explanation says
#: that it is not sure.
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
    stated : the probability from which on an explanation states by name that the image shows a concept.
    """

    intercepts: np.ndarray
    slope: float
    answers: np.ndarray
    source: Source
    error: float = math.nan
    stated: float = STATED

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
    scores: np.ndarray,
    concepts: np.ndarray,
    shows: np.ndarray,
    texts: np.ndarray,
    *,
    commonness: np.ndarray | None = None,
    source: Source = "photos",
) -> Shown:
    """The map fitted to answers: `scores` (k,) of concept numbers `concepts` (k,) on some images, and whether the image
    `shows` it (k,). `texts` (n, d) are the text embeddings of all concepts, which say how alike they are; `commonness`
    (n,) is how common they are, on any scale, where that is known."""
    scores, concepts = np.asarray(scores, np.float64), np.asarray(concepts, np.int64)
    shows = np.asarray(shows, np.float64)
    spread = float(scores.std())
    unit = spread if spread > 1e-6 * float(np.abs(scores).max()) else 1.0  # equal scores say nothing of the slope
    asked, place = np.unique(concepts, return_inverse=True)
    prior = _Prior.of(texts, asked, commonness)
    fold = np.random.default_rng(0).permutation(len(scores)) % FOLDS
    best: tuple[float, float, np.ndarray] | None = None
    for spread in SPREADS if len(scores) >= 2 * FOLDS else SPREADS[1:2]:
        left_out, covariance = np.full(len(scores), np.nan), prior.covariance(spread)
        for number in range(FOLDS if len(scores) >= 2 * FOLDS else 0):
            test = fold == number
            intercepts, slope = _solve(scores[~test] / unit, place[~test], shows[~test], covariance)
            left_out[test] = intercepts[place[test]] + slope * scores[test] / unit
        loss = float(np.nanmean(np.logaddexp(0.0, left_out) - shows * left_out)) if len(scores) // 2 >= FOLDS else 0.0
        if best is None or loss < best[0]:
            best = (loss, spread, left_out)
    assert best is not None
    intercepts, slope = _solve(scores / unit, place, shows, prior.covariance(best[1]))
    every = prior.extended(intercepts, best[1])
    counts = np.bincount(concepts, minlength=len(texts))
    error = math.nan if np.isnan(best[2]).any() else expected_error(sigmoid(best[2]), shows)
    return Shown(every, slope / unit, counts, source, error)


def stated_from(probabilities: np.ndarray, truth: float) -> float:
    """The least probability from which on claims with these probabilities (k,) are expected to be true at this rate;
    `truth` itself where none are."""
    ordered = np.sort(probabilities)[::-1]
    last = np.append(ordered[1:] < ordered[:-1], True)[: len(ordered)]  # equal ones are stated together
    enough = np.flatnonzero(last & (np.cumsum(ordered) >= truth * np.arange(1, len(ordered) + 1)))
    return float(ordered[enough[-1]]) if len(enough) else truth


def expected_error(probabilities: np.ndarray, shows: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: the mean distance, over bins of equal width, of the mean probability to the share of
    images that show it."""
    which = np.minimum((probabilities * bins).astype(int), bins - 1)
    found = [np.abs((probabilities - shows)[which == number].sum()) for number in range(bins)]
    return float(sum(found) / max(len(shows), 1))


@dataclass(frozen=True, eq=False)
class _Prior:
    """Prior of intercepts of the `asked` concepts (a,) and the `others`: a common part, one by how common a concept is,
    one that concepts with like texts share, and their own.

    `common` (n, 2) are the features whose weights all intercepts share; `alike` (a, a) and `others_alike` (n - a, a)
    are the likenesses of texts to those of the asked, None where they are not compared.
    """

    asked: np.ndarray
    others: np.ndarray
    common: np.ndarray
    alike: np.ndarray | None
    others_alike: np.ndarray | None

    @classmethod
    def of(cls, texts: np.ndarray, asked: np.ndarray, commonness: np.ndarray | None) -> _Prior:
        others = np.setdiff1d(np.arange(len(texts)), asked)
        common = np.zeros((len(texts), 2))
        common[:, 0] = COMMON_SPREAD
        if commonness is not None and np.ptp(commonness[asked]) > 0:
            common[:, 1] = COMMONNESS_SPREAD * (commonness - commonness[asked].mean()) / commonness[asked].std()
        if len(asked) > MOST_COMPARED:
            return cls(asked, others, common, None, None)
        alike = _likeness(texts, asked, asked)
        np.fill_diagonal(alike, 1.0)  # also for a text that is the mean of all
        return cls(asked, others, common, alike, _likeness(texts, others, asked))

    def covariance(self, spread: float) -> np.ndarray:
        """Prior covariance (a, a) of the asked intercepts; `spread` is the standard deviation of single intercepts."""
        own, common = np.eye(len(self.asked)), self.common[self.asked]
        shared = own if self.alike is None else (1.0 - ALIKE) * own + ALIKE * self.alike
        return np.asarray(common @ common.T + spread**2 * shared + 1e-6 * own)

    def extended(self, intercepts: np.ndarray, spread: float) -> np.ndarray:
        """Intercepts of all concepts (n,): those not asked about have their mean given the others (a,)."""
        cross = self.common[self.others] @ self.common[self.asked].T
        if self.others_alike is not None:
            cross = cross + spread**2 * ALIKE * self.others_alike
        every = np.empty(len(self.common))
        every[self.others] = cross @ np.linalg.solve(self.covariance(spread), intercepts)
        every[self.asked] = intercepts
        return every


def _likeness(texts: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Similarity of the texts of these concepts, 1 for equal ones."""
    from ccr.geometry import unit_rows  # brings torch, which the light runtime does without

    centred = np.asarray(texts, np.float64) - np.mean(texts, axis=0)
    rows = unit_rows(centred)
    return np.exp((rows[one] @ rows[other].T - 1.0) / REACH)


def _solve(
    scores: np.ndarray, place: np.ndarray, shows: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, float]:
    """The most probable intercepts (a,) under a prior of this covariance (a, a), and slope, by damped Newton steps; the
    problem is convex."""
    n, precision = len(covariance), np.linalg.inv(covariance)
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
