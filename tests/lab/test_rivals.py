"""Controls: the probe against scikit-learn's logistic regression, zero-shot against cosines written out, and concepts
and words drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.classifier import NotFittedError
from ccr.controls import random_unit_concepts
from ccr.errors import CCRError, FormatError
from ccr.geometry import centered, unit_rows
from ccr.vocab import random_words, read_concepts
from ccr.vocab.lists import WORDS_FILE
from ccr_lab.rivals import LabelFreeCBM, LinearProbe, ZeroShot
from tests.conftest import Data


def scaled(X: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Coordinates of size 1 from the training mean, in float64, as the probe's penalty is meant for."""
    return centered(unit_rows(X), unit_rows(train).mean(axis=0)) * np.sqrt(X.shape[1])


def blobs(
    seed: int = 0, classes: int = 3, m: int = 400, d: int = 12, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(m) % classes
    return rng.normal(size=(classes, d))[y] + noise * rng.normal(size=(m, d)), y


@pytest.mark.parametrize(("alpha", "atol"), [(30.0, 2e-3), (1.0, 2e-2)])
def test_the_probe_is_scikit_learns(digits: Data, alpha: float, atol: float) -> None:
    X, y = digits.X[:300], digits.y[:300]
    probe = LinearProbe([alpha], tol=1e-6).fit(X, y, validation=(digits.X_test, digits.y_test))
    oracle = LogisticRegression(C=1 / alpha, max_iter=5000, tol=1e-7).fit(scaled(X, X), y)
    assert np.allclose(probe.coef_ / np.sqrt(X.shape[1]), oracle.coef_, atol=atol)
    test = scaled(digits.X_test, X)
    assert np.allclose(probe.predict_proba(digits.X_test), oracle.predict_proba(test), atol=atol)
    assert probe.validation_accuracy_ == {alpha: probe.score(digits.X_test, digits.y_test)}
    assert probe.score(digits.X_test, digits.y_test) > 0.9


@pytest.mark.parametrize("center", ["data", None])
def test_the_probes_gradient_is_zero_at_its_solution(center: str | None) -> None:
    X, y = blobs()
    probe = LinearProbe([2.0], center=center, tol=1e-6).fit(X, y, validation=(X, y))  # type: ignore[arg-type]
    rows = unit_rows(X) if center is None else centered(unit_rows(X), unit_rows(X).mean(axis=0))
    slope = (probe.predict_proba(X) - np.eye(3)[y]) / len(X)
    coef = probe.coef_ / np.sqrt(12)
    assert np.abs(slope.T @ rows * np.sqrt(12) + 2.0 / len(X) * coef).max() < 1e-5
    assert np.abs(slope.sum(axis=0)).max() < 1e-5


def test_a_probe_of_two_classes() -> None:
    X, y = blobs(1, classes=2)
    labels = np.array(["pear", "apple"])[y]
    probe = LinearProbe([3.0], tol=1e-6).fit(X, labels, validation=(X, labels))
    assert probe.coef_.shape == (2, 12)
    # Two rows of weights share what one row carries in scikit-learn: half the squares, so half the penalty.
    oracle = LogisticRegression(C=2 / 3.0, tol=1e-8).fit(scaled(X, X), labels)
    assert np.allclose(probe.predict_proba(X), oracle.predict_proba(scaled(X, X)), atol=1e-3)


def test_the_penalty_is_chosen_on_validation_data() -> None:
    X, y = blobs(2, m=3000, d=40, noise=3.0)
    held_out = (X[120:], y[120:])
    alphas = (0.01, 3.0, 100.0)
    probe = LinearProbe(alphas, tol=1e-6).fit(X[:120], y[:120], validation=held_out)
    oracle = {}
    for alpha in alphas:
        model = LogisticRegression(C=1 / alpha, max_iter=5000, tol=1e-8).fit(scaled(X[:120], X[:120]), y[:120])
        oracle[alpha] = model.score(scaled(X[120:], X[:120]), y[120:])
    assert oracle[0.01] + 0.02 < max(oracle.values())
    assert probe.alpha_ == max(oracle, key=lambda alpha: oracle[alpha])
    assert probe.validation_accuracy_ == pytest.approx(oracle, abs=2e-3)
    assert probe.score(*held_out) == probe.validation_accuracy_[probe.alpha_]


def test_ties_go_to_the_stronger_penalty() -> None:
    X, y = np.repeat(np.eye(4), 30, axis=0), np.repeat(np.arange(4), 30)
    probe = LinearProbe((0.1, 5.0, 1.0)).fit(X, y)
    assert set(probe.validation_accuracy_.values()) == {1.0}
    assert probe.alpha_ == 5.0


def test_cross_validation_chooses_as_scikit_learn_does(digits: Data) -> None:
    alphas = (0.3, 3.0, 300.0)
    X, y = digits.X[:300], digits.y[:300]
    probe = LinearProbe(alphas, tol=1e-6).fit(X, y)
    rows = probe.transform(X) * 8.0  # coordinates of size 1, for which the penalties are meant
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(LogisticRegression(max_iter=5000, tol=1e-6), {"C": [1 / alpha for alpha in alphas]}, cv=folds)
    search.fit(rows, y)
    ours = [probe.validation_accuracy_[alpha] for alpha in alphas]
    assert np.allclose(ours, search.cv_results_["mean_test_score"], atol=2e-3)
    assert probe.alpha_ == pytest.approx(1 / search.best_params_["C"])
    whole = LinearProbe([probe.alpha_], tol=1e-6).fit(X, y, validation=(X, y))
    assert np.array_equal(probe.coef_, whole.coef_)  # fitted to all rows in the end


def test_too_few_images_for_folds_are_refused() -> None:
    with pytest.raises(CCRError, match="3 images of every class"):
        LinearProbe().fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.parametrize("kind", ["probe", "zero-shot", "label-free"])
def test_rivals_save_and_load(kind: str, digits: Data, tmp_path: Path) -> None:
    X, y = digits.X, digits.y
    texts = Concepts(sorted(set(y)), np.random.default_rng(0).normal(size=(10, 64)))
    model: Any = {
        "probe": LinearProbe((1.0, 10.0)),
        "zero-shot": ZeroShot(texts),
        "label-free": LabelFreeCBM(digits.concepts, length=5),
    }[kind]
    model.fit(X, y)
    shown = X[:50]
    model.save(tmp_path / "rival")
    again = type(model).load(tmp_path / "rival")
    assert np.array_equal(again.decision_function(shown), model.decision_function(shown))
    assert np.array_equal(again.predict(shown), model.predict(shown))
    assert str(again.get_params()) == str(model.get_params())
    for name in ("alpha_", "validation_accuracy_", "length_"):
        assert getattr(again, name, None) == getattr(model, name, None)
    with pytest.raises(FormatError, match=f"holds a {type(model).__name__}"):
        ConceptClassifier.load(tmp_path / "rival")
    others = {LinearProbe, ZeroShot, LabelFreeCBM} - {type(model)}
    for other in others:
        with pytest.raises(FormatError, match="load it with the class of that name"):
            other.load(tmp_path / "rival")
    with pytest.raises(CCRError, match="read-only"):
        model.coef_ = model.coef_ * 2


def test_what_a_probe_says_and_refuses(digits: Data) -> None:
    probe = LinearProbe([10.0])
    with pytest.raises(NotFittedError):
        probe.transform(digits.X)
    probe.fit(digits.X, digits.y, validation=(digits.X_test, digits.y_test))
    codes = probe.transform(digits.X_test)
    assert np.allclose(np.linalg.norm(codes, axis=1), 1.0, atol=1e-5)
    assert probe.get_feature_names_out()[[0, 63]].tolist() == ["dimension 0", "dimension 63"]
    with pytest.raises(CCRError, match="a probe has no concepts"):
        probe.explain(digits.X_test[0])
    with pytest.raises(CCRError, match="64 dimensions"):
        probe.predict(digits.X_test[:, :10])
    with pytest.raises(CCRError, match="validation has a class that the training data has not: 'digit x'"):
        probe.fit(digits.X, digits.y, validation=(digits.X_test, ["digit x"] * len(digits.X_test)))
    with pytest.raises(CCRError, match="at least two classes"):
        probe.fit(digits.X, ["one"] * len(digits.X))
    for alphas in ([], [1.0, -1.0], [float("inf")], ["a"], None, 3.0):
        with pytest.raises(CCRError, match="alphas must be one or more numbers > 0"):
            LinearProbe(alphas).fit(digits.X, digits.y)  # type: ignore[arg-type]
    with pytest.raises(CCRError, match="center must be"):
        LinearProbe(center="origin").fit(digits.X, digits.y)  # type: ignore[arg-type]


@pytest.mark.parametrize("center", ["data", None])
def test_constant_embeddings_predict_the_commonest_class(center: str | None) -> None:
    X, y = np.zeros((50, 4)), np.array([0] * 30 + [1] * 20)
    X[:, 0] = 1.0
    probe = LinearProbe([1.0], center=center).fit(X, y, validation=(X, y))  # type: ignore[arg-type]
    assert (probe.predict(X) == 0).all()
    assert np.allclose(probe.predict_proba(X), [0.6, 0.4], atol=1e-3)


@pytest.mark.parametrize("center", ["data", None])
def test_zero_shot_is_the_nearest_text(center: str | None) -> None:
    X, y = blobs(4)
    rng = np.random.default_rng(4)
    texts = unit_rows(rng.normal(size=(3, 12)) + 0.5)
    concepts = Concepts(["2", "0", "1"], texts[[2, 0, 1]])
    model = ZeroShot(concepts, center=center).fit(X, y)  # type: ignore[arg-type]
    images = unit_rows(X)
    if center:
        mean = texts.mean(axis=0)
        common = max(0.0, 1.0 - 1.0 / (3 * float(mean @ mean)))  # James and Stein's
        assert 0 < common < 1
        images, texts = centered(images, images.mean(axis=0)), centered(texts, common * mean)
    assert np.allclose(model.transform(X), images @ texts.T, atol=1e-5)
    assert np.allclose(model.decision_function(X), images @ texts.T, atol=1e-5)
    assert np.array_equal(model.predict(X), (images @ texts.T).argmax(axis=1))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.names_ == ("0", "1", "2")
    explanation = model.explain(X[0])
    assert explanation.prediction == model.predict(X[:1])[0]
    assert explanation.logit == pytest.approx(float(model.decision_function(X[:1]).max()), abs=1e-6)


def test_zero_shot_on_real_clip(clip: Data) -> None:
    known = [name for name in np.unique(clip.y) if name in clip.concepts.names]
    assert len(known) >= 5
    rows = np.isin(clip.y, known)
    model = ZeroShot(clip.concepts).fit(clip.X[rows], clip.y[rows])
    test = np.isin(clip.y_test, known)
    assert model.score(clip.X_test[test], clip.y_test[test]) > 0.8
    assert model.names_ == tuple(known)


def test_zero_shot_of_two_classes_and_constant_images() -> None:
    concepts = Concepts(["no", "yes"], np.eye(3)[:2])
    X = np.array([[0.1, 1.0, 0.0], [1.0, 0.0, 0.2]])
    model = ZeroShot(concepts).fit(X, ["yes", "no"])
    assert model.predict(X).tolist() == ["yes", "no"]
    same = ZeroShot(concepts).fit(np.ones((4, 3)), ["no", "yes", "no", "yes"])
    assert np.isfinite(same.predict_proba(np.ones((4, 3)))).all()


def test_zero_shot_needs_a_text_for_each_class() -> None:
    concepts = Concepts(["apple", "pear"], np.eye(3)[:2])
    X = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(CCRError, match="1 have none: 'plum'"):
        ZeroShot(concepts).fit(X, ["apple", "plum"] * 3)
    with pytest.raises(CCRError, match="class_concepts must be a Concepts"):
        ZeroShot().fit(X, ["apple", "pear"] * 3)
    with pytest.raises(CCRError, match="concepts' 3 dimensions, got 2"):
        ZeroShot(concepts).fit(X[:, :2], ["apple", "pear"] * 3)
    with pytest.raises(NotFittedError):
        ZeroShot(concepts).transform(X)


def test_texts_of_classes_that_are_not_there_play_no_part() -> None:
    X, y = blobs(5)
    texts = unit_rows(np.random.default_rng(5).normal(size=(4, 12)))
    few = ZeroShot(Concepts(["0", "1", "2"], texts[:3])).fit(X, y)
    many = ZeroShot(Concepts(["0", "1", "2", "3"], texts)).fit(X, y)
    assert np.array_equal(few.transform(X), many.transform(X))


def test_random_unit_concepts(digits: Data) -> None:
    random = random_unit_concepts(digits.concepts, seed=3)
    assert random.embeddings.shape == digits.concepts.embeddings.shape
    assert random.names[17] == "random 17"
    assert random == random_unit_concepts(digits.concepts, seed=3)
    assert random != random_unit_concepts(digits.concepts, seed=4)
    many = random_unit_concepts(Concepts([str(row) for row in range(5000)], np.ones((5000, 8))), seed=0).embeddings
    assert np.allclose(many.T @ many / len(many), np.eye(8) / 8, atol=0.01)
    assert np.abs(many.mean(axis=0)).max() < 0.02
    model = ConceptClassifier(random, coder=HardThreshold(length=5), radius=0.0, max_iter=5, random_state=0)
    assert model.fit(digits.X, digits.y).score(digits.X_test, digits.y_test) > 0.5


def test_random_words_are_different_and_determined_by_the_seed() -> None:
    words = random_words(100, seed=1)
    assert len(set(words)) == 100
    assert words == random_words(100, seed=1)
    assert words != random_words(100, seed=2)
    assert words[:30] == random_words(30, seed=1)
    assert set(words) <= set(read_concepts(WORDS_FILE))


def test_words_of_excluded_texts_are_left_out() -> None:
    everything = read_concepts(WORDS_FILE)
    assert len(everything) >= 600
    assert all(word.isalpha() and word.islower() for word in everything)
    exclude = ["Ledger", "on TUESDAY, although", "red skin"]
    found = random_words(len(everything), seed=0, exclude=exclude)
    singles = [word for word in found if " " not in word]
    assert set(everything) - set(singles) == {"ledger", "tuesday", "although"}
    assert not {"ledger", "tuesday", "although"} & {part for word in found for part in word.split()}


def test_pairs_follow_when_words_are_used_up() -> None:
    everything = read_concepts(WORDS_FILE)
    n = len(everything)
    found = random_words(n + 500, seed=0)
    assert len({frozenset(text.split()) for text in found}) == n + 500
    assert all(" " not in text for text in found[:n])
    assert all(len(set(text.split()) & set(everything)) == 2 for text in found[n:])
    assert random_words(3, seed=0, exclude=everything[2:]) == [
        *random_words(2, seed=0, exclude=everything[2:]),
        " ".join(everything[:2]),
    ]
    for wrong in (0, -1, 10**9):
        with pytest.raises(CCRError, match="there are between 1 and"):
            random_words(wrong, seed=0)
