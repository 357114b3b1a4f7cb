from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from ccr.errors import CCRError
from ccr.geometry import centered, coherence, disperse, fit_cone, orthogonalize, project_to_cap, unit_rows, widen

SHAPES = st.tuples(st.integers(1, 12), st.integers(2, 16), st.integers(0, 10**6))


def rows(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def cone(n: int, d: int, seed: int, width: float = 0.4) -> np.ndarray:
    """Unit rows around one axis, as raw CLIP texts are."""
    rng = np.random.default_rng(seed)
    axis = unit_rows(rng.normal(size=(1, d)))
    return unit_rows(axis + width * unit_rows(rng.normal(size=(n, d))))


# Unit rows and centring


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_unit_rows_at_any_scale(scale: float) -> None:
    given_rows = rows(5, 7, 0)
    assert np.allclose(unit_rows(given_rows * scale), given_rows / np.linalg.norm(given_rows, axis=1, keepdims=True))


def test_unit_rows_keeps_kind_type_and_argument() -> None:
    array = rows(3, 4, 0).astype(np.float32)
    before = array.copy()
    assert unit_rows(array).dtype == np.float32
    assert unit_rows(torch.from_numpy(array)).dtype == torch.float32
    assert np.array_equal(array, before)
    assert not unit_rows(np.zeros((2, 3))).any()


def test_centered_is_the_direction_from_the_mean() -> None:
    array, mean = rows(4, 3, 1), np.array([1.0, 2.0, 3.0])
    assert np.allclose(centered(array, mean), unit_rows(array - mean))


def test_a_vector_instead_of_rows_is_refused() -> None:
    with pytest.raises(CCRError, match="one item per row"):
        unit_rows(np.ones(3))


# Coherence


@given(SHAPES)
def test_coherence_is_the_off_diagonal_of_the_correlations(shape: tuple[int, int, int]) -> None:
    array = rows(*shape)
    found = coherence(array)
    unit = array / np.linalg.norm(array, axis=1, keepdims=True)
    off = np.abs(unit @ unit.T)[~np.eye(len(array), dtype=bool)]
    assert found.mean == pytest.approx(off.mean() if off.size else 0.0)
    assert found.max == pytest.approx(off.max() if off.size else 0.0)


# Angular dispersion


@given(SHAPES, st.floats(0.3, 1.5))
def test_disperse_scales_angles_and_keeps_directions(shape: tuple[int, int, int], factor: float) -> None:
    array = cone(*shape)
    axis = array.mean(axis=0) / np.linalg.norm(array.mean(axis=0))
    spread = disperse(array, factor)
    assert np.allclose(np.linalg.norm(spread, axis=1), 1.0)

    def polar(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = unit @ axis
        across = unit - along[:, None] * axis
        return np.arctan2(np.linalg.norm(across, axis=1), along), across

    angle, across = polar(array)
    new_angle, new_across = polar(spread)
    assert np.allclose(new_angle, factor * angle, atol=1e-6)
    clear = angle > 1e-4
    assert np.allclose(unit_rows(new_across)[clear], unit_rows(across)[clear], atol=1e-6)


def test_automatic_factor_brings_the_farthest_row_to_a_right_angle() -> None:
    array = cone(40, 32, 3)
    spread = disperse(array)
    axis = array.mean(axis=0) / np.linalg.norm(array.mean(axis=0))
    assert (spread @ axis).min() == pytest.approx(0.0, abs=1e-9)
    assert coherence(spread).mean < coherence(array).mean


def test_automatic_factor_never_makes_it_worse() -> None:
    orthonormal = np.linalg.qr(rows(8, 8, 0))[0]
    assert np.allclose(disperse(orthonormal), orthonormal)
    scattered = unit_rows(rows(30, 8, 1))
    assert np.allclose(disperse(scattered), scattered)


def test_degenerate_dispersion() -> None:
    same = np.tile(unit_rows(rows(1, 6, 0)), (4, 1))
    assert np.allclose(disperse(same), same)
    assert np.allclose(disperse(same[:1]), same[:1])
    pair = np.vstack([cone(5, 6, 0), cone(5, 6, 0)[:1]])
    spread = disperse(pair)
    assert np.allclose(spread[0], spread[5])
    with pytest.raises(CCRError, match="mean is zero"):
        disperse(np.array([[1.0, 0.0], [-1.0, 0.0]]))


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf, 40.0, "2"])
def test_impossible_factors_are_refused(factor: float) -> None:
    with pytest.raises(CCRError, match="factor"):
        disperse(cone(5, 6, 0), factor)


def test_a_later_text_is_widened_like_the_others() -> None:
    array = cone(12, 8, 4)
    fitted = fit_cone(torch.from_numpy(array))
    assert np.allclose(widen(torch.from_numpy(array[3:4]), fitted).numpy(), disperse(array)[3:4])


# Symmetric dispersion


@given(SHAPES)
def test_full_strength_is_the_nearest_orthonormal_matrix(shape: tuple[int, int, int]) -> None:
    n, d, seed = shape
    n = min(n, d)
    array = unit_rows(rows(n, d, seed))
    u, s, vt = np.linalg.svd(array, full_matrices=False)
    if s.min() < 1e-3:
        return
    nearest = u @ vt  # the polar factor; SciPy's and the textbook's answer
    assert np.allclose(orthogonalize(array), nearest, atol=1e-8)
    other = np.linalg.qr(rows(d, d, seed + 1))[0][:n]
    assert np.linalg.norm(array - nearest) <= np.linalg.norm(array - other) + 1e-9


@given(SHAPES, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_strength_goes_there_by_degrees(shape: tuple[int, int, int], one: float, two: float) -> None:
    array = cone(*shape)
    less, more = sorted((one, two))
    weak, strong = orthogonalize(array, less), orthogonalize(array, more)
    assert np.allclose(np.linalg.norm(strong, axis=1), 1.0)
    own = lambda spread: float((spread * array).sum(axis=1).mean())  # noqa: E731
    assert own(strong) <= own(weak) + 1e-6


def test_strength_zero_changes_nothing_and_coherence_falls() -> None:
    array = cone(20, 32, 5)
    assert np.allclose(orthogonalize(array, 0.0), array)
    found = [coherence(orthogonalize(array, strength)).mean for strength in (0.0, 0.2, 0.5, 0.8, 0.95, 1.0)]
    assert all(later < earlier for earlier, later in itertools.pairwise(found))
    assert found[-1] < 1e-9


def test_more_rows_than_dimensions_duplicates_and_single_rows() -> None:
    many = cone(50, 8, 6)
    spread = orthogonalize(many)
    assert np.allclose(np.linalg.norm(spread, axis=1), 1.0)
    assert coherence(spread).mean < coherence(many).mean
    twins = np.vstack([cone(4, 8, 7), cone(4, 8, 7)[:1]])
    assert np.allclose(orthogonalize(twins)[0], orthogonalize(twins)[4])
    assert np.allclose(orthogonalize(many[:1]), many[:1])


@pytest.mark.parametrize("strength", [-0.1, 1.1, math.nan, "0.5", None])
def test_impossible_strengths_are_refused(strength: float) -> None:
    with pytest.raises(CCRError, match="strength must be in"):
        orthogonalize(cone(5, 6, 0), strength)


# Projections


@given(SHAPES, st.floats(0.0, 2.0))
def test_cap_projection_is_feasible_and_idempotent(shape: tuple[int, int, int], radius: float) -> None:
    vectors, centers = rows(*shape), unit_rows(rows(shape[0], shape[1], shape[2] + 1))
    found = project_to_cap(vectors, centers, radius)
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-12)
    assert (np.linalg.norm(found - centers, axis=1) <= radius + 1e-12).all()
    assert np.allclose(project_to_cap(found, centers, radius), found, atol=1e-9)


@pytest.mark.parametrize("radius", [0.05, 0.3, 1.0, 1.7])
@pytest.mark.parametrize("seed", range(4))
def test_cap_projection_against_an_optimiser(radius: float, seed: int) -> None:
    vector, center = rows(1, 5, seed), unit_rows(rows(1, 5, seed + 50))
    if seed == 3:
        vector = -center + 0.2 * rows(1, 5, 9)
    found = project_to_cap(vector, center, radius)
    target = vector[0] / np.linalg.norm(vector[0])
    best = math.inf
    for start in range(6):
        result = minimize(
            lambda p: ((p - target) ** 2).sum(),
            project_to_cap(rows(1, 5, start), center, radius)[0],
            constraints=[
                {"type": "eq", "fun": lambda p: p @ p - 1.0},
                {"type": "ineq", "fun": lambda p: radius**2 - ((p - center[0]) ** 2).sum()},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        if result.success:
            best = min(best, float(result.fun))
    assert ((found[0] - target) ** 2).sum() == pytest.approx(best, abs=1e-6)


def test_cap_projection_cases_without_a_direction() -> None:
    centers = unit_rows(rows(3, 6, 0))
    assert np.allclose(project_to_cap(np.zeros((3, 6)), centers, 0.5), centers)
    opposite = project_to_cap(-centers, centers, 0.5)
    assert np.allclose(np.linalg.norm(opposite - centers, axis=1), 0.5)
    assert np.array_equal(opposite, project_to_cap(-centers, centers, 0.5))
    assert np.allclose(project_to_cap(-centers, centers, 2.0), -centers)
    assert np.array_equal(project_to_cap(rows(3, 6, 1), centers, 0.0), centers)
    line = np.array([[1.0]])
    assert project_to_cap(-line, line, 1.0) == line
    assert project_to_cap(-line, line, 2.0) == -line


@pytest.mark.parametrize("radius", [1e-4, 1e-3, 1e-2, 0.1, 1.0])
def test_cap_projection_keeps_its_digits_in_float32(radius: float) -> None:
    centers = unit_rows(rows(50, 64, 0)).astype(np.float32)
    found = project_to_cap((centers + rows(50, 64, 1)).astype(np.float32), centers, radius)
    distance = np.linalg.norm(found.astype(np.float64) - centers, axis=1)
    assert np.allclose(distance, radius, rtol=1e-3 if radius < 1e-3 else 1e-4)


@pytest.mark.parametrize("radius", [-0.1, 2.1, math.nan])
def test_radius_outside_its_range_is_refused(radius: float) -> None:
    with pytest.raises(CCRError, match=r"radius must be in \[0, 2\]"):
        project_to_cap(rows(2, 3, 0), unit_rows(rows(2, 3, 1)), radius)


def test_centers_are_one_for_each_row_or_one_for_all() -> None:
    vectors, center = rows(4, 3, 0), unit_rows(rows(1, 3, 1))
    apart = project_to_cap(vectors, np.repeat(center, 4, axis=0), 0.1)
    assert np.allclose(project_to_cap(vectors, center, 0.1), apart)
    assert np.allclose(project_to_cap(vectors, center[0], 0.1), apart)
    for wrong in (np.eye(2), rows(3, 3, 2), rows(4, 2, 2), rows(4, 1, 2)):
        with pytest.raises(CCRError, match="a center for each row"):
            project_to_cap(vectors, wrong, 0.1)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rows_of_half_precision_are_dispersed_as_those_of_single_are(kind: torch.dtype) -> None:
    narrow = torch.from_numpy(rows(40, 256, 3) + 2.0).to(kind)  # a cone, as texts are
    for strength in (0.9, 1.0):
        found = orthogonalize(narrow, strength)
        assert found.dtype == kind
        assert torch.allclose(found.float(), orthogonalize(narrow.float(), strength), atol=2e-2)


@pytest.mark.parametrize("kind", [">f4", ">f8", np.longdouble])
def test_floats_that_torch_does_not_have_become_float64(kind: Any) -> None:
    given = rows(5, 4, 0).astype(np.float32)
    found = unit_rows(given.astype(kind))
    assert found.dtype == np.float64
    assert np.allclose(found, unit_rows(given), atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_centers_may_be_frozen_or_reversed() -> None:
    centers = unit_rows(rows(6, 5, 1))
    frozen = centers.copy()
    frozen.setflags(write=False)
    wanted = project_to_cap(centers[::-1].copy(), centers, 0.1)
    assert np.array_equal(project_to_cap(centers[::-1].copy(), frozen, 0.1), wanted)
    assert np.array_equal(project_to_cap(centers[::-1].copy(), centers[::-1][::-1], 0.1), wanted)
    mean = centers.mean(axis=0)[::-1]
    assert np.array_equal(centered(centers, mean), centered(centers, mean.copy()))
