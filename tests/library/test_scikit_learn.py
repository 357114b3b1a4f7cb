"""What scikit-learn's own tools need of a classifier: they run here, on real digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

from ccr import ConceptClassifier, Concepts, HardThreshold, TopK
from ccr.coding.rules import TopRule
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from tests.conftest import Data
from tests.data.helpers import write_store

SMALL = 300


def quick(data: Data, **options: object) -> ConceptClassifier:
    return ConceptClassifier(data.concepts, **{"max_iter": 4, "random_state": 0, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def small(digits: Data) -> Data:
    return digits._replace(X=digits.X[:SMALL], y=digits.y[:SMALL])


def test_of_two_classes_a_decision_is_one_number(small: Data) -> None:
    odd = np.array([int(name[-1]) % 2 for name in small.y])
    model = quick(small).fit(small.X, odd)
    decision, logits = model.decision_function(small.X), model.model_.logits(small.X)
    assert logits.shape == (SMALL, 2), "explanations have a column for each class"
    assert np.array_equal(decision, logits[:, 1] - logits[:, 0])
    assert np.array_equal(model.predict(small.X), (decision > 0).astype(int))
    assert np.allclose(model.predict_proba(small.X)[:, 1], 1 / (1 + np.exp(-decision.astype(float))))
    assert cross_val_score(quick(small), small.X, odd, scoring="roc_auc", cv=3).min() > 0.6
    calibrated = CalibratedClassifierCV(quick(small), cv=3).fit(small.X, odd)
    assert roc_auc_score(odd, calibrated.predict_proba(small.X)[:, 1]) > 0.7


def test_one_against_the_rest(small: Data) -> None:
    model = OneVsRestClassifier(quick(small)).fit(small.X, small.y)
    assert model.decision_function(small.X).shape == (SMALL, 10)
    assert model.score(small.X, small.y) > 0.5


def test_settings_of_a_part_that_is_not_there_are_refused_in_words(small: Data) -> None:
    search = GridSearchCV(quick(small), {"coder__length": [4, 8]}, cv=2)
    with pytest.raises(CCRError, match=r"coder__length .* coder, which is None .* coder=HardThreshold\(length=12\)"):
        search.fit(small.X, small.y)
    with pytest.raises(CCRError, match=r"dispersion__strength .* which is 'auto'"):
        quick(small).set_params(dispersion__strength=0.5)
    with pytest.raises(CCRError, match="max_iter__x is a setting of max_iter, which is 4"):
        quick(small).set_params(max_iter__x=1)
    assert quick(small).set_params(coder=HardThreshold(length=12), coder__length=4).coder.length == 4
    with pytest.raises(ValueError, match="Invalid parameter"):
        quick(small).set_params(nothing__x=1)


def test_epochs_are_counted(small: Data) -> None:
    model = quick(small).fit(small.X, small.y)
    assert model.n_iter_ == len(model.history_) == 4


def test_a_grid_is_searched_on_a_store(small: Data, tmp_path: Path) -> None:
    write_store(tmp_path, small.X, small.y)
    store = EmbeddingStore.open(tmp_path)
    fitted = [
        GridSearchCV(quick(small), {"radius": [0.0, 0.1]}, cv=2, error_score="raise").fit(X, small.y)
        for X in (store, small.X.astype(np.float32))
    ]
    assert fitted[0].best_score_ == fitted[1].best_score_
    assert fitted[0].score(store, store.y) == fitted[0].best_estimator_.score(store)


@pytest.mark.parametrize("kind", [int, bool, float, str])
def test_labels_in_an_array_of_objects(small: Data, kind: type) -> None:
    plain = np.array([int(name[-1]) % 2 for name in small.y]).astype(kind)
    model = quick(small).fit(small.X, plain.astype(object))
    assert model.classes_.dtype.kind == plain.dtype.kind
    assert model.score(small.X, plain.astype(object)) == model.score(small.X, plain) > 0.5
    assert model.score(small.X, plain, np.arange(SMALL)) == pytest.approx(
        np.average(model.predict(small.X) == plain, weights=np.arange(SMALL))
    )
    mixed = plain.astype(object)
    mixed[3] = None
    with pytest.raises(CCRError, match="all of one kind, got NoneType"):
        quick(small).fit(small.X, mixed)


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array, lambda X: torch.tensor(X).to_sparse()])
def test_sparse_rows_are_refused(small: Data, make: type) -> None:
    with pytest.raises(CCRError, match="X must be dense"):
        quick(small).fit(make(small.X), small.y)


@pytest.mark.parametrize("weight", [-1.0, 0.0, np.nan, np.inf, 1e308, "much"])
def test_weights_that_are_none(small: Data, weight: object) -> None:
    with pytest.raises(CCRError, match="weight"):
        quick(small).fit(small.X, small.y, sample_weight=np.full(SMALL, weight))
    with pytest.raises(CCRError, match="weight"):
        quick(small, class_weight=dict.fromkeys(np.unique(small.y), weight)).fit(small.X, small.y)
    if weight != 1e308:
        with pytest.raises(CCRError, match="class_weight must be"):
            quick(small, class_weight={"digit 3": weight}).fit(small.X, small.y)


@pytest.mark.parametrize("scale", [1e-300, 1e-42, 1.0, 1e40, 1e300])
def test_rows_of_any_scale_are_the_same_directions(small: Data, scale: float) -> None:
    rows = small.X.astype(np.float64) * scale
    expected = (small.X / np.linalg.norm(small.X, axis=1, keepdims=True)).astype(np.float32)
    for X in (rows, torch.tensor(rows)):
        assert np.allclose(Embeddings(X).span(0, SMALL), expected, atol=2e-7)
    for bad in (np.nan, np.inf):
        rows[7, 1] = bad
        with pytest.raises(CCRError, match="finite, got NaN or infinity in row 7"):
            Embeddings(rows).span(0, SMALL)
    rows[7] = 0.0
    with pytest.raises(CCRError, match="row 7 of X is all zeros"):
        Embeddings(rows).span(0, SMALL)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("random_state", -1),
        ("random_state", "one"),
        ("radius", "0.1"),
        ("fidelity", "high"),
        ("device", "meta"),
        ("max_iter", "10"),
        ("max_iter", True),
        ("batch_size", "16"),
        ("n_iter_no_change", np.nan),
        ("weights_per_class", "few"),
        ("head_rate", "0.1"),
        ("head_rate", 10**400),
        ("device", 10**30),
        ("max_iter", 10**400),
        ("momentum", "0.9"),
        ("validation_fraction", "0.1"),
        ("shrinkage", "0.5"),
        ("coder", "TopK"),
    ],
)
def test_options_that_are_no_numbers(small: Data, option: str, value: object) -> None:
    with pytest.raises(CCRError, match=rf"{option} must be .*got {value!r}"):
        quick(small, **{option: value}).fit(small.X, small.y)


@pytest.mark.parametrize("coder", [TopK("4"), HardThreshold(length="4"), HardThreshold(length=np.nan)])  # type: ignore[arg-type]
def test_lengths_that_are_no_numbers(small: Data, coder: TopK | HardThreshold) -> None:
    with pytest.raises(CCRError, match="length must be between 1 and the number of concepts"):
        quick(small, coder=coder).fit(small.X, small.y)


def test_both_engines_break_exact_ties_alike() -> None:
    # Corners of a cube: every score is a multiple of 1/8, exact in float32, and many are equal.
    rng = np.random.default_rng(0)
    images, concepts = (rng.choice([-0.25, 0.25], (rows, 16)).astype(np.float32) for rows in (60, 200))
    scores = torch.from_numpy(images @ concepts.T)
    dense = (scores * TopRule(5).mask(scores)).numpy()
    assert np.array_equal(TopK(5).encode(images, concepts).toarray(), dense)
    first = np.argsort(-np.abs(scores.numpy()), axis=1, kind="stable")[:, :5]
    assert np.array_equal(np.sort(first), [np.flatnonzero(row) for row in dense])


def test_columns_in_another_order_are_refused(small: Data) -> None:
    frame = pd.DataFrame(small.X, columns=[f"d{column}" for column in range(small.X.shape[1])])
    model = quick(small).fit(frame, small.y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert np.array_equal(model.predict(frame), model.predict(small.X))
    for ask in (
        model.predict,
        model.predict_proba,
        model.transform,
        model.decision_function,
        model.explain_many,
        model.view,
    ):
        with pytest.raises(CCRError, match=r"the columns must be those of fit, .*; column 0 was 'd0' and is 'd63'"):
            ask(frame[frame.columns[::-1]])
    for measure in (model.score, model.evaluate):
        with pytest.raises(CCRError, match="columns"):
            measure(frame[frame.columns[::-1]], small.y)
    model.fit(small.X, small.y)  # a table without names: any will do
    assert not hasattr(model, "feature_names_in_")
    model.predict(frame[frame.columns[::-1]])


def test_numbers_that_may_be_missing_are_numbers(small: Data) -> None:
    frame = pd.DataFrame(small.X).astype("Float64")
    model = quick(small).fit(frame, small.y)
    assert np.array_equal(model.predict(frame), model.predict(small.X))
    frame.iloc[3, 2] = pd.NA
    with pytest.raises(CCRError, match="NaN or infinity in row 3"):
        model.predict(frame)
    with pytest.raises(CCRError, match="real numbers, got object"):
        model.predict(pd.DataFrame(small.X).astype(object).replace(0.0, "nothing"))


def test_labels_of_another_kind_are_refused_not_all_wrong(small: Data) -> None:
    numbers = np.array([int(name[-1]) for name in small.y])
    model = quick(small).fit(small.X, numbers)
    for scored in (model, model.model_):
        with pytest.raises(CCRError, match="labels must be of the kind that the model was fitted on, such as 0, got '"):
            scored.score(small.X, numbers.astype(str))
        assert scored.score(small.X, numbers.astype(float)) == scored.score(small.X, numbers)
        assert scored.score(small.X, np.full(SMALL, 77)) == 0.0


def test_counts_may_be_floats(small: Data) -> None:
    one, other = (
        quick(small, batch_size=kind(64), weights_per_class=kind(3), candidates=kind(2), max_iter=kind(3)).fit(
            small.X, small.y
        )
        for kind in (int, float)
    )
    assert np.array_equal(one.coef_, other.coef_)


def test_half_precision_of_either_kind_is_taken_everywhere(small: Data) -> None:
    X = torch.from_numpy(small.X).bfloat16()
    concepts = Concepts(small.concepts.names, torch.tensor(small.concepts.embeddings).bfloat16())
    model = ConceptClassifier(concepts, max_iter=2, random_state=0).fit(X, small.y)
    assert model.explain(X[0]).prediction == model.predict(X[:1])[0]
    assert "new" in model.edit().add("new", X[1]).concepts.names


def test_classes_are_known_by_value_and_by_text(small: Data) -> None:
    numbers = np.array([int(name[-1]) for name in small.y])
    for labels, asked in ((numbers.astype(float), (1, "1.0", np.int64(1))), (numbers > 4, (1, True, "True"))):
        why = quick(small).fit(small.X, labels).explain(small.X[0])
        found = [why.contrast(name) for name in asked if name != why.prediction]
        assert all(one.other == found[0].other for one in found)
    tenths = np.round(numbers / 10, 1).astype(np.float32)
    model = quick(small).fit(small.X, tenths)
    why = model.explain(small.X[0])
    other = next(name for name in model.classes_ if name != why.prediction)
    assert why.contrast(other).other == pytest.approx(float(other))
