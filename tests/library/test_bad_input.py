"""Every bad input gets an error that names the rule, the value and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.exceptions import NotFittedError as SklearnNotFitted

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.classifier import NotFittedError
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, CCRWarning
from ccr.labels import store_parts
from ccr_lab.rivals import LinearProbe
from tests.conftest import Data
from tests.data.helpers import write_store


@pytest.fixture(scope="module")
def model(digits: Data) -> ConceptClassifier:
    return ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y)


def fit(data: Data, X: object = None, y: object = None, **options: object) -> ConceptClassifier:
    model = ConceptClassifier(data.concepts, max_iter=1, **options)  # type: ignore[arg-type]
    return model.fit(data.X if X is None else X, data.y if y is None else y)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(digits: Data, model: ConceptClassifier, value: float) -> None:
    X = digits.X.copy()
    X[7, 3] = value
    with pytest.raises(CCRError, match="finite, got NaN or infinity in row 7"):
        fit(digits, X)
    with pytest.raises(CCRError, match="row 7"):
        model.predict(X)


def test_wrong_dimension(digits: Data, model: ConceptClassifier) -> None:
    for call in (lambda: fit(digits, digits.X[:, :5]), lambda: model.predict(digits.X[:, :5])):
        with pytest.raises(CCRError, match="64 dimensions, got 5"):
            call()


def test_labels_of_another_length(digits: Data) -> None:
    with pytest.raises(CCRError, match="got 9 labels for 1160 rows"):
        fit(digits, y=digits.y[:9])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda y: np.full(len(y), "same"), "at least two classes, got one class"),
        (lambda y: np.stack([y, y]), "one for each row"),
        (lambda y: np.where(np.arange(len(y)) == 4, np.nan, 1.0), "must not be missing"),
        (lambda y: np.array([*y[:-1], 3], dtype=object), "all of one kind"),
        (lambda y: [*y[:-1].tolist(), 3], "all of one kind, got int, str"),
        (lambda y: (*y[:-1].tolist(), float("nan")), "all of one kind, got float, str"),
        (lambda y: None, "labels are needed"),
        (lambda y: np.zeros(len(y), complex), "texts, numbers or booleans"),
    ],
)
def test_labels_that_cannot_be_learned(digits: Data, labels: object, message: str) -> None:
    with pytest.raises(CCRError, match=message):
        ConceptClassifier(digits.concepts).fit(digits.X, labels(digits.y))  # type: ignore[operator]


def test_empty_data(digits: Data, model: ConceptClassifier) -> None:
    with pytest.raises(CCRError, match="at least one row"):
        fit(digits, digits.X[:0], digits.y[:0])
    with pytest.raises(CCRError, match="at least one row"):
        model.predict(digits.X[:0])


@pytest.mark.parametrize("radius", [-0.1, 2.5, np.nan])
def test_radius_outside_its_range(digits: Data, radius: float) -> None:
    with pytest.raises(CCRError, match=r"radius must be in \[0, 2\]"):
        fit(digits, radius=radius)


@pytest.mark.parametrize("length", [0, 0.5, 41])
def test_length_outside_its_range(digits: Data, length: float) -> None:
    with pytest.raises(CCRError, match="length must be between 1 and the number of concepts, 40"):
        fit(digits, coder=HardThreshold(length=length))


def test_a_threshold_that_leaves_every_code_empty(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, coder=HardThreshold(threshold=0.999), max_iter=30, random_state=0)
    with pytest.warns(CCRWarning, match="leaves every code empty"):
        model.fit(digits.X, digits.y)
    assert len(set(model.predict(digits.X_test))) == 1
    assert np.allclose(model.predict_proba(digits.X_test), softmax(model.intercept_), atol=1e-5)


def test_classes_that_were_not_there(digits: Data, model: ConceptClassifier) -> None:
    labels = digits.y_test.copy()
    labels[0] = "digit X"
    with pytest.raises(CCRError, match="1 classes were not there when the model was fitted: 'digit X'"):
        model.evaluate(digits.X_test, labels)
    assert model.score(digits.X_test, labels) <= 1.0  # scikit-learn's score counts it as wrong
    with pytest.raises(CCRError, match="validation has a class"):
        ConceptClassifier(digits.concepts).fit(digits.X, digits.y, validation=(digits.X_test, labels))


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform", "decision_function", "explain", "evaluate"])
def test_not_fitted(digits: Data, call: str) -> None:
    model = ConceptClassifier(digits.concepts)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, call)(digits.X)
    with pytest.raises(SklearnNotFitted):
        model.save("nowhere")
    model.model_ = None
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, call)(digits.X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center": "mean"}, 'center must be None or "data"'),
        ({"dispersion": "wide"}, "dispersion must be None"),
        ({"class_weight": "even"}, "class_weight must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be in"),
        ({"dropout": 2.0}, "dropout must be in"),
        ({"engine": "warp"}, "engine must be"),
    ],
)
def test_other_options(digits: Data, options: dict[str, object], message: str) -> None:
    with pytest.raises(CCRError, match=message):
        fit(digits, **options)


def test_concepts_and_weights(digits: Data, model: ConceptClassifier) -> None:
    with pytest.raises(CCRError, match="concepts must be a Concepts"):
        ConceptClassifier().fit(digits.X, digits.y)
    for weight in (np.ones(3), -np.ones(len(digits.y)), np.zeros(len(digits.y)), np.full(len(digits.y), np.nan)):
        with pytest.raises(CCRError, match="sample_weight must be"):
            ConceptClassifier(digits.concepts).fit(digits.X, digits.y, sample_weight=weight)
    with pytest.raises(CCRError, match="takes one embedding, got 2"):
        model.explain(digits.X[:2])
    with pytest.raises(CCRError, match="not for 'mnist'"):
        ConceptClassifier.paper("mnist")


def test_one_concept(digits: Data) -> None:
    one = Concepts(["the only"], digits.concepts.embeddings[:1])
    with pytest.raises(CCRError, match="concept 0 is the mean itself"):
        ConceptClassifier(one, coder=HardThreshold(length=1)).fit(digits.X, digits.y)
    both = HardThreshold(length=1, sign="both")
    model = ConceptClassifier(one, coder=both, radius=0.1, center=None, max_iter=5, random_state=0)
    assert model.fit(digits.X, digits.y).score(digits.X_test, digits.y_test) > 0.1


def test_another_encoder_is_refused(digits: Data) -> None:
    class Store(np.ndarray):
        fingerprint = "encoder-a"

    class OtherStore(np.ndarray):
        fingerprint = "encoder-b"

    model = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X.view(Store), digits.y)
    assert model.encoder_fingerprint_ == "encoder-a"
    model.predict(digits.X_test)
    with pytest.raises(CCRError, match="embeddings of encoder encoder-a, got a store of encoder encoder-b"):
        model.predict(digits.X_test.view(OtherStore))


def test_a_short_list_has_a_length_that_fits_it() -> None:
    """Twelve concepts per image would be refused where there are six."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8)), np.repeat(["a", "b"], 30)
    concepts = Concepts([f"concept {row}" for row in range(6)], rng.normal(size=(6, 8)))
    model = ConceptClassifier(concepts, max_iter=2, random_state=0).fit(X + 3 * (y == "a")[:, None], y)
    assert model.transform(X).shape == (60, len(model.model_.names))
    with pytest.raises(CCRError, match="try 2"):
        ConceptClassifier(concepts, coder=HardThreshold(length=12)).fit(X, y)


@pytest.mark.parametrize("bound", [{}, {"radius": 0.1}])
@pytest.mark.parametrize("width", [32, 128])
def test_validation_images_of_another_encoder_are_refused(digits: Data, bound: dict[str, Any], width: int) -> None:
    other = np.resize(digits.X_test, (len(digits.X_test), width))
    with pytest.raises(CCRError, match=f"concepts' 64 dimensions, got {width}"):
        ConceptClassifier(digits.concepts, **bound).fit(digits.X, digits.y, validation=(other, digits.y_test))


@pytest.mark.parametrize("make", [lambda X, y: (X, y, y), lambda X, y: (X,), lambda X, y: 0.2, lambda X, y: X])
def test_validation_is_a_pair_or_a_store(digits: Data, make: Any) -> None:
    given = make(digits.X_test, digits.y_test)
    for model in (ConceptClassifier(digits.concepts), LinearProbe()):
        with pytest.raises(CCRError, match=r"validation must be \(X, y\), or a store with labels"):
            model.fit(digits.X, digits.y, validation=given)


def test_weights_of_a_score_are_checked(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X, digits.y)
    weight = np.arange(len(digits.y_test), dtype=float)
    right = model.predict(digits.X_test) == digits.y_test
    assert model.score(digits.X_test, digits.y_test, weight) == pytest.approx((right * weight).sum() / weight.sum())
    for bad in (np.ones(5), np.zeros(len(weight)), -weight):
        with pytest.raises(CCRError, match="sample_weight must be"):
            model.score(digits.X_test, digits.y_test, bad)


def test_settings_of_few_digits_give_the_model_that_a_reload_gives(digits: Data, tmp_path: Path) -> None:
    narrow = {"alpha": np.float16(0.1), "dropout": np.float16(0.1), "shrinkage": np.float32(0.3)}
    model = ConceptClassifier(digits.concepts, max_iter=2, random_state=0, **narrow).fit(digits.X, digits.y)
    model.save(tmp_path / "model")
    again = ConceptClassifier.load(tmp_path / "model").fit(digits.X, digits.y)
    assert np.array_equal(model.predict_proba(digits.X_test), again.predict_proba(digits.X_test))


def test_a_store_of_validation_images_brings_its_labels(digits: Data, tmp_path: Path) -> None:
    write_store(tmp_path / "store", digits.X_test, digits.y_test)
    store = EmbeddingStore.open(tmp_path / "store")
    models = [
        ConceptClassifier(digits.concepts, max_iter=3, random_state=0).fit(digits.X, digits.y, validation=given)
        for given in (store, (store, None), (np.asarray(store), store.y))
    ]
    assert models[0].history_ == models[1].history_ == models[2].history_
    assert models[0].history_[0].validation_accuracy > 0


def test_images_without_a_label_are_not_compared_on(digits: Data, tmp_path: Path) -> None:
    labels = np.array([None, *digits.y_test[1:30].tolist()], dtype=object)
    splits = ["test"] * 10 + ["train"] * 20
    write_store(tmp_path / "store", digits.X_test[:30], labels, splits)
    parts = store_parts(EmbeddingStore.open(tmp_path / "store"), "a comparison")
    assert {name: len(part.y) for name, part in parts.items()} == {"train": 20, "test": 9}
    assert parts["test"].y.tolist() == digits.y_test[1:10].tolist()
