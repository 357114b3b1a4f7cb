"""ConceptModel: frozen, one whole, and the same answers as the estimator that made it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.coding import apply_rule
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.labels import labels_of
from tests.conftest import Data

READ_ONLY = (
    "coef_", "intercept_", "head_", "classes_", "concepts_", "initial_concepts_", "space_", "rule_", "threshold_",
    "history_", "best_epoch_", "engine_", "stopped_", "encoder_", "encoder_fingerprint_", "metrics_", "edits_",
    "n_features_in_",
)  # fmt: skip


@pytest.fixture(scope="module")
def classifier(digits: Data) -> ConceptClassifier:
    coder = HardThreshold(length=10)
    return ConceptClassifier(digits.concepts, coder=coder, max_iter=4, random_state=0).fit(digits.X, digits.y)


def test_the_whole_path_of_an_image(classifier: ConceptClassifier, digits: Data) -> None:
    model, X = classifier.model_, digits.X_test
    codes = apply_rule(model.rule, model.space.images(X), model.concepts.embeddings)
    assert np.array_equal(model.encode(X).toarray(), codes.toarray())
    assert np.array_equal(model.logits(X), model.head.logits(codes))
    assert np.array_equal(model.predict(X), model.classes[model.head.logits(codes).argmax(axis=1)])
    explanation = model.explain(X[0])
    total = explanation.bias + sum(term.contribution for term in explanation.contributions)
    assert total == pytest.approx(float(model.logits(X[:1]).max()), rel=1e-5)


def test_model_and_estimator_say_the_same(classifier: ConceptClassifier, digits: Data) -> None:
    model, X, y = classifier.model_, digits.X_test, digits.y_test
    assert isinstance(model, ConceptModel)
    assert np.array_equal(model.logits(X), classifier.decision_function(X))
    assert np.array_equal(model.predict_proba(X), classifier.predict_proba(X))
    assert model.score(X, y) == classifier.score(X, y) == model.evaluate(X, y).accuracy
    assert model.evaluate(X, y) == classifier.evaluate(X, y)
    assert model.audit().deviation == classifier.audit().deviation
    assert np.array_equal(model.view(X, y).confusion, classifier.view(X, y).confusion)


@pytest.mark.parametrize("name", READ_ONLY)
def test_assigning_a_fitted_attribute_is_refused(classifier: ConceptClassifier, name: str) -> None:
    with pytest.raises(CCRError, match=rf"{name} is read-only.*edit\(\)"):
        setattr(classifier, name, getattr(classifier, name))


def test_a_changed_head_cannot_be_lost_on_saving(classifier: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    """`model.coef_ = w; model.save()` saved the old head without a word."""
    with pytest.raises(CCRError, match="read-only"):
        classifier.coef_ = classifier.coef_ * 2
    with pytest.raises(ValueError, match="read-only"):
        classifier.coef_[0, 0] = 1.0
    with pytest.raises(FrozenInstanceError):
        classifier.model_.head = None
    edited = classifier.edit().set_weight("stroke 3", "digit 1", 7.0).model()
    edited.save(tmp_path / "edited")
    assert ConceptModel.load(tmp_path / "edited").head.coef[1, 3] == 7.0
    assert ConceptClassifier.load(tmp_path / "edited").coef_[1, 3] == 7.0
    assert classifier.coef_[1, 3] != 7.0


def test_what_a_model_keeps_to_be_fast_stays_its_own(classifier: ConceptClassifier, digits: Data) -> None:
    """A model that has predicted is copied, sent to another process and changed like one that has not."""
    model, X = classifier.model_, digits.X[:50]
    before = model.logits(X)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        np.testing.assert_array_equal(again.logits(X), before)
    other = replace(model, head=LinearHead(-model.head.coef, -model.head.intercept))
    np.testing.assert_array_equal(other.logits(X), -before)
    turned = replace(model, concepts=Concepts(model.names, -model.concepts.embeddings))
    assert (turned.encode(X) != model.encode(X)).nnz > 0
    np.testing.assert_array_equal(model.logits(X), before)


def test_metrics_are_noted_in_a_new_model(classifier: ConceptClassifier, tmp_path: Path) -> None:
    noted = classifier.model_.with_metrics("test", {"accuracy": 0.5})
    assert "test" not in classifier.metrics_
    assert set(noted.provenance.metrics) == {"training", "test"}
    noted.save(tmp_path / "model")
    assert ConceptModel.load(tmp_path / "model").provenance.metrics["test"] == {"accuracy": 0.5}


def test_changing_hyperparameters_changes_no_model(classifier: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    made = ConceptClassifier.of(classifier.model_)
    made.set_params(coder__length=3, radius=0.7)
    assert made.model_.provenance.settings["coder"].length == 10
    assert made.model_.provenance.settings["radius"] is None
    assert np.array_equal(made.predict(digits.X_test), classifier.predict(digits.X_test))
    made.save(tmp_path / "model")
    assert ConceptClassifier.load(tmp_path / "model").coder.length == 10


def test_training_says_which_engine_ran_and_why_it_stopped(classifier: ConceptClassifier, digits: Data) -> None:
    assert (classifier.engine_, classifier.stopped_) == ("sparse", "max_iter")
    settings = {"max_iter": 30, "n_iter_no_change": 1, "engine": "dense", "random_state": 0}
    stopped = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)
    assert (stopped.engine_, stopped.stopped_) == ("dense", "no_change")
    assert len(stopped.history_) < 30


class Frame:
    """What a data frame with columns called y, encoder and fingerprint looks like."""

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def __getattr__(self, name: str) -> np.ndarray:
        if name in ("y", "encoder", "fingerprint"):
            return self.X[:, 0]
        raise AttributeError(name)

    def __getitem__(self, rows: object) -> np.ndarray:
        return self.X[rows]  # type: ignore[call-overload]

    def __len__(self) -> int:
        return len(self.X)


class Store(Frame):
    """What a store looks like: labels are part of its class."""

    @property
    def y(self) -> np.ndarray:
        return np.repeat(["a", "b"], [10, len(self.X) - 10])


def test_labels_are_a_stores_and_never_a_column(digits: Data) -> None:
    frame, store = Frame(digits.X), Store(digits.X)
    assert labels_of(frame) is None
    assert labels_of(frame, digits.y) is digits.y
    assert labels_of(store)[0] == "a"
    assert labels_of(store, digits.y) is digits.y
    with pytest.raises(CCRError, match="labels are needed"):
        ConceptClassifier(digits.concepts, max_iter=1).fit(frame)
    model = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(frame, digits.y)
    assert (model.encoder_, model.encoder_fingerprint_) == (None, None)
    assert ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(store).classes_.tolist() == ["a", "b"]
