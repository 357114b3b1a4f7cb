"""The images' metric in the theory: oracles of the measurements, wrong claims that are caught, real images."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.errors import CCRError
from ccr_lab.theory import GROUPS, Testbed, check_embeddings, isotropy_table, metric, refine_worlds
from ccr_lab.theory.judging import check_group
from ccr_lab.theory.metric import isotropy
from ccr_lab.theory.scenes import anisotropy_diagrams
from ccr_lab.theory.testbed import MappedWorlds
from tests.conftest import Data


def _group(key: str):
    (group,) = [group for group in GROUPS if group.claims[0].key == key]
    return group


@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_made_up_images_have_the_shrunk_covariance(seed: int, shrinkage: float) -> None:
    x = metric.stretched_images(7, np.random.default_rng(seed))
    x -= x.mean(axis=0)
    covariance = np.cov(x.T, bias=True)
    expected = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 7 * np.eye(7)
    made = metric.shrunk_images(x, shrinkage)
    assert np.allclose(made.mean(axis=0), 0, atol=1e-12)
    assert np.allclose(made.T @ made / len(x), expected)


@given(st.integers(0, 10**6))
def test_correlations_are_numpys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, one, two = metric.stretched_images(5, rng), rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    expected = [np.corrcoef(x @ a, x @ b)[0, 1] for a, b in zip(one, two, strict=True)]
    assert np.allclose(metric.correlations(x, one, two), expected)


def test_the_limit_of_plain_correlations_vanishes_with_the_shrinkage_where_images_span_the_space() -> None:
    covariance = np.diag([1.0, 0.1, 0.01])
    limits = [metric.plain_limit(covariance, shrinkage) for shrinkage in (0.5, 1e-2, 1e-4, 1e-6)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < 1e-4
    assert metric.plain_limit(np.diag([1.0, 0.0]), 1e-6) == np.inf
    assert metric.plain_limit(covariance, 1.0) == np.inf


def test_a_cap_that_is_too_wide_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true_radius = metric.fidelity_radius
    monkeypatch.setattr(metric, "fidelity_radius", lambda least: min(2.0, 1.05 * true_radius(least)))
    verdicts = {result.key: result.verdict for result in check_group(_group("cap"), 20, 0)}
    assert verdicts == {"cap": "holds", "fidelity": "violated", "plain correlation": "holds"}


def test_a_wrong_limit_of_plain_correlations_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true_limit = metric.plain_limit
    monkeypatch.setattr(metric, "plain_limit", lambda *scene: true_limit(*scene) / 100)
    assert check_group(_group("cap"), 50, 0)[2].verdict == "violated"


def test_another_radius_is_not_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric, "fidelity_radius", lambda least: 0.05)
    few = replace(_group("same concepts"), most=2)
    assert check_group(few, 2, 0)[0].verdict == "violated"


# ---- worlds seen through a map


def _stretched(bed: Testbed, seed: int):
    worlds = bed.draw(worlds=3, samples=60, random_state=seed)
    forth = np.tile(np.diag(np.geomspace(1.0, 8.0, bed.d)), (3, 1, 1))
    return worlds, MappedWorlds.of(worlds, forth, np.linalg.inv(forth)), forth


def test_a_map_keeps_scores_and_supports() -> None:
    worlds, mapped, _ = _stretched(Testbed(6, 6, 3), 0)
    assert np.allclose(mapped.X @ mapped.truth.swapaxes(1, 2), worlds.beta)
    assert np.array_equal(mapped.support, worlds.support)


def test_refinement_after_the_map_is_undone_is_refinement_of_the_original() -> None:
    worlds, mapped, forth = _stretched(Testbed(6, 6, 3), 1)
    undone = MappedWorlds.of(mapped, np.linalg.inv(forth), forth)
    start = worlds.start(0.5, random_state=2)
    one, two = (refine_worlds(seen, start, radius=0.5, rate=0.3, steps=30) for seen in (worlds, undone))
    assert np.allclose(one.dictionary, two.dictionary)
    other = refine_worlds(mapped, start @ np.linalg.inv(forth), radius=0.5, rate=0.01, steps=30)
    assert not np.allclose(other.dictionary @ forth, one.dictionary, atol=1e-2)


def test_the_images_metric_recovers_where_the_encoders_space_does_not() -> None:
    seen: list[int] = []
    plain, shrunk = anisotropy_diagrams(
        testbed=Testbed(6, 6, 3),
        samples=120,
        worlds=2,
        conditions=(1.0, 1e4),
        radii=(0.05, 1.0),
        metrics=(None, 0.01),
        steps=200,
        tell=lambda done, total, what: seen.append(done),
    )
    assert (plain.remaining[0] < 1e-3).all()
    assert (plain.remaining[1] > 0.01).all()
    assert (shrunk.remaining < 1e-3).all()
    assert seen == [1, 2]
    assert (plain.shrinkage, shrunk.shrinkage) == (None, 0.01)
    assert shrunk.to_dict()["conditions"] == [1.0, 1e4]
    assert shrunk.to_dict()["k"] == 3


# ---- real images


def test_the_claims_hold_on_real_images(digits: Data) -> None:
    X = digits.X[:, digits.X.std(axis=0) > 0]  # corners of the scans are always white
    results = check_embeddings(X, 4)
    assert [(result.key, result.verdict) for result in results if result.verdict != "holds"] == []
    assert {result.instances for result in results} == {4}


def test_whitened_digits_are_nearer_to_isotropic(digits: Data) -> None:
    before, *after = isotropy_table(digits.X, shrinkages=(0.9, 0.5, 0.1))
    assert before.shrinkage is None
    assert [spread.shrinkage for spread in after] == [0.9, 0.5, 0.1]
    dimensions = [before.dimensions, *(spread.dimensions for spread in after)]
    assert dimensions == sorted(dimensions)
    assert after[-1].along_random < before.along_random
    assert all(spread.fidelity is not None and 0.7 < spread.fidelity < 0.95 for spread in after)
    assert after[1].to_dict()["of"] == 64


def test_isotropy_of_isotropic_and_of_flat_clouds() -> None:
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(20_000, 8))
    found = isotropy(cloud, rng)
    assert found.dimensions == pytest.approx(8, rel=0.01)
    assert found.condition == pytest.approx(1, abs=0.1)
    assert found.along_random == pytest.approx(1, abs=0.1)
    line = cloud * [1.0, *[0.001] * 7]
    assert isotropy(line, rng).dimensions == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("m", [4, 5, 40, 100])
def test_few_images_disprove_nothing(m: int) -> None:
    X = np.random.default_rng(m).normal(size=(m, 64))
    verdicts = {result.key: result.verdict for result in check_embeddings(X, 2)}
    assert verdicts == {
        "real cap": "holds",
        "real fidelity": "holds",
        "real dimensions": "cannot tell",
        "real condition": "cannot tell",
    }
    table = [spread.to_dict() for spread in isotropy_table(X, shrinkages=(0.5,))]
    assert all(np.isfinite([row["dimensions"], row["condition"], row["along_random"]]).all() for row in table)
    json.dumps(table, allow_nan=False)


def test_images_in_a_subspace_are_judged_inside_it() -> None:
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(400, 8)) * np.geomspace(1, 0.05, 8)
    flat = np.pad(cloud, ((0, 0), (0, 24)))
    assert isotropy(flat, rng).condition == pytest.approx(isotropy(cloud, rng).condition)
    assert {result.verdict for result in check_embeddings(flat, 4)} == {"holds"}


def test_equal_images_have_no_spread() -> None:
    found = isotropy(np.ones((5, 3)), np.random.default_rng(0)).to_dict()
    assert (found["dimensions"], found["condition"], found["along_random"]) == (None, None, None)


@pytest.mark.parametrize(("X", "words"), [(np.eye(3), "at least 4 images"), (np.ones((9, 3)), "are the same")])
def test_images_that_cannot_be_halved_are_refused(X: np.ndarray, words: str) -> None:
    for measure in (check_embeddings, isotropy_table):
        with pytest.raises(CCRError, match=words):
            measure(X)
