from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from ccr import Concepts
from ccr.errors import CCRError
from ccr.estimator import NotFittedError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr_lab.rivals.elastic_net import optimality_violation
from ccr_lab.rivals.labelfree import (
    FeaturePairs,
    LabelFreeCBM,
    cubed_similarity,
    fit_concept_layer,
    head_length,
    validation_judge,
)


def direct_similarity(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    q, p = (q - q.mean(axis=0)) ** 3, (p - p.mean(axis=0)) ** 3
    return (q * p).sum(axis=0) / np.linalg.norm(q, axis=0) / np.linalg.norm(p, axis=0)


def sample(m: int = 800, d: int = 12, n: int = 8, classes: int = 4, seed: int = 0) -> tuple[Any, ...]:
    """Unit embeddings, labels that depend on few concepts, and concepts."""
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.normal(size=(m, d))).astype(np.float32)
    D = unit_rows(rng.normal(size=(n, d)))
    y = (X @ D.T @ rng.normal(size=(n, classes)) * 8 + rng.gumbel(size=(m, classes))).argmax(axis=1)
    return X, y, Concepts([f"concept {row}" for row in range(n)], D)


def nonlinear_view(X: np.ndarray, width: int = 30, seed: int = 5) -> np.ndarray:
    projection = np.random.default_rng(seed).normal(size=(X.shape[1], width))
    return np.maximum(X @ projection, 0).astype(np.float32)


def test_similarity_against_its_formula() -> None:
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(50, 6)) + 3, rng.normal(size=(50, 6)) * 0.01
    found = cubed_similarity(torch.from_numpy(q), torch.from_numpy(p)).numpy()
    np.testing.assert_allclose(found, direct_similarity(q, p), rtol=1e-10)


def test_similarity_does_not_see_size_and_place_and_is_zero_for_constants() -> None:
    rng = np.random.default_rng(1)
    p = torch.from_numpy(rng.normal(size=(40, 3)))
    np.testing.assert_allclose(cubed_similarity(4 * p - 2, p).numpy(), 1, rtol=1e-10)
    np.testing.assert_allclose(cubed_similarity(-p, p).numpy(), -1, rtol=1e-10)
    assert not cubed_similarity(torch.full((40, 3), 0.1, dtype=torch.float64), p).any()


def test_slope_of_the_similarity_by_differences() -> None:
    rng = np.random.default_rng(2)
    F, p = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    weights = torch.tensor(rng.normal(size=(2, 4)), requires_grad=True)
    cubed_similarity(torch.from_numpy(F) @ weights.T, torch.from_numpy(p)).mean().backward()
    assert weights.grad is not None
    for place in np.ndindex(2, 4):
        step = np.zeros((2, 4))
        step[place] = 1e-6
        up, down = (direct_similarity(F @ (weights.detach().numpy() + s * step).T, p).mean() for s in (1, -1))
        assert float(weights.grad[place]) == pytest.approx((up - down) / 2e-6, abs=1e-7)


@pytest.mark.parametrize("center", [None, "data"])
def test_embeddings_as_features_reach_every_concept(center: Any) -> None:
    X, y, concepts = sample()
    model = LabelFreeCBM(concepts, length=4, center=center, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.similarities_, 1, atol=1e-5)
    assert model.names_ == concepts.names
    codes = model.transform(X)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(codes.std(axis=0), 1, atol=1e-4)
    if center is None:
        scores = unit_rows(X) @ concepts.embeddings.T
        np.testing.assert_allclose(codes, (scores - scores.mean(axis=0)) / scores.std(axis=0), atol=1e-4)


def test_training_raises_the_similarity_of_the_ridge_start() -> None:
    X, _, concepts = sample(m=1500)
    F = nonlinear_view(X)
    pairs = FeaturePairs(Embeddings(F, normalize=False), Embeddings(X), torch.tensor(concepts.embeddings))
    rows, held = np.arange(1200), np.arange(1200, 1500)
    judge = validation_judge(pairs, held)
    options = {"batch_size": 400, "seed": 0}
    start = fit_concept_layer(pairs, rows, judge, max_iter=0, **options)
    trained = fit_concept_layer(pairs, rows, judge, max_iter=300, **options)
    assert trained.similarities.mean() > start.similarities.mean() + 0.002
    # What is reported is the formula, on the rows held out.
    np.testing.assert_allclose(
        trained.similarities, direct_similarity(F[held] @ trained.weights.T, X[held] @ concepts.embeddings.T), atol=1e-4
    )


def test_given_embeddings_as_features_ridge_finds_the_concepts() -> None:
    X, _, concepts = sample(m=500)
    pairs = FeaturePairs(Embeddings(X, normalize=False), Embeddings(X), torch.tensor(concepts.embeddings))
    layer = fit_concept_layer(
        pairs, np.arange(400), validation_judge(pairs, np.arange(400, 500)), max_iter=0, batch_size=100, seed=0
    )
    assert layer.similarities.min() > 0.999


def test_a_concept_that_the_features_do_not_show_is_dropped() -> None:
    X, y, concepts = sample()
    away = concepts.embeddings[3].astype(np.float64)
    blind = X - np.outer(X @ away, away)
    others = np.delete(np.arange(8), 3)
    model = LabelFreeCBM(concepts, length=4, cutoff=0.2, max_iter=50, random_state=0).fit(X, y, features=blind)
    hidden = model.similarities_[3]
    assert hidden < model.similarities_[others].min()
    model.set_params(cutoff=float(hidden + model.similarities_[others].min()) / 2).fit(X, y, features=blind)
    np.testing.assert_array_equal(model.kept_, others)
    assert model.names_ == tuple(concepts.names[row] for row in others)
    assert model.similarities_.shape == (8,)
    assert model.transform(blind).shape == (800, 7)
    assert model.coef_.shape == (4, 7)


def test_the_head_is_optimal_and_as_long_as_asked() -> None:
    X, y, concepts = sample(n=40, classes=5)
    model = LabelFreeCBM(concepts, length=7, random_state=0).fit(X, y)
    codes = model.transform(X)
    assert optimality_violation(model.head_, codes, y, alpha=model.alpha_) <= 2e-3
    contributions = codes * model.coef_[model.predict(X)]
    assert np.count_nonzero(contributions, axis=1).mean() == pytest.approx(model.length_, abs=0.05)
    assert head_length(model.head_, codes) == pytest.approx(model.length_, abs=0.05)
    assert 6 < model.length_ <= 7
    shorter = clone(model).set_params(length=2).fit(X, y)
    assert shorter.length_ <= 2
    assert shorter.alpha_ > model.alpha_


def test_a_length_beyond_the_concepts_uses_what_there_is() -> None:
    X, y, concepts = sample()
    model = LabelFreeCBM(concepts, length=100, random_state=0).fit(X, y)
    assert model.length_ <= 8
    assert model.score(X, y) > 0.6


def test_explanations_are_exact_and_leave_out_unused_concepts() -> None:
    X, y, concepts = sample(n=40)
    model = LabelFreeCBM(concepts, length=3, random_state=0).fit(X, y)
    used = {name for name, weights in zip(model.names_, model.coef_.T, strict=True) if weights.any()}
    assert len(used) < 40
    logits = model.decision_function(X[:5])
    for x, row in zip(X[:5], logits, strict=True):
        found = model.explain(x)
        assert found.bias + sum(term.contribution for term in found.contributions) == pytest.approx(found.logit)
        np.testing.assert_allclose(found.logits, row, atol=1e-4)
        assert set(found.active) == used
        own = model.coef_[model.classes_.tolist().index(found.prediction)]
        assert {term.concept for term in found.contributions} == {
            name for name, weight in zip(model.names_, own, strict=True) if weight
        }
    with pytest.raises(CCRError, match="one embedding"):
        model.explain(X[:2])


def test_digits(digits: Any) -> None:
    model = LabelFreeCBM(digits.concepts, length=10, center="data", random_state=0).fit(digits.X, digits.y)
    assert model.score(digits.X_test, digits.y_test) > 0.85
    assert 9 < model.length_ <= 10
    assert model.predict_proba(digits.X_test).shape == (len(digits.X_test), 10)


def test_digits_with_other_features(digits: Any) -> None:
    scale = np.linspace(1, 50, 40)
    view, view_test = (nonlinear_view(X / 16, 40) * scale + 100 for X in (digits.X, digits.X_test))
    model = LabelFreeCBM(digits.concepts, length=10, center="data", max_iter=100, random_state=0)
    model.fit(digits.X, digits.y, features=view)
    assert model.score(view_test, digits.y_test) > 0.8
    again = clone(model).fit(digits.X, digits.y, features=view)
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_clip(clip: Any) -> None:
    model = LabelFreeCBM(clip.concepts, length=12, center="data", random_state=0).fit(clip.X, clip.y)
    assert model.score(clip.X_test, clip.y_test) > 0.8
    assert 11 < model.length_ <= 12


def test_validation_may_be_given() -> None:
    X, y, concepts = sample()
    F = nonlinear_view(X)
    model = LabelFreeCBM(concepts, length=4, cutoff=0.0, max_iter=25, random_state=0)
    model.fit(X[:600], y[:600], features=F[:600], validation=(X[600:], y[600:], F[600:]))
    scores = (F[600:] @ model.concept_layer_.T, X[600:] @ concepts.embeddings[model.kept_].T)
    np.testing.assert_allclose(model.similarities_[model.kept_], direct_similarity(*scores), atol=1e-4)
    with pytest.raises(CCRError, match=r"validation must be \(X, y, features\)"):
        model.fit(X[:600], y[:600], features=F[:600], validation=(X[600:], y[600:]))
    with pytest.raises(CCRError, match=r"validation must be \(X, y\)"):
        model.fit(X[:600], y[:600], validation=(X[600:], y[600:], F[600:]))
    model.fit(X[:600], y[:600], validation=(X[600:], y[600:]))
    np.testing.assert_allclose(model.similarities_, 1, atol=1e-5)


@pytest.mark.parametrize(("d", "n", "classes"), [(12, 8, 2), (12, 1, 3), (12, 1, 2), (6, 30, 3)])
def test_small_shapes(d: int, n: int, classes: int) -> None:
    X, y, concepts = sample(d=d, n=n, classes=classes)
    model = LabelFreeCBM(concepts, length=5, random_state=0).fit(X, y)
    assert model.coef_.shape == (classes, n)
    most = np.bincount(y).max() / len(y)
    assert model.score(X, y) >= most - 0.02
    assert model.length_ <= 5


def test_constant_features_are_refused_with_the_similarity() -> None:
    X, y, concepts = sample(m=200)
    with pytest.raises(CCRError, match=r"no concept reaches the cutoff 0.45: the best similarity is 0.000; lower"):
        LabelFreeCBM(concepts, random_state=0, max_iter=25).fit(X, y, features=np.full((200, 4), 3.0))


def test_a_constant_concept_gets_codes_of_zero(tmp_path: Path) -> None:
    X, y, concepts = sample(m=300, d=6, n=3)
    X = np.hstack([X, np.ones((300, 1), np.float32)])
    D = np.vstack([np.hstack([concepts.embeddings, np.zeros((3, 1))]), np.eye(7)[6]])
    X[:, :6] = unit_rows(X[:, :6])
    model = LabelFreeCBM(Concepts(["a", "b", "c", "ever"], D), length=4, cutoff=-1, random_state=0).fit(X, y)
    assert not model.transform(X)[:, 3].any()
    assert not model.coef_[:, 3].any()
    assert model.similarities_[3] == 0
    model.save(tmp_path / "m")
    assert not LabelFreeCBM.load(tmp_path / "m").transform(X)[:, 3].any()
    dropped = clone(model).set_params(cutoff=0.45).fit(X, y)
    assert dropped.names_ == ("a", "b", "c")


def test_few_images_and_odd_containers() -> None:
    X, y, concepts = sample(m=30)
    plain = LabelFreeCBM(concepts, length=3, random_state=0).fit(X, y)
    tensor = LabelFreeCBM(concepts, length=3, random_state=0).fit(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(plain.coef_, tensor.coef_)
    assert isinstance(plain.transform(X), np.ndarray)
    assert not sparse.issparse(plain.transform(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concepts": None}, "concepts must be"),
        ({"length": 0}, "length must be a positive number"),
        ({"length": "4"}, "length must be a positive number"),
        ({"cutoff": None}, "cutoff must be in"),
        ({"max_iter": "9"}, "max_iter must not be negative"),
        ({"cutoff": 2.0}, "cutoff must be in"),
        ({"l1_ratio": 0.0}, "l1_ratio must be in"),
        ({"batch_size": 1}, "batch_size at least 2"),
        ({"center": "mean"}, "center must be"),
    ],
)
def test_bad_options(change: dict, message: str) -> None:
    X, y, concepts = sample(m=100)
    with pytest.raises(CCRError, match=message):
        LabelFreeCBM(**{"concepts": concepts, **change}).fit(X, y)


def test_bad_data() -> None:
    X, y, concepts = sample(m=100)
    model = LabelFreeCBM(concepts, random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(CCRError, match="features for each row"):
        model.fit(X, y, features=X[:50])
    with pytest.raises(CCRError, match="dimensions"):
        model.fit(X[:, :5], y)
    model.fit(X, y)
    with pytest.raises(CCRError, match="12 dimensions, got 5"):
        model.predict(X[:, :5])
    model.fit(X, y, features=np.hstack([X, X]))
    with pytest.raises(CCRError, match="24 columns of the training features, got 12"):
        model.predict(X)
