"""The map from a concept's score to the probability that an image shows it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ccr.knowledge import shown
from ccr.knowledge.shown import Shown, expected_error, fit_shown, sigmoid, stated_from


def answers(seed: int, n: int = 12, each: int = 40) -> tuple[np.ndarray, ...]:
    """Answers of a world with its own intercepts and slope 8: scores, concepts, what is shown, texts, intercepts."""
    rng = np.random.default_rng(seed)
    intercepts, concepts = rng.normal(-1.0, 1.0, n), np.repeat(np.arange(n), each)
    scores = rng.uniform(0.0, 0.4, len(concepts))
    shows = rng.random(len(scores)) < sigmoid(intercepts[concepts] + 8.0 * scores)
    return scores, concepts, shows, rng.standard_normal((n, 16)), intercepts


def least(loss: Callable[[np.ndarray], float], n: int) -> float:
    """The least loss of n values, the last of which is a slope."""
    bounds = [(None, None)] * (n - 1) + [(shown.LEAST_SLOPE, None)]
    options = {"ftol": 1e-14, "gtol": 1e-8, "maxiter": 5000, "maxfun": 10**6}
    return float(minimize(loss, np.ones(n), method="L-BFGS-B", bounds=bounds, options=options).fun)


def test_what_nobody_saw_is_not_shown_though_scores_order_no_answers() -> None:
    """Half of the concepts are in none of seven photos, the others in those with low scores."""
    rng = np.random.default_rng(0)
    concepts, scores = np.repeat(np.arange(20), 7), np.tile(np.linspace(0.1, 0.3, 7), 20)
    shows = (concepts % 2 == 1) & (scores < 0.28)
    found = fit_shown(scores, concepts, shows, rng.standard_normal((20, 16)))
    probable = found.probabilities(scores, concepts)
    assert probable.mean() == pytest.approx(shows.mean(), abs=0.02)
    assert probable[concepts % 2 == 0].max() < 0.2
    assert probable[concepts % 2 == 1].min() > 0.6


def test_many_answers_give_the_map_that_made_them() -> None:
    scores, concepts, shows, texts, intercepts = answers(0, each=4000)
    found = fit_shown(scores, concepts, shows, texts)
    assert found.slope == pytest.approx(8.0, rel=0.1)
    assert np.abs(found.intercepts - intercepts).max() < 0.3
    assert found.error < 0.02
    assert (found.answers == 4000).all()


@pytest.mark.parametrize("misled", [False, True])
def test_the_solution_is_the_optimum_that_another_optimiser_finds(misled: bool) -> None:
    scores, concepts, shows, texts, _ = answers(1, each=6)
    shows = shows ^ misled  # the higher the score, the less is shown: the slope stays at its least
    covariance = shown._Prior.of(texts, np.arange(12), np.arange(12.0)).covariance(0.8)
    every = np.arange(12)
    found = shown._solve(scores, concepts, shows.astype(float), covariance, concepts, every, 0.0)
    intercepts, slope = found.intercepts, found.slope
    precision = np.linalg.inv(covariance)

    def loss(values: np.ndarray) -> float:
        logits = values[concepts] + values[12] * scores
        prior = values[:12] @ precision @ values[:12] + ((values[12] - shown.SLOPE) / shown.SLOPE_SPREAD) ** 2
        return float((np.logaddexp(0.0, logits) - shows * logits).sum() + 0.5 * prior)

    best = least(loss, 13)
    assert (slope == shown.LEAST_SLOPE) is misled
    assert loss(np.append(intercepts, slope)) <= best + 1e-6


@pytest.mark.parametrize("misled", [False, True])
def test_random_effects_are_at_the_optimum_that_another_optimiser_finds(misled: bool) -> None:
    scores, concepts, shows, texts, _ = answers(2, n=6, each=8)
    shows = shows ^ misled
    pair = 3 * concepts + np.random.default_rng(0).integers(0, 3, len(concepts))
    covariance, owner, spread = shown._Prior.of(texts, np.arange(6), None).covariance(0.8), np.arange(18) // 3, 1.5
    found = shown._solve(scores, concepts, shows.astype(float), covariance, pair, owner, spread)
    precision = np.linalg.inv(covariance)

    def loss(values: np.ndarray) -> float:
        logits = values[concepts] + values[6 + pair] + values[24] * scores
        prior = values[:6] @ precision @ values[:6] + ((values[24] - shown.SLOPE) / shown.SLOPE_SPREAD) ** 2
        prior += (values[6:24] ** 2).sum() / spread**2
        return float((np.logaddexp(0.0, logits) - shows * logits).sum() + 0.5 * prior)

    best = least(loss, 25)
    assert (found.slope == shown.LEAST_SLOPE) is misled
    assert loss(np.concatenate([found.intercepts, found.effects, [found.slope]])) <= best + 1e-6
    # The variances are those of the inverse of the whole Hessian, the slope held.
    each = sigmoid(found.intercepts[concepts] + found.effects[pair] + found.slope * scores)
    design = np.hstack([np.eye(6)[concepts], np.eye(18)[pair]])
    hessian = design.T @ ((each * (1 - each))[:, None] * design)
    hessian[:6, :6] += precision
    hessian[6:, 6:] += np.eye(18) / spread**2
    whole, both = np.linalg.inv(hessian), np.hstack([np.eye(6)[owner], np.eye(18)])
    assert np.allclose(found.covariance, whole[:6, :6])
    assert np.allclose(found.variances(owner), (both @ whole @ both.T).diagonal())


def test_an_intercept_that_nobody_was_asked_about_varies_as_its_prior_and_the_answers_leave_it() -> None:
    texts = np.random.default_rng(0).standard_normal((5, 4))
    prior, whole = (shown._Prior.of(texts, np.arange(n), None) for n in (3, 5))
    answered = np.diag([0.1, 0.2, 0.3])
    joint = whole.covariance(0.8) - 1e-6 * np.eye(5)
    gain = joint[3:, :3] @ np.linalg.inv(prior.covariance(0.8))
    by_hand = joint[3:, 3:] - gain @ joint[:3, 3:] + gain @ answered @ gain.T
    assert np.allclose(prior.variances(answered, 0.8), [0.1, 0.2, 0.3, *by_hand.diagonal()])


def claims_of_classes(seed: int, each: int) -> tuple[np.ndarray, ...]:
    """Answers about 20 concepts, each about two of three classes, whose effects are as large as the intercepts':
    scores, concepts, classes, what is shown, and the probability by hand (3, 20) at a score of 0.5."""
    rng = np.random.default_rng(seed)
    concepts = np.repeat(np.arange(20), each)
    classes = (concepts + np.tile(np.arange(each) % 2, 20)) % 3
    effects, scores = rng.normal(0.0, 2.0, (3, 20)), rng.uniform(0.0, 1.0, len(concepts))
    shows = rng.random(len(scores)) < sigmoid(effects[classes, concepts] + 2.0 * scores)
    return scores, concepts, classes, shows, sigmoid(effects + 1.0)


def test_answers_about_a_class_are_believed_of_that_class_and_less_of_another() -> None:
    off: list[list[float]] = []
    for seed in range(6):
        scores, concepts, classes, shows, truth = claims_of_classes(seed, 8)
        texts = np.random.default_rng(seed).standard_normal((20, 32))
        found = fit_shown(scores, concepts, shows, texts, classes=classes, class_count=3)
        likely = found.probabilities(np.full((3, 20), 0.5), classes=np.arange(3))
        pooled = np.tile(found.probabilities(np.full(20, 0.5)), (3, 1))
        asked = np.zeros((3, 20), bool)
        asked[classes, concepts] = True
        unsure = [np.abs(one[~asked] - 0.5).mean() for one in (likely, pooled)]
        assert unsure[0] < unsure[1]
        off.append([np.abs(one[asked] - truth[asked]).mean() for one in (likely, pooled)])
    assert np.mean(off, axis=0)[0] < np.mean(off, axis=0)[1]


def test_many_answers_give_the_map_of_each_class() -> None:
    scores, concepts, classes, shows, truth = claims_of_classes(0, 2000)
    found = fit_shown(scores, concepts, shows, np.eye(20), classes=classes, class_count=3)
    likely = found.probabilities(np.full((3, 20), 0.5), classes=np.arange(3))
    assert np.abs(likely - truth)[classes, concepts].max() < 0.08
    assert found.error < 0.02


def test_classes_change_nothing_of_the_map_of_any_class_and_unknown_ones_none_of_a_class() -> None:
    scores, concepts, _, shows, _ = claims_of_classes(0, 8)
    texts = np.random.default_rng(0).standard_normal((22, 32))  # two concepts that nobody was asked about
    plain, told = (
        fit_shown(scores, concepts, shows, texts, classes=one, class_count=3) for one in (None, np.full(160, -1))
    )
    assert np.array_equal(plain.intercepts, told.intercepts)
    assert plain.slope == told.slope
    assert plain.by_class is None
    assert plain.probabilities(np.zeros(22), classes=1).tolist() == plain.probabilities(np.zeros(22)).tolist()
    assert told.by_class is not None
    assert np.array_equal(told.by_class[:, 0], told.by_class[:, 2])


@given(st.integers(0, 200), st.integers(1, 6), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_probabilities_rise_with_the_score_and_thresholds_are_where_they_cross(seed: int, n: int, each: int) -> None:
    scores, concepts, shows, texts, _ = answers(seed, n=n, each=each)
    found = fit_shown(scores, concepts, shows, texts)
    grid = np.linspace(-1.0, 1.0, 50)[:, None] * np.ones(n)
    likely = found.probabilities(grid)
    assert ((likely >= 0) & (likely <= 1)).all()
    assert (np.diff(likely, axis=0) >= 0).all()
    assert found.slope > 0
    for probability in (0.1, 0.5, 0.9):
        assert np.allclose(found.probabilities(found.thresholds(probability)), probability)


def test_a_concept_without_answers_has_what_concepts_like_it_have() -> None:
    rng = np.random.default_rng(0)
    texts = np.concatenate([np.tile([1.0, 0.0, 0.0], (4, 1)), np.tile([0.0, 1.0, 0.0], (4, 1))])
    texts += 0.05 * rng.standard_normal(texts.shape)
    asked = np.repeat([0, 1, 2, 4, 5, 6], 30)  # of 3 and 7 nobody was asked
    scores = rng.uniform(0.0, 0.4, len(asked))
    shows = rng.random(len(asked)) < np.where(asked < 4, 0.9, 0.1)
    found = fit_shown(scores, asked, shows, texts)
    assert found.answers.tolist() == [30, 30, 30, 0, 30, 30, 30, 0]
    likely = found.probabilities(np.full(8, 0.2))
    assert likely[3] > 0.7 > 0.3 > likely[7]


def test_what_is_true_of_more_classes_is_shown_by_more_photos() -> None:
    rng = np.random.default_rng(0)
    common, asked = np.linspace(-2.0, 2.0, 40), np.repeat(np.arange(30), 3)  # nobody was asked of the last ten
    order = rng.permutation(40)
    common = common[order]
    scores = rng.uniform(0.0, 0.4, len(asked))
    shows = rng.random(len(asked)) < sigmoid(1.5 * common[asked])
    texts = rng.standard_normal((40, 64))
    told, untold = (fit_shown(scores, asked, shows, texts, commonness=one) for one in (common, None))
    assert np.corrcoef(told.intercepts[30:], common[30:])[0, 1] > 0.95
    assert np.abs(np.corrcoef(untold.intercepts[30:], common[30:])[0, 1]) < 0.8
    truth = sigmoid(1.5 * common)
    off = [np.abs(one.probabilities(np.full(40, 0.2)) - truth).mean() for one in (told, untold)]
    assert off[0] < off[1]
    same = fit_shown(scores, asked, shows, texts, commonness=np.ones(40))
    assert np.allclose(same.intercepts, untold.intercepts)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), st.floats(0.05, 0.95))
@settings(deadline=None)
def test_claims_are_stated_from_where_they_are_true_often_enough(chances: list[float], truth: float) -> None:
    likely = np.array(chances)
    cut = stated_from(likely, truth)
    stated = likely[likely >= cut]
    if len(stated):
        assert stated.mean() >= truth - 1e-9
    for lower in likely[likely < cut]:  # none of them could be stated, too
        assert likely[likely >= lower].mean() < truth + 1e-9


@pytest.mark.parametrize("shows", [True, False])
def test_answers_that_all_agree_are_no_certainty(shows: bool) -> None:
    found = fit_shown(np.array([0.1, 0.2, 0.3]), np.zeros(3, int), np.full(3, shows), np.eye(2))
    likely = float(found.probabilities(np.array([0.2, 0.2]))[0])
    assert (0.5 < likely < 0.99) if shows else (0.01 < likely < 0.5)
    assert math.isnan(found.error)  # too few to leave some out


def test_equal_scores_and_a_single_answer_are_no_trouble() -> None:
    found = fit_shown(np.array([0.2]), np.array([0]), np.array([True]), np.ones((1, 3)))
    assert np.isfinite(found.intercepts).all()
    same = fit_shown(np.full(20, 0.2), np.zeros(20, int), np.arange(20) < 15, np.ones((3, 3)))
    assert float(same.probabilities(np.array([0.2, 0.2, 0.2]))[0]) == pytest.approx(0.75, abs=0.1)


def test_the_calibration_error_is_that_of_bins_by_hand() -> None:
    likely, shows = np.array([0.05, 0.07, 0.95, 0.91]), np.array([0.0, 1.0, 1.0, 1.0])
    by_hand = (abs(0.12 - 1.0) + abs(1.86 - 2.0)) / 4
    assert expected_error(likely, shows) == pytest.approx(by_hand)
    assert expected_error(np.zeros(0), np.zeros(0)) == 0.0


def test_parts_of_a_map_keep_their_own_numbers() -> None:
    by_class = np.arange(12.0).reshape(2, 2, 3)
    whole = Shown(np.arange(3.0), 2.0, np.array([1, 2, 3]), "photos", by_class=by_class)
    assert np.array_equal(whole.of([2, 0]).by_class, by_class[:, :, [2, 0]])
    assert whole.with_one_more().by_class[:, :, 3].tolist() == [[1.0, 4.0], [7.0, 10.0]]
    assert whole.of([2, 0]).intercepts.tolist() == [2.0, 0.0]
    assert whole.with_one_more().intercepts.tolist() == [0.0, 1.0, 2.0, 1.0]
    assert whole.with_one_more().answers.tolist() == [1, 2, 3, 0]
