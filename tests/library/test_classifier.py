"""ConceptClassifier on real data: scanned digits, and CLIP embeddings where they are beside the checkout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from ccr import Angular, ConceptClassifier, HardThreshold, Symmetric, TopK
from ccr.coding.heads import fit_softmax
from ccr.metrics import explanation_length
from tests.conftest import Data

#: Concepts in a ball of the encoder's space, a head of all weights, codes of both signs.
IN_BALL = {"coder": HardThreshold(length=10, sign="both"), "radius": 0.1, "weights_per_class": None}


@pytest.fixture(scope="module", params=[{"coder": HardThreshold(length=10)}, IN_BALL], ids=["default", "in a ball"])
def model(request: pytest.FixtureRequest, digits: Data) -> ConceptClassifier:
    return ConceptClassifier(digits.concepts, random_state=0, **request.param).fit(digits.X, digits.y)


def test_it_classifies_real_digits_with_text_labels(model: ConceptClassifier, digits: Data) -> None:
    assert model.score(digits.X_test, digits.y_test) > 0.9
    assert set(model.predict(digits.X_test)) <= set(digits.y)
    assert model.classes_.tolist() == sorted(set(digits.y.tolist()))
    assert model.coef_.shape == (10, len(model.concepts_))
    assert model.intercept_.shape == (10,)


def test_prediction_probability_and_logits_agree(model: ConceptClassifier, digits: Data) -> None:
    logits, p = model.decision_function(digits.X_test), model.predict_proba(digits.X_test)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(digits.X_test))
    codes = model.transform(digits.X_test)
    assert np.allclose(codes @ model.coef_.T + model.intercept_, logits, atol=1e-5)


def test_codes_are_the_scores_past_the_threshold(model: ConceptClassifier, digits: Data) -> None:
    codes = model.transform(digits.X_test).toarray()
    X = digits.X_test / np.linalg.norm(digits.X_test, axis=1, keepdims=True)
    X = X - model.space_.image_mean
    if model.space_.metric is not None:
        X = X @ model.space_.metric.whiten
    scores = X / np.linalg.norm(X, axis=1, keepdims=True) @ model.concepts_.embeddings.T
    strength = scores if model.coder.sign == "positive" else np.abs(scores)
    clear = np.abs(strength - model.threshold_) > 1e-5
    assert np.array_equal((codes != 0)[clear], (strength >= model.threshold_)[clear])
    assert np.allclose(codes[codes != 0], scores[codes != 0], atol=1e-5)


def test_length_is_within_five_percent_on_the_training_data(model: ConceptClassifier, digits: Data) -> None:
    assert model.history_[0].length == pytest.approx(10, rel=0.05)
    found = explanation_length(model.transform(digits.X))
    assert found == pytest.approx(model.history_[model.best_epoch_ - 1].length, rel=0.05)
    if model.model_.provenance.left_out:
        assert found < 10
    else:
        assert found == pytest.approx(10, rel=0.05)


def bound_of(model: ConceptClassifier) -> float:
    """The chord within which its concepts stay: cosine 0.875 is the default."""
    return np.sqrt(2 - 2 * 0.875) if model.radius is None else model.radius


def test_concepts_stay_within_their_bound(model: ConceptClassifier) -> None:
    moved = np.linalg.norm(model.concepts_.embeddings - model.initial_concepts_.embeddings, axis=1)
    assert 0.01 < moved.max() <= bound_of(model) + 1e-5
    assert model.concepts_.names == model.initial_concepts_.names


def test_evaluate_agrees_with_its_parts(model: ConceptClassifier, digits: Data) -> None:
    found = model.evaluate(digits.X_test, digits.y_test)
    predicted = model.predict(digits.X_test)
    assert found.accuracy == pytest.approx(accuracy_score(digits.y_test, predicted))
    assert found.interval.low < found.accuracy < found.interval.high
    assert found.length == pytest.approx(explanation_length(model.transform(digits.X_test)))
    assert found.sparsity == pytest.approx(found.length / len(model.concepts_))
    assert found.n == len(digits.y_test)
    assert set(found.per_class) == set(digits.y_test.tolist())
    nearest = (model.concepts_.embeddings @ model.initial_concepts_.embeddings.T).argmax(axis=1)
    assert found.retention == pytest.approx(np.mean(nearest == np.arange(len(nearest))))
    assert found.retention >= (0.85 if model.radius is None else 0.9)  # strokes of one digit are much alike
    assert found.to_dict()["deviation"]["max"] <= bound_of(model) + 1e-5


def test_explanation_is_exact(model: ConceptClassifier, digits: Data) -> None:
    logits = model.decision_function(digits.X_test[:20])
    for row, expected in zip(digits.X_test[:20], logits, strict=True):
        found = model.explain(row)
        total = found.bias + sum(term.contribution for term in found.contributions)
        assert total == pytest.approx(found.logit)
        assert found.logit == pytest.approx(float(expected.max()), rel=1e-5)
        assert found.prediction == model.predict(row[None])[0]


def test_radius_zero_is_the_baseline_with_a_converged_head(digits: Data) -> None:
    model = ConceptClassifier(
        digits.concepts, coder=HardThreshold(length=10), radius=0, weights_per_class=None, random_state=0
    ).fit(digits.X, digits.y)
    assert np.array_equal(model.concepts_.embeddings, model.initial_concepts_.embeddings)
    codes = model.transform(digits.X)
    best = fit_softmax(codes, np.searchsorted(model.classes_, digits.y), classes=10, alpha=1e-4)
    refitted = best.logits(model.transform(digits.X_test)).argmax(axis=1) == np.searchsorted(
        model.classes_, digits.y_test
    )
    assert model.score(digits.X_test, digits.y_test) > refitted.mean() - 0.02


@pytest.mark.parametrize("dispersion", [None, Angular(), Symmetric(), Symmetric(0.5)])
@pytest.mark.parametrize("center", [None, "data"])
def test_every_preparation_trains(digits: Data, dispersion: object, center: str | None) -> None:
    model = ConceptClassifier(
        digits.concepts,
        radius=0.1,
        weights_per_class=None,
        dispersion=dispersion,
        center=center,
        max_iter=3,
        random_state=0,  # type: ignore[arg-type]
    ).fit(digits.X[:300], digits.y[:300])
    assert model.score(digits.X_test, digits.y_test) > 0.3
    placed = model.space_.texts(digits.concepts.embeddings)
    assert np.allclose(placed, model.initial_concepts_.embeddings, atol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "torch", "memmap", "list"])
def test_every_kind_of_input_gives_the_same_predictions(
    model: ConceptClassifier, digits: Data, kind: str, tmp_path: object
) -> None:
    X = digits.X_test
    source: object = X.tolist() if kind == "list" else X
    if kind == "torch":
        source = torch.from_numpy(X)
    elif kind == "memmap":
        source = np.memmap(tmp_path / "x", mode="w+", dtype=np.float32, shape=X.shape)  # type: ignore[operator]
        source[:] = X  # type: ignore[index]
    elif kind.startswith("float"):
        source = X.astype(kind)
    assert (model.predict(source) == model.predict(X)).mean() > 0.995


def test_same_seed_same_model_from_array_and_memmap(digits: Data, tmp_path: object) -> None:
    X = digits.X.astype(np.float32)
    mapped = np.memmap(tmp_path / "x", mode="w+", dtype=np.float32, shape=X.shape)  # type: ignore[operator]
    mapped[:] = X
    options = {"coder": TopK(8), "max_iter": 2, "random_state": 3}
    one, two = (ConceptClassifier(digits.concepts, **options).fit(source, digits.y) for source in (X, X))  # type: ignore[arg-type]
    third = ConceptClassifier(digits.concepts, **options).fit(mapped, digits.y)  # type: ignore[arg-type]
    assert np.array_equal(one.coef_, two.coef_)
    assert np.allclose(one.coef_, third.coef_, atol=1e-3)


def test_scikit_learn_conventions(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, coder=HardThreshold(length=8), max_iter=2, random_state=0)
    copy = clone(model)
    assert copy.get_params()["coder__length"] == 8
    assert copy.set_params(coder__length=5).coder.length == 5
    assert model.coder.length == 8
    pipeline = make_pipeline(FunctionTransformer(lambda X: X * 2.0), model).fit(digits.X, digits.y)
    assert pipeline.score(digits.X_test, digits.y_test) > 0.5
    check_is_fitted(model)
    search = GridSearchCV(copy, {"radius": [0.0, 0.1], "coder__length": [5, 10]}, cv=2).fit(
        digits.X[:400], digits.y[:400]
    )
    assert search.best_params_["coder__length"] in (5, 10)
    best = search.best_estimator_
    assert best.get_feature_names_out().tolist() == list(best.concepts_.names)


def test_rare_classes_and_two_classes(digits: Data) -> None:
    keep = np.isin(digits.y, ["digit 0", "digit 1"])
    X, y = digits.X[keep], digits.y[keep]
    model = ConceptClassifier(digits.concepts, max_iter=5, random_state=0).fit(X, y)
    assert model.coef_.shape == (2, len(model.concepts_))
    assert len(model.concepts_) <= 2 * 5
    assert model.predict_proba(X).shape == (len(X), 2)
    rare = y.copy()
    rare[0] = "unique"  # never in the validation share
    model = ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(X, rare)
    assert "unique" in model.classes_


def test_weights_count_like_copies(digits: Data) -> None:
    X, y = digits.X[:400], digits.y[:400]
    weight = np.where(y == "digit 3", 20.0, 0.05)
    options = {"max_iter": 8, "random_state": 0, "validation_fraction": 0.0}
    plain = ConceptClassifier(digits.concepts, **options).fit(X, y)  # type: ignore[arg-type]
    by_sample = ConceptClassifier(digits.concepts, **options).fit(X, y, sample_weight=weight)  # type: ignore[arg-type]
    classes = {label: 20.0 if label == "digit 3" else 0.05 for label in set(y.tolist())}
    by_class = ConceptClassifier(digits.concepts, class_weight=classes, **options).fit(X, y)  # type: ignore[arg-type]
    threes = [(found.predict(digits.X_test) == "digit 3").mean() for found in (plain, by_sample, by_class)]
    assert threes[1] > 2 * threes[0]
    assert threes[2] == pytest.approx(threes[1])
    balanced = ConceptClassifier(digits.concepts, class_weight="balanced", **options).fit(X, y)  # type: ignore[arg-type]
    assert balanced.score(digits.X_test, digits.y_test) > 0.6


def test_given_validation_data_chooses_the_epoch(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=4, tol=0.0, random_state=0)
    model.fit(digits.X[:500], digits.y[:500], validation=(digits.X_test, digits.y_test))
    best = max(model.history_, key=lambda epoch: epoch.validation_accuracy)
    assert model.history_[model.best_epoch_ - 1].validation_accuracy == best.validation_accuracy
    assert model.score(digits.X_test, digits.y_test) == pytest.approx(best.validation_accuracy, abs=0.01)
    assert [epoch.epoch for epoch in model.history_] == [1, 2, 3, 4]


def test_the_papers_settings() -> None:
    model = ConceptClassifier.paper("cifar10")
    assert (model.coder.threshold, model.coder.sign) == (0.15, "positive")
    assert isinstance(model.dispersion, Angular)
    assert (model.center, model.radius, model.dropout, model.batch_size, model.max_iter) == (None, 0.1, 0.5, 100, 20)
    assert (model.optimizer, model.momentum, model.head_rate, model.dictionary_rate) == ("sgd", 0.9, 1.0, 1e-4)
    lambdas = [ConceptClassifier.paper(name).coder.threshold for name in ("cifar100", "cub", "imagenet", "places365")]
    assert lambdas == [0.215, 0.22, 0.24, 0.22]
    assert ConceptClassifier.paper("cub", max_iter=3).max_iter == 3


def test_on_real_clip_embeddings_refinement_gains_and_concepts_stay(clip: Data) -> None:
    found = {}
    for radius in (0.0, 0.1):
        model = ConceptClassifier(clip.concepts, coder=HardThreshold(length=10), radius=radius, random_state=0)
        found[radius] = model.fit(clip.X, clip.y).evaluate(clip.X_test, clip.y_test)
    assert found[0.1].accuracy > found[0.0].accuracy
    assert found[0.1].accuracy > 0.88
    assert found[0.1].retention == 1.0
    probe = LogisticRegression(max_iter=100, tol=1e-3).fit(clip.X.astype(np.float32) * 10, clip.y)
    assert found[0.1].accuracy > probe.score(clip.X_test.astype(np.float32) * 10, clip.y_test) - 0.05


def test_the_papers_preset_on_real_clip_embeddings(clip: Data) -> None:
    model = ConceptClassifier.paper("cifar10", clip.concepts, max_iter=3, random_state=0).fit(clip.X, clip.y)
    assert model.score(clip.X_test, clip.y_test) > 0.7
    assert (model.transform(clip.X_test).data > 0.15).all()
