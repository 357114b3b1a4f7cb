from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from ccr import Concepts
from ccr.classifier import NotFittedError
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr_lab.rivals.elastic_net import optimality_violation
from ccr_lab.rivals.labelfree import LabelFreeCBM, head_length


def sample(m: int = 800, d: int = 12, n: int = 8, classes: int = 4, seed: int = 0) -> tuple[Any, ...]:
    """Unit embeddings, labels that depend on few concepts, and concepts."""
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.normal(size=(m, d))).astype(np.float32)
    D = unit_rows(rng.normal(size=(n, d)))
    y = (X @ D.T @ rng.normal(size=(n, classes)) * 8 + rng.gumbel(size=(m, classes))).argmax(axis=1)
    return X, y, Concepts([f"concept {row}" for row in range(n)], D)


@pytest.mark.parametrize("center", [None, "data"])
def test_codes_are_standardised_scores(center: Any) -> None:
    X, y, concepts = sample()
    model = LabelFreeCBM(concepts, length=4, center=center).fit(X, y)
    assert model.names_ == concepts.names
    codes = model.transform(X)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(codes.std(axis=0), 1, atol=1e-4)
    if center is None:
        scores = unit_rows(X) @ concepts.embeddings.T
        np.testing.assert_allclose(codes, (scores - scores.mean(axis=0)) / scores.std(axis=0), atol=1e-4)


def test_the_head_is_optimal_and_as_long_as_asked() -> None:
    X, y, concepts = sample(n=40, classes=5)
    model = LabelFreeCBM(concepts, length=7).fit(X, y)
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
    model = LabelFreeCBM(concepts, length=100).fit(X, y)
    assert model.length_ <= 8
    assert model.score(X, y) > 0.6


def test_explanations_are_exact_and_leave_out_unused_concepts() -> None:
    X, y, concepts = sample(n=40)
    model = LabelFreeCBM(concepts, length=3).fit(X, y)
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
    model = LabelFreeCBM(digits.concepts, length=10, center="data").fit(digits.X, digits.y)
    assert model.score(digits.X_test, digits.y_test) > 0.85
    assert 9 < model.length_ <= 10
    assert model.predict_proba(digits.X_test).shape == (len(digits.X_test), 10)


def test_clip(clip: Any) -> None:
    model = LabelFreeCBM(clip.concepts, length=12, center="data").fit(clip.X, clip.y)
    assert model.score(clip.X_test, clip.y_test) > 0.8
    assert 11 < model.length_ <= 12


@pytest.mark.parametrize(("d", "n", "classes"), [(12, 8, 2), (12, 1, 3), (12, 1, 2), (6, 30, 3)])
def test_small_shapes(d: int, n: int, classes: int) -> None:
    X, y, concepts = sample(d=d, n=n, classes=classes)
    model = LabelFreeCBM(concepts, length=5).fit(X, y)
    assert model.coef_.shape == (classes, n)
    most = np.bincount(y).max() / len(y)
    assert model.score(X, y) >= most - 0.02
    assert model.length_ <= 5


def test_a_constant_concept_gets_codes_of_zero(tmp_path: Path) -> None:
    X, y, concepts = sample(m=300, d=6, n=3)
    X = np.hstack([X, np.ones((300, 1), np.float32)])
    D = np.vstack([np.hstack([concepts.embeddings, np.zeros((3, 1))]), np.eye(7)[6]])
    X[:, :6] = unit_rows(X[:, :6])
    model = LabelFreeCBM(Concepts(["a", "b", "c", "ever"], D), length=4).fit(X, y)
    assert not model.transform(X)[:, 3].any()
    assert not model.coef_[:, 3].any()
    model.save(tmp_path / "m")
    assert not LabelFreeCBM.load(tmp_path / "m").transform(X)[:, 3].any()


def test_few_images_and_odd_containers() -> None:
    X, y, concepts = sample(m=30)
    plain = LabelFreeCBM(concepts, length=3).fit(X, y)
    tensor = LabelFreeCBM(concepts, length=3).fit(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(plain.coef_, tensor.coef_)
    assert isinstance(plain.transform(X), np.ndarray)
    assert not sparse.issparse(plain.transform(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concepts": None}, "concepts must be"),
        ({"length": 0}, "length must be a positive number"),
        ({"length": "4"}, "length must be a positive number"),
        ({"l1_ratio": 0.0}, "l1_ratio must be in"),
        ({"center": "mean"}, "center must be"),
    ],
)
def test_bad_options(change: dict, message: str) -> None:
    X, y, concepts = sample(m=100)
    with pytest.raises(CCRError, match=message):
        LabelFreeCBM(**{"concepts": concepts, **change}).fit(X, y)


def test_bad_data() -> None:
    X, y, concepts = sample(m=100)
    model = LabelFreeCBM(concepts)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(CCRError, match="dimensions"):
        model.fit(X[:, :5], y)
    model.fit(X, y)
    with pytest.raises(CCRError, match="12 dimensions, got 5"):
        model.predict(X[:, :5])
