"""Shown: the probability that an image shows a concept, by the concept's score (True of this photo, docs/method.md).

A logistic map with one slope for all concepts and an intercept for each, fitted to answers about photos. Few answers
make an intercept uncertain, so that intercepts have a Gaussian prior: concepts with like texts have like intercepts,
and so have concepts that are true of as many classes. One without answers has what concepts like it have.

What answers about photos of some classes say of a concept need not hold for another class, so that concept and class
together have a random effect: answers move it for the classes that they are about, and leave others less sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

#: Least slope, in units of the scores' spread: the map stays monotone whatever the answers say.
LEAST_SLOPE = 0.05
#: Mean and standard deviation of the slope before any answer, in the same units.
SLOPE, SLOPE_SPREAD = 1.0, 2.0
#: Standard deviation of the mean intercept, and those of single intercepts among which cross-validation chooses.
COMMON_SPREAD, SPREADS = 2.0, (0.4, 0.8, 1.6)
#: Standard deviations of the random effects of concept and class, among which cross-validation chooses, too.
CLASS_SPREADS = (0.0, 0.5, 1.0, 2.0)
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
    by_class : (2, classes, n), intercepts and slopes that take the place of these for images of each class, as the
        model predicts it; None where answers do not tell classes apart. They are means over all that the answers leave
        possible, so that a class without answers is less sure.
    """

    intercepts: np.ndarray
    slope: float
    answers: np.ndarray
    source: Source
    error: float = math.nan
    stated: float = STATED
    by_class: np.ndarray | None = None

    def probabilities(self, scores: np.ndarray, concepts: Any = slice(None), classes: Any = None) -> np.ndarray:
        """Probabilities for scores (..., k) of these concepts (k), by default of all. `classes` are the numbers of the
        images' classes, one or an array that goes with `concepts`; None: of any class."""
        values = np.asarray(scores, np.float64)
        if classes is None or self.by_class is None:
            return sigmoid(self.intercepts[concepts] + self.slope * values)
        intercepts, slopes = self.by_class
        return sigmoid(intercepts[classes, concepts] + slopes[classes, concepts] * values)

    def thresholds(self, probability: float) -> np.ndarray:
        """The score (n,) at which each concept is shown with this probability, in (0, 1)."""
        return np.asarray((math.log(probability / (1.0 - probability)) - self.intercepts) / self.slope)

    def of(self, rows: np.ndarray | Sequence[int]) -> Shown:
        """The map of these concepts alone."""
        by_class = None if self.by_class is None else np.ascontiguousarray(self.by_class[:, :, rows])
        return replace(self, intercepts=self.intercepts[rows], answers=self.answers[rows], by_class=by_class)

    def with_one_more(self) -> Shown:
        """The map with one more concept, behind the others, of which nothing is known: it has the mean intercept."""
        more = self.by_class
        return replace(
            self,
            intercepts=np.append(self.intercepts, self.intercepts.mean()),
            answers=np.append(self.answers, 0),
            by_class=None if more is None else np.concatenate([more, more.mean(axis=2, keepdims=True)], axis=2),
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
    classes: np.ndarray | None = None,
    class_count: int = 0,
    source: Source = "photos",
) -> Shown:
    """The map fitted to answers: `scores` (k,) of concept numbers `concepts` (k,) on some images, and whether the image
    `shows` it (k,). `texts` (n, d) are the text embeddings of all concepts, which say how alike they are; `commonness`
    (n,) is how common they are, on any scale, where that is known; `classes` (k,) are the numbers of the images'
    classes, -1 where that is not known, of which there are `class_count`; None: they do not count."""
    scores, concepts = np.asarray(scores, np.float64), np.asarray(concepts, np.int64)
    shows = np.asarray(shows, np.float64)
    spread = float(scores.std())
    unit = spread if spread > 1e-6 * float(np.abs(scores).max()) else 1.0  # equal scores say nothing of the slope
    asked, place = np.unique(concepts, return_inverse=True)
    prior, scaled = _Prior.of(texts, asked, commonness), scores / unit
    # The map of any class has no random effects: their owners would be the concepts themselves.
    every = np.arange(len(asked))
    spread, _, left_out = _chosen(prior, scaled, place, shows, place, every, (0.0,))
    solved = _solve(scaled, place, shows, prior.covariance(spread), place, every, 0.0)
    by_class = None
    if classes is not None:
        pairs, pair = np.unique(np.stack([place, classes]), axis=1, return_inverse=True)
        spread_, class_spread, left_out = _chosen(prior, scaled, place, shows, pair.ravel(), pairs[0], CLASS_SPREADS)
        mixed = _solve(scaled, place, shows, prior.covariance(spread_), pair.ravel(), pairs[0], class_spread)
        by_class = _by_class(prior, mixed, spread_, class_spread, pairs, class_count)
        by_class[1] /= unit
    counts = np.bincount(concepts, minlength=len(texts))
    error = math.nan if np.isnan(left_out).any() else expected_error(left_out, shows)
    intercepts = prior.extended(solved.intercepts, spread)
    return Shown(intercepts, solved.slope / unit, counts, source, error, by_class=by_class)


def _chosen(
    prior: _Prior,
    scores: np.ndarray,
    place: np.ndarray,
    shows: np.ndarray,
    pair: np.ndarray,
    owner: np.ndarray,
    class_spreads: Sequence[float],
) -> tuple[float, float, np.ndarray]:
    """The standard deviations of intercepts and of random effects with the least cross-validated loss, and the
    probabilities (k,) of answers that were left out, NaN where there are too few to leave any out."""
    enough = len(scores) >= 2 * FOLDS
    fold = np.random.default_rng(0).permutation(len(scores)) % FOLDS
    best: tuple[float, float, float, np.ndarray] | None = None
    for spread in SPREADS if enough else SPREADS[1:2]:
        covariance = prior.covariance(spread)
        for class_spread in class_spreads if enough else class_spreads[-1:]:
            logits = np.full(len(scores), np.nan)
            for number in range(FOLDS if enough else 0):
                test, rest = fold == number, fold != number
                solution = _solve(scores[rest], place[rest], shows[rest], covariance, pair[rest], owner, class_spread)
                means = solution.intercepts[place[test]] + solution.effects[pair[test]] + solution.slope * scores[test]
                logits[test] = means * (
                    1.0 if len(class_spreads) == 1 else _damped(solution.variances(owner)[pair[test]])
                )
            loss = float(np.mean(np.logaddexp(0.0, logits) - shows * logits)) if enough else 0.0
            if best is None or loss < best[0]:
                best = (loss, spread, class_spread, logits)
    assert best is not None
    return best[1], best[2], sigmoid(best[3])


def _damped(variance: np.ndarray) -> np.ndarray:
    """Factor k for which sigmoid(k m) is the mean of sigmoid(x), x normal with mean m and this variance (MacKay)."""
    return np.asarray(1.0 / np.sqrt(1.0 + math.pi / 8.0 * variance))


def _by_class(
    prior: _Prior, solution: _Solution, spread: float, class_spread: float, pairs: np.ndarray, classes: int
) -> np.ndarray:
    """Intercepts and slopes (2, classes, n), by the solution's means and variances; `pairs` (2, p) are places among the
    asked concepts and class numbers."""
    means = np.tile(prior.extended(solution.intercepts, spread), (classes, 1))
    variances = np.tile(prior.variances(solution.covariance, spread) + class_spread**2, (classes, 1))
    known = pairs[1] >= 0
    place = pairs[1][known], prior.asked[pairs[0][known]]
    means[place] += solution.effects[known]
    variances[place] = solution.variances(pairs[0])[known]
    factor = _damped(variances)
    return np.stack([factor * means, factor * solution.slope])


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
    errors = [np.abs((probabilities - shows)[which == number].sum()) for number in range(bins)]
    return float(sum(errors) / max(len(shows), 1))


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
        every = np.empty(len(self.common))
        every[self.others] = self._cross(spread) @ np.linalg.solve(self.covariance(spread), intercepts)
        every[self.asked] = intercepts
        return every

    def variances(self, covariance: np.ndarray, spread: float) -> np.ndarray:
        """Variances of the intercepts of all concepts (n,), where those asked about have this covariance (a, a)."""
        gain = np.linalg.solve(self.covariance(spread), self._cross(spread).T).T
        own = (self.common[self.others] ** 2).sum(axis=1) + spread**2
        every = np.empty(len(self.common))
        every[self.others] = own - (gain * self._cross(spread)).sum(axis=1) + ((gain @ covariance) * gain).sum(axis=1)
        every[self.asked] = covariance.diagonal()
        return every

    def _cross(self, spread: float) -> np.ndarray:
        """Prior covariance of the others with the asked (n - a, a)."""
        cross = self.common[self.others] @ self.common[self.asked].T
        return cross if self.others_alike is None else cross + spread**2 * ALIKE * self.others_alike


def _likeness(texts: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Similarity of the texts of these concepts, 1 for equal ones."""
    from ccr.geometry import unit_rows  # brings torch, which the light runtime does without

    centred = np.asarray(texts, np.float64) - np.mean(texts, axis=0)
    rows = unit_rows(centred)
    return np.exp((rows[one] @ rows[other].T - 1.0) / REACH)


class _Solution(NamedTuple):
    """The most probable intercepts (a,), random effects (p,) and slope, and the posterior covariance (a, a) of the
    intercepts. Of each effect, `weight` (p,) is the curvature of its answers, `gain` (p,) its variance given its
    intercept."""

    intercepts: np.ndarray
    effects: np.ndarray
    slope: float
    covariance: np.ndarray
    weight: np.ndarray
    gain: np.ndarray

    def variances(self, owner: np.ndarray) -> np.ndarray:
        """Posterior variances (p,) of intercept and effect together, by Laplace's approximation."""
        return np.asarray((1.0 - self.gain * self.weight) ** 2 * self.covariance.diagonal()[owner] + self.gain)


class _Posterior(NamedTuple):
    """Negative log posterior of intercepts (n,), random effects (p,) and slope, which is convex. Of each answer (k,)
    `place` and `pair` are intercept and effect, `owner` (p,) is each effect's intercept. The prior has this `precision`
    (n, n) of intercepts and `variance` of effects."""

    scores: np.ndarray
    shows: np.ndarray
    place: np.ndarray
    pair: np.ndarray
    owner: np.ndarray
    precision: np.ndarray
    variance: float

    @property
    def effect_precision(self) -> float:
        return 1.0 / self.variance if self.variance else 0.0  # without any variance effects stay 0

    def logits(self, intercepts: np.ndarray, effects: np.ndarray, slope: float) -> np.ndarray:
        return np.asarray(intercepts[self.place] + effects[self.pair] + slope * self.scores)

    def loss(self, intercepts: np.ndarray, effects: np.ndarray, slope: float) -> float:
        logits = self.logits(intercepts, effects, slope)
        prior = intercepts @ self.precision @ intercepts + ((slope - SLOPE) / SLOPE_SPREAD) ** 2
        prior += self.effect_precision * (effects @ effects)
        return float((np.logaddexp(0.0, logits) - self.shows * logits).sum() + 0.5 * prior)

    def curvature(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities and curvatures of the answers (k,), their sum `weight` by effect (p,), and the effects'
        variances given everything else, `gain` (p,)."""
        probabilities = sigmoid(logits)
        each = probabilities * (1.0 - probabilities)
        weight = np.bincount(self.pair, each, minlength=len(self.owner))
        return probabilities, each, weight, self.variance / (1.0 + self.variance * weight)

    def by_intercept(self, values: np.ndarray) -> np.ndarray:
        """Sums of values of effects (p,) by their intercepts (n,)."""
        return np.bincount(self.owner, values, minlength=len(self.precision))

    def newton_step(
        self, intercepts: np.ndarray, effects: np.ndarray, slope: float, *, held: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The Newton step of intercepts and slope (n + 1,), and of effects (p,); 0 of a slope that is `held`."""
        n = len(intercepts)
        probabilities, each, weight, gain = self.curvature(self.logits(intercepts, effects, slope))
        off, tilt = probabilities - self.shows, np.bincount(self.pair, each * self.scores, minlength=len(effects))
        wrong = np.bincount(self.pair, off, minlength=len(effects))
        effect_gradient = wrong + self.effect_precision * effects
        # Effects have a diagonal Hessian: eliminating them leaves n + 1 equations however many pairs there are.
        hessian = np.empty((n + 1, n + 1))
        hessian[:n, :n] = self.precision
        hessian[np.arange(n), np.arange(n)] += self.by_intercept(weight * (1.0 - gain * weight))
        hessian[n, :n] = hessian[:n, n] = self.by_intercept(tilt * (1.0 - gain * weight))
        hessian[n, n] = each @ self.scores**2 - (gain * tilt) @ tilt + SLOPE_SPREAD**-2
        gradient = np.append(
            self.by_intercept(wrong - gain * weight * effect_gradient) + self.precision @ intercepts,
            off @ self.scores - (gain * tilt) @ effect_gradient + (slope - SLOPE) / SLOPE_SPREAD**2,
        )
        free = n if held else n + 1
        step = np.zeros(n + 1)
        step[:free] = np.linalg.solve(hessian[:free, :free], gradient[:free])
        return step, gain * (effect_gradient - weight * step[:n][self.owner] - tilt * step[n])


def _optimum(posterior: _Posterior, *, held: float | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    """The most probable intercepts, random effects and slope, or for a slope that is `held`, by damped Newton steps."""
    n = len(posterior.precision)
    intercepts, effects, slope = np.zeros(n), np.zeros(len(posterior.owner)), SLOPE if held is None else held
    now = posterior.loss(intercepts, effects, slope)
    for _ in range(50):
        step, effect_step = posterior.newton_step(intercepts, effects, slope, held=held is not None)
        size = 1.0
        while size > 1e-4:
            tried = intercepts - size * step[:n], effects - size * effect_step, slope - size * float(step[n])
            after = posterior.loss(*tried)
            if after <= now:
                break
            size *= 0.5
        else:
            break
        (intercepts, effects, slope), gained, now = tried, now - after, after
        if gained < 1e-10 * max(1.0, abs(now)):
            break
    return intercepts, effects, slope


def _solve(
    scores: np.ndarray,
    place: np.ndarray,
    shows: np.ndarray,
    covariance: np.ndarray,
    pair: np.ndarray,
    owner: np.ndarray,
    class_spread: float,
) -> _Solution:
    """The optimum under a prior of this covariance (a, a) of intercepts and standard deviation of random effects, by
    damped Newton steps. `place` and `pair` (k,) are each answer's intercept and effect, `owner` (p,) is each effect's
    intercept."""
    precision = np.linalg.inv(covariance)
    posterior = _Posterior(scores, shows, place, pair, owner, precision, class_spread**2)
    intercepts, effects, slope = _optimum(posterior)
    if slope < LEAST_SLOPE:  # the loss is convex, so that the optimum among the permitted slopes has the least
        intercepts, effects, slope = _optimum(posterior, held=LEAST_SLOPE)
    _, _, weight, gain = posterior.curvature(posterior.logits(intercepts, effects, slope))
    inverse = precision + np.diag(posterior.by_intercept(weight * (1.0 - gain * weight)))
    return _Solution(intercepts, effects, slope, np.linalg.inv(inverse), weight, gain)
