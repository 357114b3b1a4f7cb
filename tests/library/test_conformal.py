"""Sets hold the true class as often as was asked; temperature is the best there is; a question settles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import binom

from ccr import calibration as conformal
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain import settling_question


def drawn(seed: int, m: int, classes: int = 5, sharp: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn by their own probabilities: temperature 1 is right."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(size=(m, classes))
    return logits, np.array([rng.choice(classes, p=row) for row in softmax(logits, axis=1)])


@pytest.mark.parametrize("true", [0.2, 1.0, 3.5])
def test_temperature_is_found_and_is_the_best(true: float) -> None:
    logits, y = drawn(0, 20_000)
    found = conformal.fit_temperature(logits * true, y)
    assert found == pytest.approx(true, rel=0.05)

    def loss(temperature: float) -> float:
        return float(-log_softmax(logits * true / temperature, axis=1)[np.arange(len(y)), y].mean())

    other = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-8})
    assert loss(found) <= other.fun + 1e-9


def test_temperature_of_logits_that_say_nothing_is_one() -> None:
    assert conformal.fit_temperature(np.zeros((10, 3)), np.zeros(10, int)) == 1.0


def test_temperature_has_ends() -> None:
    """All right, so that ever colder is ever better, and all wrong."""
    logits = np.eye(3)
    assert conformal.fit_temperature(logits, np.arange(3)) == pytest.approx(1 / 20, rel=1e-3)
    assert conformal.fit_temperature(logits, np.array([1, 2, 0])) == pytest.approx(20, rel=1e-3)


def test_coverage_over_many_calibrations_is_what_theory_says() -> None:
    """Of n calibration images, a new one is covered with probability k / (n + 1), exactly."""
    n, rounds, hits = 60, 2000, dict.fromkeys((0.5, 0.8, 0.9, 0.95), 0)
    for seed in range(rounds):
        logits, y = drawn(seed, n + 1, sharp=1.0)
        own = softmax(logits, axis=1)[np.arange(n + 1), y]
        for coverage in hits:
            hits[coverage] += own[n] >= conformal.least_probability(own[:n], coverage)
    for coverage, found in hits.items():
        exact = np.ceil((n + 1) * coverage - 1e-9) / (n + 1)
        low, high = binom.interval(0.999, rounds, exact)
        assert low <= found <= high
        assert coverage <= exact <= coverage + 1 / (n + 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_calibration_images_themselves_are_covered(own: list[float], coverage: float) -> None:
    if len(own) < conformal.fewest_images(coverage):
        with pytest.raises(CCRError, match="needs at least"):
            conformal.least_probability(np.array(own), coverage)
        return
    least = conformal.least_probability(np.array(own), coverage)
    assert np.mean(np.array(own) >= least) >= coverage - 1e-9
    assert least in own


def test_sets_are_the_classes_that_are_probable_enough() -> None:
    probabilities = np.array([[0.7, 0.2, 0.1], [0.4, 0.2, 0.4], [0.34, 0.33, 0.33]])
    sets = conformal.prediction_sets(probabilities, 0.35, ("a", "b", "c"), reasons=np.ones(3, bool))
    assert sets.labels == [["a"], ["a", "c"], []]
    assert sets.abstains.tolist() == [False, True, True]
    silent = conformal.prediction_sets(probabilities, 0.35, ("a", "b", "c"), reasons=np.array([False, True, True]))
    assert silent.labels == sets.labels
    assert silent.abstains.all()
    quality = conformal.set_quality(sets, np.array([0, 2, 1]), 0.9)
    assert (quality.covered, quality.mean_size, quality.accuracy_answered) == (2 / 3, 1.0, 1.0)
    nobody = conformal.set_quality(
        conformal.prediction_sets(probabilities, 2.0, ("a", "b", "c"), reasons=np.ones(3, bool)), np.zeros(3, int), 0.9
    )
    assert nobody.to_dict()["accuracy_answered"] is None


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, float("nan"), "0.9", True, None])
def test_a_coverage_is_a_share(coverage: object) -> None:
    with pytest.raises(CCRError, match="coverage must be above 0 and below 1"):
        conformal.check_coverage(coverage)


@given(st.integers(0, 10_000))
def test_a_question_settles_and_no_nearer_concept_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, classes, least = 8, 4, 0.35
    head = LinearHead(rng.normal(size=(classes, n)) * 2, rng.normal(size=classes) * 0.1)
    codes = np.where(rng.random(n) < 0.4, rng.random(n), 0.0)
    scores, typical = np.where(codes > 0, codes, rng.random(n) * 0.3), rng.random(n)
    names = [f"concept {row}" for row in range(n)]
    found = settling_question(names, codes, scores, head, typical=typical, classes=list("abcd"), least=least)

    def left(row: int, value: float) -> list[str]:
        changed = codes.copy()
        changed[row] = value
        return [name for name, p in zip("abcd", softmax(head.logits(changed[None])[0]), strict=True) if p >= least]

    settling = [row for row in range(n) if typical[row] > codes[row] and len(left(row, typical[row])) == 1]
    if found is None:
        assert not settling
        return
    row = names.index(found.concept)
    assert row in settling
    assert left(row, found.confirmed) == [found.settles]
    assert found.denied == (left(row, 0.0)[0] if len(left(row, 0.0)) == 1 else None)
    assert scores[row] / typical[row] == max(scores[other] / typical[other] for other in settling)
