"""Concepts from examples: against brute-force leave-one-out, scikit-learn's discriminant, and real embeddings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ccr import Concepts
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.knowledge.grounding import SHRINKAGE, TEXT_ANSWERS, learn_direction


def photos(seed, p=4, q=5, d=8, apart=1.0):
    rng = np.random.default_rng(seed)
    shows, lacks = rng.normal(size=(p, d)), rng.normal(size=(q, d))
    shows[:, 0] += apart
    A = rng.normal(size=(d, d))
    return unit_rows(shows), unit_rows(lacks), A @ A.T / d, rng.normal(size=d)


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.booleans())
def test_leave_one_out_is_learning_again_without_each_photo(seed, with_text, with_covariance, with_mean):
    shows, lacks, S, text = photos(seed)
    options = {"text": text if with_text else None, "covariance": S if with_covariance else None}
    options["mean"] = np.random.default_rng(seed).normal(size=8) if with_mean else None
    wrong = []
    for row in range(len(shows)):
        learned = learn_direction(np.delete(shows, row, axis=0), lacks, **options)
        wrong.append(shows[row] @ learned.direction <= learned.threshold)
    for row in range(len(lacks)):
        learned = learn_direction(shows, np.delete(lacks, row, axis=0), **options)
        wrong.append(lacks[row] @ learned.direction > learned.threshold)
    learned = learn_direction(shows, lacks, **options)
    assert learned.wrong.tolist() == wrong
    assert learned.error == np.mean(wrong)


def test_without_a_text_it_is_fishers_discriminant():
    shows, lacks, _, _ = photos(1, p=200, q=200)
    X, y = np.concatenate([shows, lacks]), np.arange(400) < 200
    within = (np.cov(shows.T, bias=True) + np.cov(lacks.T, bias=True)) / 2
    learned = learn_direction(shows, lacks, covariance=within)
    # Their shrinkage to the mean variance is ours.
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRINKAGE).fit(X, y)
    # scikit-learn standardises features before it shrinks, so that directions agree, not to the last digit.
    assert learned.direction @ oracle.coef_[0] / np.linalg.norm(oracle.coef_[0]) > 0.99
    S = (1 - SHRINKAGE) * within + SHRINKAGE * np.trace(within) / 8 * np.eye(8)
    exact = np.linalg.solve(S, shows.mean(axis=0) - lacks.mean(axis=0))
    assert np.allclose(learned.direction, exact / np.linalg.norm(exact), atol=1e-8)


def test_few_photos_listen_to_the_text_and_many_do_not():
    shows, lacks, _, _ = photos(2, p=300, q=300)
    text = np.eye(8)[3]
    few = learn_direction(shows[:2], lacks[:2], text=text).direction
    many = learn_direction(shows, lacks, text=text).direction
    alone = learn_direction(shows, lacks).direction
    assert few @ text > many @ text
    assert many @ alone > 0.99
    share = TEXT_ANSWERS / (TEXT_ANSWERS + 2)
    assert few @ text > share - 0.35


def test_it_is_seen_as_learned_among_other_concepts(clip):
    """After a model has centred the list that it joined, its scores are those of the learned direction."""
    X, y = np.asarray(clip.X, dtype=np.float64), clip.y
    ship, other = X[y == "ship"][:10], X[y != "ship"][:20]
    mean = unit_rows(X).mean(axis=0)
    covariance = np.cov(unit_rows(X).T, bias=True)
    options = {"mean": mean, "covariance": covariance}
    learned = learn_direction(ship, other, **options)
    assert learned.error < 0.25
    one = Concepts.from_examples("a learned ship", shows=ship, lacks=other, among=clip.concepts, **options)
    assert one.names == ("a learned ship",)
    centred = one.embeddings[0] - clip.concepts.embeddings.mean(axis=0)
    assert centred @ learned.direction / np.linalg.norm(centred) > 0.9999
    scores = unit_rows(np.asarray(clip.X_test, dtype=np.float64)) @ learned.direction
    ships = clip.y_test == "ship"
    assert np.mean(scores[ships][:, None] > scores[~ships][None]) > 0.95  # AUC on images that nobody learned from


@pytest.mark.parametrize(
    ("shows", "lacks", "message"),
    [
        (np.ones((1, 4)), np.eye(4), "at least 2 photos in shows="),
        (np.eye(4), np.zeros((0, 4)), "at least 2 photos in lacks="),
        (np.eye(4), np.full((2, 4), np.nan), "must be finite"),
        (np.eye(4), np.zeros((2, 4)), "not zero"),
        (np.eye(4), np.eye(3), "same dimensions"),
        (np.eye(4), np.eye(4), "same mean"),
    ],
)
def test_photos_that_teach_nothing_are_refused(shows, lacks, message):
    with pytest.raises(CCRError, match=message):
        Concepts.from_examples("x", shows=shows, lacks=lacks)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": np.ones(3)}, r"text must have the photos' dimensions, shape \(8,\), got \(3,\)"),
        ({"mean": 1.0}, r"mean must have the photos' dimensions, shape \(8,\), got \(\)"),
        ({"covariance": np.eye(3)}, r"covariance must have the photos' dimensions, shape \(8, 8\), got \(3, 3\)"),
        ({"covariance": np.full((8, 8), np.nan)}, "covariance must be finite"),
    ],
)
def test_what_goes_with_photos_has_their_dimensions(given, message):
    rng = np.random.default_rng(0)
    photos = {"shows": rng.normal(size=(3, 8)), "lacks": rng.normal(size=(3, 8))}
    with pytest.raises(CCRError, match=message):
        Concepts.from_examples("new", **photos, **given)
    among = Concepts(["a", "b"], rng.normal(size=(2, 8)))
    with pytest.raises(CCRError, match=message):
        Concepts.from_examples("new", **photos, among=among, **given)
