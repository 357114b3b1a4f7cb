"""Calibrated models: sets hold on images never seen, probabilities mean what they say, folders are checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import ccr.runtime
from ccr import ConceptClassifier, ConceptModel, HardThreshold
from ccr.calibration import cross_entropy, fit_temperature, measured_temperature
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.inputs import Embeddings
from ccr.refine.data import split
from tests.conftest import Data


@pytest.fixture(scope="module")
def fitted(digits: Data) -> ConceptClassifier:
    settings = {"coder": HardThreshold(length=8), "max_iter": 25, "random_state": 0}
    return ConceptClassifier(digits.concepts, coverage=0.9, **settings).fit(digits.X, digits.y)


def test_sets_hold_on_new_images(fitted: ConceptClassifier, digits: Data) -> None:
    quality = fitted.evaluate_sets(digits.X_test, digits.y_test)
    calibration = fitted.calibration_
    # What the calibration images leave open, and the test images: both are draws.
    spread = np.sqrt(0.09 / calibration.images + 0.09 / quality.n)
    assert abs(quality.covered - 0.9) < 3 * spread
    assert quality.n == len(digits.X_test)
    assert 0 < quality.answered <= 1
    assert quality.accuracy_answered > fitted.score(digits.X_test, digits.y_test)


def test_coverage_over_splits_is_what_was_asked(digits: Data) -> None:
    """One model, calibrated on half of the images that it has not seen, measured on the other, many times."""
    settings = {"coder": HardThreshold(length=8), "max_iter": 25, "random_state": 0}
    model = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y).model_
    rng, half, hits, rounds = np.random.default_rng(0), len(digits.X_test) // 2, 0, 30
    for _ in range(rounds):
        order = rng.permutation(len(digits.X_test))
        mine, yours = order[:half], order[half:]
        calibrated = model.calibrated(digits.X_test[mine], digits.y_test[mine], coverage=0.8)
        hits += calibrated.evaluate_sets(digits.X_test[yours], digits.y_test[yours]).covered
    low, high = binom.interval(0.999, len(digits.X_test), 0.8)
    assert low / len(digits.X_test) <= hits / rounds <= high / len(digits.X_test)


def test_the_temperature_is_in_the_head_and_nothing_else_changes(fitted: ConceptClassifier, digits: Data) -> None:
    model = fitted.model_
    warm = model.calibrated(digits.X_test, digits.y_test, coverage=0.9)
    assert warm.predict(digits.X).tolist() == model.predict(digits.X).tolist()
    np.testing.assert_allclose(
        warm.logits(digits.X) * warm.calibration.temperature, model.logits(digits.X), rtol=1e-4, atol=1e-4
    )
    explanation = warm.explain(digits.X[0])
    assert explanation.probability == pytest.approx(warm.predict_proba(digits.X[:1]).max(), abs=1e-6)
    assert explanation.bias + sum(term.contribution for term in explanation.contributions) == pytest.approx(
        explanation.logit
    )


def test_a_temperature_calibrates(digits: Data) -> None:
    """A model made twenty times too sure is brought back."""
    settings = {"coder": HardThreshold(length=8), "max_iter": 25, "random_state": 0}
    model = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y).model_
    sure = replace(model, head=type(model.head)(model.head.coef * 20, model.head.intercept * 20))
    half = len(digits.X_test) // 2
    held, test = (digits.X_test[:half], digits.y_test[:half]), (digits.X_test[half:], digits.y_test[half:])
    before, after = sure.evaluate(*test), sure.calibrated(*held).evaluate(*test)
    assert after.accuracy == before.accuracy
    assert after.calibration_error < before.calibration_error


def test_a_question_settles_an_abstention(fitted: ConceptClassifier, digits: Data) -> None:
    sets = fitted.predict_set(digits.X_test)
    asked = 0
    for row in np.flatnonzero(sets.abstains):
        question = fitted.question(digits.X_test[row])
        if question is None:
            continue
        after = fitted.explain(digits.X_test[row]).intervene({question.concept: question.confirmed}).after
        left = after.probabilities >= fitted.calibration_.least_probability
        assert [after.classes[at] for at in np.flatnonzero(left)] == [question.settles]
        asked += 1
    assert asked > 0
    assert fitted.question(digits.X_test[np.flatnonzero(~sets.abstains)[0]]) is None


def test_an_image_that_shows_no_reason_is_not_answered(fitted: ConceptClassifier, digits: Data) -> None:
    """Nothing passes a threshold this high, so that the bias alone chooses: its one class is no answer."""
    model = fitted.model_
    blind = replace(model, rule=model.rule.with_threshold(1e6))
    top = float(blind.predict_proba(digits.X_test[:1]).max())
    blind = replace(blind, calibration=replace(model.calibration, least_probability=top))
    sets = blind.predict_set(digits.X_test[:9])
    assert sets.sizes.tolist() == [1] * 9
    assert sets.abstains.all()
    assert blind.evaluate(digits.X_test, digits.y_test).without_reason == 1
    assert blind.evaluate_sets(digits.X_test, digits.y_test).answered == 0
    assert model.predict_set(digits.X_test).reasons.any()


def test_the_light_runtime_abstains_and_asks_as_the_full_model_does(
    fitted: ConceptClassifier, digits: Data, tmp_path: Path
) -> None:
    model = fitted.model_
    largest = model.encode(digits.X_test).toarray().max(axis=1)
    rare = replace(model, rule=model.rule.with_threshold(float(np.median(largest))))  # half of the images show nothing
    for name, one in {"usual": model, "rare": rare}.items():
        one.save(tmp_path / name)
        light = ccr.runtime.load(tmp_path / name)
        full, few = one.predict_set(digits.X_test), light.predict_set(digits.X_test)
        assert np.array_equal(few.reasons, full.reasons)
        assert np.array_equal(few.abstains, full.abstains)
        for row in np.flatnonzero(full.abstains)[:5]:
            mine, theirs = light.question(digits.X_test[row]), one.question(digits.X_test[row])
            assert (mine is None) == (theirs is None)
            assert mine is None or (mine.concept, mine.settles) == (theirs.concept, theirs.settles)
    assert not full.reasons.all()
    assert full.reasons.any()


def test_images_held_out_are_not_trained_on(digits: Data) -> None:
    train, held_out = split(Embeddings(digits.X), np.zeros(len(digits.X), int), None, np.arange(5), np.arange(5, 9))
    assert train.rows.tolist() == list(range(9, len(digits.X)))
    assert held_out is not None
    assert held_out.rows.tolist() == list(range(5))
    settings = {"coder": HardThreshold(length=8), "max_iter": 5, "random_state": 0, "coverage": 0.5}
    half = 200
    validation = (digits.X_test[:half], digits.y_test[:half])
    one = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y, validation=validation)
    assert one.calibration_.images == pytest.approx(half / 2, abs=10)
    whole = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)
    assert whole.calibration_.images == pytest.approx(0.2 * 0.9 * len(digits.X), rel=0.1)


def test_a_model_that_was_not_calibrated_says_how(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y)
    assert model.calibration_ is None
    for call in (model.predict_set, model.question):
        with pytest.raises(CCRError, match=r"--coverage 0\.9"):
            call(digits.X[:1])


def test_too_few_images_are_refused_before_the_training(digits: Data) -> None:
    with pytest.raises(CCRError, match=r"coverage of 0\.999 needs at least 999 images"):
        ConceptClassifier(digits.concepts, coverage=0.999).fit(digits.X, digits.y)
    four = np.concatenate([np.flatnonzero(digits.y == name)[:2] for name in ("digit 0", "digit 1")])
    for seed in range(6):  # with some of them no image at all is left to calibrate on
        with pytest.raises(CCRError, match=r"coverage of 0\.6 needs at least 2 images"):
            ConceptClassifier(digits.concepts, coverage=0.6, random_state=seed).fit(digits.X[four], digits.y[four])


def test_an_edited_model_is_not_calibrated_any_more_and_undone_it_is(fitted: ConceptClassifier) -> None:
    session = fitted.edit()
    with pytest.warns(CCRWarning, match="its prediction sets are gone"):
        session.suppress(fitted.concepts_.names[0])
    assert session.model().calibration is None
    assert session.undo().model().calibration is fitted.calibration_


def test_a_calibrated_model_is_saved_to_the_bit(fitted: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = ConceptModel.load(tmp_path / "model")
    assert loaded.calibration is not None
    for name, value in vars(fitted.calibration_).items():
        np.testing.assert_array_equal(getattr(loaded.calibration, name), value)
    np.testing.assert_array_equal(loaded.predict_set(digits.X).members, fitted.predict_set(digits.X).members)
    assert ConceptClassifier.load(tmp_path / "model").coverage == 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0), ("temperature", -1.0), ("temperature", "hot"), ("temperature", 1e9), ("coverage", 2.0),
        ("coverage", None), ("least_probability", -0.1), ("images", 0), ("images", True), ("images", 1.5),
    ],
)  # fmt: skip
def test_a_changed_calibration_is_refused(fitted: ConceptClassifier, tmp_path: Path, name: str, value: object) -> None:
    fitted.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["calibration"][name] = value
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(FormatError, match="the model's"):
        ConceptModel.load(tmp_path / "model")


def test_images_are_counted_before_the_training(digits: Data) -> None:
    """For every seed: either a calibrated model, or an error before any step is taken."""
    rows = np.concatenate([np.flatnonzero(digits.y == name)[:15] for name in np.unique(digits.y)[:6]])
    X, y, refused = digits.X[rows], digits.y[rows], 0
    for seed in range(12):
        steps: list[int] = []
        model = ConceptClassifier(digits.concepts, coverage=0.9, validation_fraction=0, max_iter=1, random_state=seed)
        try:
            model.fit(X, y, callback=lambda epoch, _, steps=steps: steps.append(epoch.epoch))
            assert model.calibration_.images >= 9
        except CCRError as error:
            message = str(error)
            refused += 1
            assert not steps
    assert "needs at least 9 images" in message
    assert int(message.split("and only ")[1].split()[0]) < 9
    assert 0 < refused < 12


def test_a_fit_that_cannot_be_calibrated_leaves_the_model_before(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X, digits.y)
    before = model.model_
    one_each = np.array([np.flatnonzero(digits.y == name)[0] for name in np.unique(digits.y)])
    model.set_params(coverage=0.5)
    with pytest.raises(CCRError, match=r"needs at least 1 images to calibrate on, .* only 0 can be held out"):
        model.fit(digits.X, digits.y, validation=(digits.X[one_each], digits.y[one_each]))
    assert model.model_ is before


def test_any_random_state_divides_the_images(fitted: ConceptClassifier, digits: Data) -> None:
    model, given = fitted.model_, (digits.X_test, digits.y_test)
    assert model.calibrated(*given, random_state=None).calibration is not None
    one, two = (model.calibrated(*given, random_state=np.random.RandomState(3)).calibration for _ in range(2))
    assert one.least_probability == two.least_probability
    by_number = model.calibrated(*given, random_state=np.int64(0)).calibration.least_probability
    assert by_number == model.calibrated(*given).calibration.least_probability


@pytest.mark.parametrize("odd", [1.5, -1, "a", [1]])
def test_other_random_states_are_refused(fitted: ConceptClassifier, digits: Data, odd: object) -> None:
    with pytest.raises(CCRError, match="random_state must be None, a RandomState or a whole number"):
        fitted.model_.calibrated(digits.X_test, digits.y_test, random_state=odd)


def test_a_calibration_error_goes_with_the_temperature_it_was_measured_at(
    fitted: ConceptClassifier, digits: Data
) -> None:
    measured = fitted.evaluate(digits.X_test, digits.y_test).to_dict()
    noted = fitted.model_.with_metrics("test", measured).with_metrics("images", {"test": 3})
    after = noted.calibrated(digits.X_test, digits.y_test).provenance.metrics
    assert after["test"] == {name: value for name, value in measured.items() if name != "calibration_error"}
    assert {name: after[name] for name in after if name != "test"} == {
        name: noted.provenance.metrics[name] for name in after if name != "test"
    }


def test_one_image_of_each_class_cannot_be_halved(fitted: ConceptClassifier, digits: Data) -> None:
    one_each = [int(np.flatnonzero(digits.y_test == name)[0]) for name in fitted.classes_]
    with pytest.raises(CCRError, match=r"two images of at least one class, got 10 images"):
        fitted.model_.calibrated(digits.X_test[one_each], digits.y_test[one_each], coverage=0.5)


def test_an_easy_data_set_keeps_the_temperature_at_one(digits: Data) -> None:
    """Two digits that nobody confuses: no held-out mistake says how sure is too sure."""
    easy = np.isin(digits.y, ["digit 0", "digit 1"])
    model = ConceptClassifier(digits.concepts, coverage=0.8, coder=HardThreshold(length=8), max_iter=25, random_state=0)
    model.fit(digits.X[easy], digits.y[easy])
    assert model.score(digits.X[easy], digits.y[easy]) == 1
    assert model.calibration_.temperature == 1


@pytest.mark.parametrize("mistakes", [0, 1, 2])
def test_a_temperature_from_few_mistakes_is_not_trusted(mistakes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 60)
    logits = 4.0 * np.eye(6)[y] + rng.normal(size=(60, 6)) * 0.3
    y[:mistakes] = (y[:mistakes] + 1) % 6
    assert measured_temperature(logits, y) >= 1
    if mistakes == 0:
        assert fit_temperature(logits, y) < 0.1  # the smallest that it tries


def test_a_measured_temperature_does_not_raise_the_log_loss_of_new_images() -> None:
    """Logits that are three times too large, many images: found, and better on others."""
    rng = np.random.default_rng(1)
    true = rng.normal(size=(4000, 5)) * 2
    y = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    found = measured_temperature(3 * true[:2000], y[:2000])
    assert found == pytest.approx(3, rel=0.15)
    assert cross_entropy(3 * true[2000:] / found, y[2000:]) < cross_entropy(3 * true[2000:], y[2000:])
