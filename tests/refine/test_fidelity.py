"""Refinement in the images' own metric, and a sparse head held during it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.metrics import log_loss

from ccr import IPOMP, OMP, ConceptClassifier, ConceptModel, Concepts, HardThreshold, Symmetric, TopK
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.geometry import coherence, fidelity_radius, project_to_cap, unit_rows
from ccr.inputs import Embeddings
from ccr.metrics import fidelity
from ccr.refine.loop import TRIED
from ccr.refine.region import Bound
from ccr.space import ImageMetric, Space, dispersed, shrunk_for
from tests.conftest import Data

POSITIVE = HardThreshold(length=8, sign="positive")


def anisotropic(seed: int, m: int = 400, d: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, d)) * np.geomspace(4.0, 0.1, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 0.3


@given(st.integers(0, 10**6))
def test_fidelity_is_numpys_correlation(seed: int) -> None:
    rng, X = np.random.default_rng(seed), anisotropic(seed, m=60)
    one, two = rng.normal(size=(5, 12)), rng.normal(size=(5, 12))
    expected = [np.corrcoef(X @ one[row], X @ two[row])[0, 1] for row in range(5)]
    assert np.allclose(fidelity(X.astype(np.float32), one, two), expected, atol=1e-4)
    assert np.allclose(fidelity(X, one, one), 1.0, atol=1e-6)
    assert np.allclose(fidelity(X, one, -one), -1.0, atol=1e-6)


def test_moments_are_those_of_all_rows_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = anisotropic(0).astype(np.float32)
    whole = Embeddings(X).moments()
    monkeypatch.setattr("ccr.inputs.CHUNK_VALUES", 12 * 4 * 7)
    parts = Embeddings(X).moments()
    unit = unit_rows(X.astype(np.float64))
    for found in (whole, parts):
        assert np.allclose(found.mean, unit.mean(axis=0), atol=1e-6)
        assert np.allclose(found.covariance, np.cov(unit.T, bias=True), atol=1e-6)


@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("d", [12, 128])
def test_fidelity_of_images_that_hardly_differ_is_numpys(spread: float, d: int) -> None:
    rng = np.random.default_rng(d)
    X = unit_rows(unit_rows(rng.normal(size=(1, d))) + spread / np.sqrt(d) * rng.normal(size=(500, d))).astype(
        np.float32
    )
    one = unit_rows(rng.normal(size=(6, d)))
    two = unit_rows(one + 0.5 * unit_rows(rng.normal(size=(6, d))))
    wide = X.astype(np.float64)
    expected = [np.corrcoef(wide @ one[row], wide @ two[row])[0, 1] for row in range(6)]
    assert np.allclose(fidelity(X, one, two), expected, atol=1e-5)
    assert np.allclose(fidelity(X, one, one), 1.0)
    covariance = np.cov(wide.T, bias=True)
    moments = Embeddings(X, normalize=False).moments()
    assert np.allclose(moments.covariance, covariance, atol=1e-6 * np.trace(covariance))


@pytest.mark.parametrize("m", [1, 2, 700])
def test_images_without_a_difference_give_no_fidelity(m: int, short: ConceptClassifier, digits: Data) -> None:
    rng = np.random.default_rng(m)
    same = np.repeat(rng.normal(size=(1, 64)), m, axis=0)
    one, two = rng.normal(size=(2, 5, 64))
    assert np.isnan(fidelity(same, one, two)).all()
    found = short.model_.fidelity(np.repeat(digits.X[:1], m, axis=0))
    assert np.isnan(found).all()
    evaluation = short.evaluate(np.repeat(digits.X[:1], m, axis=0), np.repeat(digits.y[:1], m))
    assert evaluation.to_dict()["fidelity"] == {"mean": None, "min": None}


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_fidelity_never_leaves_its_range(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    X, one, two = rng.normal(size=(m, 9)), rng.normal(size=(20, 9)), rng.normal(size=(20, 9))
    assert (np.abs(fidelity(X, one, two)) <= 1.0).all()


def test_a_concept_that_no_image_differs_along_has_no_fidelity() -> None:
    rng = np.random.default_rng(0)
    X, one, two = rng.normal(size=(50, 6)), rng.normal(size=(3, 6)), rng.normal(size=(3, 6))
    X[:, 4:] = 0.7
    one[0, :4] = 0.0
    two[1] = 0.0
    assert np.isnan(fidelity(X, one, two)).tolist() == [True, True, False]


@given(st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_the_metric_keeps_every_texts_own_score(seed: int, shrinkage: float) -> None:
    """<H x, R t> = <x, t>: up to the sizes of image and concept, scores are the text's own."""
    rng, X = np.random.default_rng(seed), anisotropic(seed, m=80)
    texts = rng.normal(size=(6, 12))
    space, plain = (
        Space.fit_metric(texts, X, shrinkage=shrinkage),
        Space.fit(texts, X, center="data", dispersion=None),
    )
    assert space.metric is not None
    x, t = (plain.images(X).take(np.arange(80)).numpy().astype(np.float64), plain.texts(texts).astype(np.float64))
    scores = space.images(X).take(np.arange(80)).numpy() @ space.texts(texts).T
    sizes = np.outer(np.linalg.norm(x @ space.metric.whiten, axis=1), np.linalg.norm(t @ space.metric.color, axis=1))
    assert np.allclose(scores * sizes, x @ t.T, atol=1e-4)
    assert np.array_equal(space.texts(texts), space.own_texts(texts))


@given(st.floats(0.01, 1.0), st.integers(1, 3000), st.integers(1, 2000))
def test_few_images_are_shrunk_more(shrinkage: float, m: int, d: int) -> None:
    used = shrunk_for(shrinkage, m, d)
    assert shrinkage <= used + 1e-12 <= 1.0 + 2e-12
    assert used >= shrunk_for(shrinkage, m + 1, d) - 1e-12, "the more images, the less"
    if m >= d:
        assert used == pytest.approx(shrinkage, abs=1e-12)
    assert shrunk_for(0.5, m, d) == pytest.approx(max(0.5, d / (d + m)))


@pytest.mark.parametrize("each", [2, 3])
def test_a_model_of_few_images_has_something_to_say_about_others(each: int) -> None:
    """Fewer images than dimensions: new ones show about as much as those that it was fitted on."""
    rng, d = np.random.default_rng(0), 200
    middles, concepts = rng.normal(size=(5, d)), Concepts([f"c{row}" for row in range(40)], rng.normal(size=(40, d)))
    y = np.arange(5 * each + 500) % 5
    X = middles[y] + 1.5 * rng.normal(size=(len(y), d))
    settings: dict[str, Any] = {"coder": HardThreshold(length=8), "validation_fraction": 0.0, "random_state": 0}
    model = ConceptClassifier(concepts, weights_per_class=None, **settings).fit(X[: 5 * each], y[: 5 * each])
    found = model.evaluate(X[5 * each :], y[5 * each :])
    assert found.length > 0.8 * model.evaluate(X[: 5 * each], y[: 5 * each]).length
    assert found.accuracy > 0.85, "0.48 and 0.75 with the shrinkage of many images"


@given(st.integers(0, 10**6), st.floats(0.3, 0.999))
def test_the_cap_is_the_set_of_concepts_of_that_correlation(seed: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    X = anisotropic(seed)
    X -= X.mean(axis=0)
    shrunk = 0.8 * np.cov(X.T, bias=True) + 0.2 * np.trace(np.cov(X.T, bias=True)) / 12 * np.eye(12)
    metric = ImageMetric.fit(np.cov(X.T, bias=True), 0.2)
    start = unit_rows(rng.normal(size=(4, 12)) @ metric.color)
    moved = project_to_cap(start + rng.normal(size=(4, 12)), start, fidelity_radius(least))
    back, begun = moved @ metric.whiten, start @ metric.whiten  # in the encoder's coordinates
    products = [np.einsum("ij,jk,ik->i", a, shrunk, b) for a, b in ((back, begun), (back, back), (begun, begun))]
    assert (products[0] / np.sqrt(products[1] * products[2]) >= least - 1e-4).all()


@pytest.fixture(scope="module")
def short(digits: Data) -> ConceptClassifier:
    settings: dict[str, Any] = {"fidelity": 0.9, "weights_per_class": 4, "coder": POSITIVE, "random_state": 0}
    return ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)


def test_a_fitted_model_is_short_and_true_to_its_texts(short: ConceptClassifier, digits: Data) -> None:
    found = short.evaluate(digits.X_test, digits.y_test)
    assert (np.count_nonzero(short.coef_, axis=1) <= 4).all()
    assert found.weights_per_class <= 4
    assert found.accuracy > 0.85
    assert found.in_play <= found.length < 8
    # The bound holds under the shrunk covariance, which is near the plain one.
    cosines = (short.concepts_.embeddings * short.initial_concepts_.embeddings).sum(axis=1)
    assert (cosines >= 0.9 - 1e-5).all()
    assert found.fidelity.mean > 0.9
    assert short.fidelity_.shape == (len(short.concepts_),)
    assert short.fidelity_.mean() == pytest.approx(found.fidelity.mean, abs=0.05)
    assert (short.transform(digits.X_test).data > 0).all()


def test_concepts_without_a_weight_are_left_out_and_named(short: ConceptClassifier, digits: Data) -> None:
    assert short.coef_.any(axis=0).all()
    left_out = short.model_.provenance.left_out
    assert left_out
    assert sorted([*short.concepts_.names, *left_out]) == sorted(digits.concepts.names)
    assert short.model_.provenance.texts.names == short.initial_concepts_.names == short.concepts_.names
    assert short.rule_.length == pytest.approx(short.transform(digits.X).nnz / len(digits.X), rel=0.02)


def test_asking_for_a_concept_that_was_left_out_says_so(short: ConceptClassifier, digits: Data) -> None:
    gone = short.model_.provenance.left_out[0]
    for ask in (short.edit().suppress, short.edit().pin, lambda name: short.images_of(digits.X_test, name)):
        with pytest.raises(CCRError, match=f"'{gone}' was left out when the model was fitted"):
            ask(gone)
    text = digits.concepts.embeddings[digits.concepts.index(gone)]
    assert short.edit().add(gone, text).scale(gone, 2.0).model().row(gone) == len(short.concepts_)


def test_explanations_name_only_what_has_a_weight(short: ConceptClassifier, digits: Data) -> None:
    explanations = [short.explain(x) for x in digits.X_test[:40]]
    assert any(len(e.contributions) < len(e.active) for e in explanations)
    for e in explanations:
        assert all(term.weight != 0 for term in e.contributions)
        assert len(e.contributions) <= 4
        assert e.bias + sum(term.contribution for term in e.contributions) == pytest.approx(e.logit, rel=1e-5, abs=1e-5)


def test_it_is_saved_whole(short: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    short.save(tmp_path / "model")
    again = ConceptClassifier.load(tmp_path / "model")
    assert np.array_equal(again.decision_function(digits.X_test), short.decision_function(digits.X_test))
    assert np.array_equal(again.fidelity_, short.fidelity_)
    assert again.model_.provenance.left_out == short.model_.provenance.left_out
    assert (again.fidelity, again.radius, again.weights_per_class) == (0.9, None, 4)
    text = digits.concepts.embeddings[0]
    assert np.array_equal(again.space_.texts(text[None]), short.space_.texts(text[None]))
    added = short.edit().add("again", text).model()
    assert isinstance(added, ConceptModel)
    assert np.allclose(added.concepts.embeddings[-1], short.space_.texts(text[None])[0], atol=1e-6)


def test_a_file_gives_the_same_model_as_memory(digits: Data, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", digits.X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    models = [
        ConceptClassifier(digits.concepts, fidelity=0.9, max_iter=3, random_state=0).fit(X, digits.y)
        for X in (np.array(mapped), mapped)
    ]
    assert np.array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("weights", [None, 1, 3, 1000])
def test_both_engines_give_the_same_model(weights: int | None, digits: Data) -> None:
    settings: dict[str, Any] = {"fidelity": 0.9, "coder": POSITIVE, "max_iter": 6, "random_state": 0}
    one, two = (
        ConceptClassifier(digits.concepts, weights_per_class=weights, engine=engine, **settings).fit(digits.X, digits.y)
        for engine in ("sparse", "dense")
    )
    assert one.concepts_.names == two.concepts_.names
    assert np.array_equal(one.coef_ != 0, two.coef_ != 0)
    assert np.allclose(one.coef_, two.coef_, atol=2e-2 * np.abs(two.coef_).max())
    assert np.mean(one.predict(digits.X_test) == two.predict(digits.X_test)) > 0.99


def test_fidelity_one_is_the_baseline(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, fidelity=1.0, max_iter=3, random_state=0).fit(digits.X, digits.y)
    assert np.allclose(model.concepts_.embeddings, model.initial_concepts_.embeddings, atol=1e-6)
    assert np.allclose(model.fidelity_, 1.0, atol=1e-5)


@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_concepts_start_as_dispersed_as_their_fidelity_allows(engine: Any, digits: Data) -> None:
    texts = digits.concepts
    bound = Bound.fit(
        texts, digits.X, radius=None, fidelity=0.9, center="data", dispersion=Symmetric(0.9), shrinkage=0.5
    )
    own = bound.space.own_texts(texts.embeddings)
    assert np.allclose(bound.initial.embeddings, own, atol=1e-6)
    settings: dict[str, Any] = {"weights_per_class": None, "dictionary_rate": 0.0, "max_iter": 2, "random_state": 0}
    still = ConceptClassifier(texts, fidelity=0.9, engine=engine, **settings)
    found = still.fit(digits.X, digits.y).concepts_.embeddings
    cosines = (found * own).sum(axis=1)
    assert (cosines >= 0.9 - 1e-5).all()
    assert (cosines < 0.999).all()
    assert np.allclose(found, project_to_cap(dispersed(own, Symmetric(0.9)), own, fidelity_radius(0.9)), atol=1e-5)
    assert coherence(found) < coherence(own)
    undispersed = clone(still).set_params(dispersion=None).fit(digits.X, digits.y)
    assert np.allclose(undispersed.concepts_.embeddings, own, atol=1e-6)


def test_auto_takes_the_fewest_weights_that_validation_cannot_tell_from_the_best(digits: Data, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"fidelity": 0.9, "coder": POSITIVE, "max_iter": 6, "random_state": 0}
    auto = ConceptClassifier(digits.concepts, weights_per_class="auto", **settings)
    told: list[tuple[int, int]] = []
    validation = (digits.X_test, digits.y_test)
    auto.fit(digits.X, digits.y, validation=validation, callback=lambda e, of: told.append((e.epoch, of)))
    fits = [
        ConceptClassifier(digits.concepts, weights_per_class=k, **settings).fit(
            digits.X, digits.y, validation=validation
        )
        for k in TRIED
    ]
    accuracies = [fit.score(*validation) for fit in fits]
    best = max(accuracies)
    near = [a >= best - np.sqrt(best * (1 - best) / len(digits.y_test)) for a in accuracies]
    expected = fits[near.index(True)]
    assert 0 < near.index(True) < len(TRIED) - 1
    assert np.array_equal(auto.coef_, expected.coef_)
    assert told == [(step + 1, 6 * len(TRIED)) for step in range(6 * len(TRIED))]
    kept = clone(auto).fit(digits.X, digits.y, validation=validation, checkpoint=tmp_path)
    assert np.array_equal(kept.coef_, auto.coef_)
    assert {folder.name for folder in tmp_path.iterdir()} == {f"weights-{k or 'all'}" for k in TRIED}
    kept.save(tmp_path / "model")
    assert ConceptClassifier.load(tmp_path / "model").weights_per_class == "auto"


def test_top_k_keeps_concepts_without_weights(digits: Data) -> None:
    settings: dict[str, Any] = {"coder": TopK(6), "max_iter": 4, "random_state": 0}
    model = ConceptClassifier(digits.concepts, fidelity=0.9, weights_per_class=2, **settings).fit(digits.X, digits.y)
    assert len(model.concepts_) == 40
    assert not model.model_.provenance.left_out
    assert (np.count_nonzero(model.coef_, axis=1) <= 2).all()


@pytest.mark.parametrize("coder", [IPOMP(6), OMP(6)])
def test_pursuit_codes_take_a_sparse_head_too(coder: Any, digits: Data) -> None:
    settings: dict[str, Any] = {"radius": 0.0, "coder": coder, "validation_fraction": 0.0}
    full, enough, few = (
        ConceptClassifier(digits.concepts, weights_per_class=k, **settings).fit(digits.X, digits.y)
        for k in (None, 40, 3)
    )
    assert np.array_equal(enough.coef_, full.coef_)
    assert np.array_equal(enough.intercept_, full.intercept_)
    assert (np.count_nonzero(few.coef_, axis=1) == 3).all()
    codes, y = full.transform(digits.X), np.searchsorted(full.classes_, digits.y)
    # Pursuit chooses concepts one after the other: those without a weight have their part in it and stay.
    assert few.concepts_.names == digits.concepts.names
    assert np.array_equal(few.transform(digits.X).toarray(), codes.toarray())

    strength = np.abs(full.coef_) * np.sqrt(codes.power(2).mean(axis=0).A1)
    weakest = strength < np.sort(strength, axis=1)[:, [-3]]
    pruned = LinearHead(np.where(weakest, 0.0, full.coef_), full.intercept_)
    assert log_loss(y, softmax(few.head_.logits(codes), axis=1)) < log_loss(y, softmax(pruned.logits(codes), axis=1))
    assert few.history_[0].train_loss == pytest.approx(log_loss(y, softmax(few.head_.logits(codes), axis=1)), rel=1e-4)


@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_an_interrupted_sparse_head_goes_on_the_same(engine: Any, digits: Data, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"fidelity": 0.9, "weights_per_class": 2, "max_iter": 8, "random_state": 0}
    model = ConceptClassifier(digits.concepts, engine=engine, **settings)
    whole = model.fit(digits.X, digits.y).model_

    def stop(epoch: Any, epochs: int) -> None:
        if epoch.epoch == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(digits.X, digits.y, callback=stop, checkpoint=tmp_path)
    again = model.fit(digits.X, digits.y, checkpoint=tmp_path).model_
    assert np.array_equal(again.head.coef, whole.head.coef)
    assert np.array_equal(again.concepts.embeddings, whole.concepts.embeddings)
    assert again.names == whole.names


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fidelity": 0.9, "radius": 0.1}, "give a fidelity or a radius"),
        ({"fidelity": 1.2}, r"fidelity must be in \[0, 1\], got 1.2"),
        ({"fidelity": float("nan")}, r"fidelity must be in \[0, 1\]"),
        ({"fidelity": 0.9, "center": None}, "from the means of images and concepts"),
        ({"fidelity": 0.9, "dispersion": "wide"}, r"dispersion must be None, Angular\(\) or Symmetric\(\), got 'wide'"),
        ({"fidelity": 0.9, "weights_per_class": "auto", "validation_fraction": 0.0}, "chosen on validation images"),
        ({"fidelity": 0.9, "shrinkage": 0.0}, r"shrinkage must be in \(0, 1\], got 0.0"),
        ({"weights_per_class": 0}, "weights_per_class must be a whole number >= 1"),
        ({"coder": IPOMP(3)}, "IPOMP has no gradient, so concepts cannot be refined with it"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str, digits: Data) -> None:
    with pytest.raises(CCRError, match=message):
        ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)


@pytest.mark.parametrize("length", [2, 3, 8])
def test_a_sparse_head_shows_no_more_concepts_than_were_asked_for(length: float, digits: Data) -> None:
    settings: dict[str, Any] = {"coder": HardThreshold(length=length), "weights_per_class": 5, "random_state": 0}
    model = ConceptClassifier(digits.concepts, max_iter=8, **settings).fit(digits.X, digits.y)
    assert model.evaluate(digits.X, digits.y).length <= 1.1 * length
