"""The space of images and concepts: what centring takes off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.space import Space


def centring(texts: np.ndarray) -> Space:
    """The space of these texts (n, d) and some images, centred alone."""
    images = np.random.default_rng(0).normal(size=(5, texts.shape[1]))
    return Space.fit(texts, images, center="data", dispersion=None)


def cone(n: int, d: int, *, width: float, seed: int) -> np.ndarray:
    """Texts around one axis, the more alike the smaller `width` is."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(1, d)) / np.sqrt(d) + width * unit_rows(rng.normal(size=(n, d)))


@pytest.mark.parametrize("n", [2, 9, 16])
def test_orthonormal_concepts_have_nothing_in_common_and_stay(n: int) -> None:
    texts = np.linalg.qr(np.random.default_rng(n).normal(size=(16, 16)))[0][:n]
    assert np.linalg.norm(texts.mean(axis=0)) > 0.2
    assert np.allclose(centring(texts).texts(texts), texts, atol=1e-6)


def test_opposite_concepts_stay() -> None:
    texts = unit_rows(np.random.default_rng(0).normal(size=(6, 8)))
    both = np.vstack([texts, -texts])
    assert np.allclose(centring(both).texts(both), both, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_identical_concepts_are_refused(n: int) -> None:
    with pytest.raises(CCRError, match="is the mean itself, so it has no direction left: add different concepts"):
        centring(np.ones((n, 4)))


@given(st.integers(0, 10**6))
def test_from_concepts_with_much_in_common_nearly_all_of_the_mean_is_taken(seed: int) -> None:
    texts = cone(100, 32, width=0.2, seed=seed)
    mean = unit_rows(texts).mean(axis=0)
    taken = centring(texts).concept_mean
    assert taken is not None
    assert np.linalg.norm(taken - mean) < 0.02 * np.linalg.norm(mean)


@given(st.integers(2, 30), st.integers(2, 16), st.sampled_from([0.1, 1.0, 10.0, 1e3]), st.integers(0, 10**6))
def test_what_is_taken_is_a_part_of_the_mean_given_by_the_mean_cosine(n: int, d: int, width: float, seed: int) -> None:
    """Of the mean m, |m|^2 = (1 + s) / n, where s is the sum of a concept's cosines with the others, on average; the
    part taken is s / (1 + s): all of what cosines add, nothing of the 1."""
    rows = unit_rows(cone(n, d, width=width, seed=seed))
    cosines = rows @ rows.T
    others = (cosines.sum() - np.trace(cosines)) / n
    taken, mean = centring(rows).concept_mean, rows.mean(axis=0)
    assert taken is not None
    part = float(taken @ mean) / float(mean @ mean)
    assert -1e-9 <= part <= 1 + 1e-9
    assert np.allclose(taken, part * mean, atol=1e-9)
    assert part == pytest.approx(max(0.0, others) / (1.0 + max(0.0, others)), abs=1e-6)
