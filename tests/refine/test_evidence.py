"""Candidates: evidence against a plain computation; the concepts that may speak for a class, through fits and edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr import ConceptClassifier, HardThreshold
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.refine.data import OF_A_CLASS, Candidates, Labelled, _some_of_each, evidence, split
from ccr.refine.measure import strongest
from ccr.refine.options import Training
from tests.conftest import Data

QUICK: dict[str, Any] = {"coder": HardThreshold(length=8), "max_iter": 8, "random_state": 0}


def labelled(X: Any, y: np.ndarray, weight: np.ndarray | None = None) -> Labelled:
    return split(Embeddings(X), y, weight, None)[0]


def drawn(seed: int, m: int = 300, n: int = 30, d: int = 12, classes: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) + 2 * rng.standard_normal(d)
    return unit_rows(X.astype(np.float32)), rng.integers(0, classes, m), unit_rows(rng.standard_normal((n, d)))


@given(st.integers(0, 1000), st.booleans())
def test_evidence_is_the_mean_standard_score_of_a_class(seed: int, weighted: bool) -> None:
    X, y, D = drawn(seed)
    weight = np.random.default_rng(seed).uniform(0, 2, len(y)) if weighted else np.ones(len(y))
    scores = X.astype(np.float64) @ D.T
    standard = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    expected = [np.average(standard[y == label], axis=0, weights=weight[y == label]) for label in range(5)]
    np.testing.assert_allclose(evidence(D, labelled(X, y, weight), 5), np.transpose(expected), rtol=1e-3, atol=1e-4)


def test_a_file_has_the_evidence_of_rows_in_memory(tmp_path: Path) -> None:
    X, y, D = drawn(0)
    np.save(tmp_path / "x.npy", X)
    expected = evidence(D, labelled(X, y), 5)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_allclose(evidence(D, labelled(mapped, y), 5), expected, atol=1e-5)


def test_where_nothing_is_known_there_is_no_evidence() -> None:
    X, y, D = drawn(1)
    assert not evidence(D, labelled(X, y), 7)[:, 5:].any(), "classes without images"
    assert not evidence(D, labelled(X[:1], y[:1]), 5).any(), "one image"
    assert not evidence(D, labelled(np.repeat(X[:1], 9, axis=0), np.arange(9) % 5), 5).any(), "equal images"
    assert not evidence(D, labelled(X, y, (y != 2).astype(float)), 5)[:, 2].any(), "images that do not count"


@given(st.lists(st.integers(0, 3 * OF_A_CLASS), min_size=1, max_size=4), st.integers(0, 99))
def test_some_images_of_each_class_evenly_spaced(counts: list[int], seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    chosen = _some_of_each(y, len(counts))
    assert len(set(chosen.tolist())) == len(chosen)
    for label, count in enumerate(counts):
        ranks = np.searchsorted(np.flatnonzero(y == label), np.sort(chosen[y[chosen] == label]))
        assert len(ranks) == min(count, OF_A_CLASS)
        if len(ranks) > 1:
            assert np.diff(ranks).max() <= np.ceil(count / OF_A_CLASS)


def test_candidates_are_those_of_most_evidence() -> None:
    found = np.array([[3.0, -4.0], [2.0, 0.5], [-5.0, 1.0], [0.0, 0.75]])
    assert Candidates(found, 2).mask(one_sided=True).T.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert Candidates(found, 2).mask(one_sided=False).T.tolist() == [[1, 0, 1, 0], [1, 0, 1, 0]]
    assert Candidates(found, 9).mask(one_sided=True).all()
    assert Candidates(found, 1).of(np.array([1, 3])).mask(one_sided=True).T.tolist() == [[1, 0], [0, 1]]
    weights = np.array([[0.1, 9.0], [-0.2, 9.0], [9.0, 0.1], [9.0, 0.2]])
    kept = strongest(weights, np.ones(4), 1, Candidates(found, 2), one_sided=True)
    assert kept.T.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]], "the strongest of them, not of all"
    assert strongest(weights, np.ones(4), 4, Candidates(found, 2), one_sided=True).sum() == 4
    weights[:2, 0] = -1.0
    kept = strongest(weights, np.ones(4), 1, Candidates(found, 2), one_sided=True)
    assert kept.T.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]], "none of them speaks for the first class"


@pytest.mark.parametrize("engine", ["sparse", "dense"])
@pytest.mark.parametrize(
    "options", [{}, {"radius": 0.1}, {"fidelity": 1.0}, {"coder": HardThreshold(length=8, sign="both")}]
)
def test_only_candidates_speak_for_a_class(engine: Any, options: dict[str, Any], digits: Data) -> None:
    settings = {**QUICK, "weights_per_class": 3, "engine": engine, **options}
    few, free = (
        ConceptClassifier(digits.concepts, candidates=candidates, **settings).fit(
            digits.X, digits.y, validation=(digits.X_test, digits.y_test)
        )
        for candidates in (1.4, None)
    )
    outside = [_outside(model, digits, 4, one_sided="coder" not in options) for model in (few, free)]
    assert outside[0] == 0
    assert outside[1] > 0, "without candidates some others do"


def _outside(model: ConceptClassifier, digits: Data, count: int, *, one_sided: bool) -> int:
    """Weights of concepts that are not among the candidates of their class, by scores of the concepts' own texts."""
    texts, kept = model.space_.texts(digits.concepts.embeddings), list(digits.concepts.names)
    y = np.searchsorted(model.classes_, digits.y)
    train = labelled(digits.X, y)._replace(X=model.space_.images(digits.X))
    own = model.initial_concepts_.embeddings
    rows = np.array([kept.index(name) for name in model.concepts_.names])
    np.testing.assert_allclose(texts[rows], own, atol=1e-5)
    mask = Candidates(evidence(texts, train, len(model.classes_)), count).mask(one_sided=one_sided)
    return int(((model.coef_ != 0) & ~mask[rows].T).sum())


def test_a_model_that_is_interrupted_loaded_or_refitted_keeps_to_them(digits: Data, tmp_path: Path) -> None:
    settings = {**QUICK, "weights_per_class": 2, "candidates": 1.5}
    model = ConceptClassifier(digits.concepts, **settings)

    def stop(epoch: Any, _: int) -> None:
        if epoch.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(digits.X, digits.y, callback=stop, checkpoint=tmp_path / "kept")
    again = model.fit(digits.X, digits.y, checkpoint=tmp_path / "kept").coef_
    whole = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)
    assert np.array_equal(again, whole.coef_)
    whole.save(tmp_path / "model")
    loaded = ConceptClassifier.load(tmp_path / "model")
    assert loaded.candidates == 1.5
    edited = loaded.edit().refit(digits.X, digits.y).model()
    images = labelled(digits.X, np.searchsorted(loaded.classes_, digits.y))._replace(X=loaded.space_.images(digits.X))
    allowed = Candidates(evidence(edited.initial.embeddings, images, len(loaded.classes_)), 3).mask(one_sided=True)
    assert not ((edited.head.coef != 0) & ~allowed.T).any()
    assert edited.head.coef.any(axis=1).all(), "every class has something to say"


def test_how_many_candidates() -> None:
    assert Training(weights_per_class=5, candidates=2).candidates_per_class() == 10
    assert Training(weights_per_class=3, candidates=1.5).candidates_per_class() == 4
    assert Training(weights_per_class=5).candidates_per_class() is None
    assert Training(candidates=2).candidates_per_class() is None


@pytest.mark.parametrize("value", [0, 0.5, -1, float("nan"), float("inf"), "2", True])
def test_what_is_no_number_of_candidates(value: Any, digits: Data) -> None:
    with pytest.raises(CCRError, match="candidates must be a number >= 1 or None, got"):
        ConceptClassifier(digits.concepts, candidates=value, **QUICK).fit(digits.X, digits.y)
