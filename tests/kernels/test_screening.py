"""Scores in bytes first: nothing is lost by it, whatever the rows, and little is looked at twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from scipy import sparse

from ccr import kernels
from ccr.coding import Panels, ThresholdRule
from ccr.geometry import unit_rows
from tests.kernels.kernel_tiers import TIERS, bytes_only, module, using

if kernels.TIER == "x86":
    from ccr.kernels.x86.rounding import (
        BLOCK,
        LONGEST_BYTES,
        ROW_MOST,
        SPREAD,
        largest_scale,
        noise,
        padded,
        padded_row,
        round_row,
    )
    from ccr.kernels.x86.tiles import SHIFT, TILE

KINDS = ("normal", "heavy", "axes", "equal", "two sizes", "few bits")


def rows_of(kind: str, count: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Unit rows, ordinary ones and such whose roundings are all alike."""
    signs = rng.choice([-1.0, 1.0], (count, d))
    made = {
        "normal": rng.normal(size=(count, d)),
        "heavy": rng.standard_t(1.5, size=(count, d)),
        "axes": np.eye(d)[rng.integers(0, d, count)],
        "equal": signs,
        "two sizes": signs * np.where(np.arange(d) % 16 == 0, 1.0, 30.5 / 62.0),
        "few bits": np.round(rng.normal(size=(count, d))) + 0.5,
    }
    return unit_rows(made[kind]).astype(np.float32)


def screened_entries(x: np.ndarray, dictionary: np.ndarray, threshold: float) -> tuple[int, int]:
    """How many entries of the rows are active, and how many scores were computed in floats to find them."""
    rule = ThresholdRule(threshold)
    criterion = rule.criterion()
    entries, looked = Panels(dictionary, rule, n_exact=0.0).examined(x, criterion)
    return len(entries.indices), looked


@njit
def bytes_of(row: np.ndarray, own: np.ndarray, weights: np.ndarray, out: np.ndarray) -> tuple[float, float]:
    """A row of a batch as bytes; its scale, and its product with the weights."""
    start = padded_row(row, len(own), np.zeros(len(own), np.float32))
    scale = largest_scale(start, len(own), ROW_MOST, np.empty(3, np.float32))
    return scale, round_row(start, len(own), scale, own, weights, np.int64(SHIFT), out)


@njit
def round_numbers(row: np.ndarray, own: np.ndarray, weights: np.ndarray, out: np.ndarray) -> float:
    """A row as bytes with the scale 1, which fits or not; its product with the weights."""
    start = padded_row(row, len(own), np.zeros(len(own), np.float32))
    return round_row(start, len(own), np.float32(1.0), own, weights, np.int64(0), out)


def sums_together(values: np.ndarray) -> np.ndarray:
    """The sums over what an integer of the tile adds up: whole rows, or halves of blocks, two numbers of each quad."""
    if TILE.dots:
        return values.sum(axis=-1)[..., None, None]
    full = np.zeros((*values.shape[:-1], -(-values.shape[-1] // BLOCK) * BLOCK), values.dtype)
    full[..., : values.shape[-1]] = values
    return full.reshape(*values.shape[:-1], -1, BLOCK // 4, 2, 2).sum(axis=(-3, -1))


@bytes_only
@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 2), (16, 8), (33, 25), (40, 512), (7, 700)])
def test_panels_hold_the_rows_as_columns(n: int, d: int) -> None:
    rows = unit_rows(np.random.default_rng(n).normal(size=(n, d))).astype(np.float32)
    rule = ThresholdRule(0.1)
    screened, plain = Panels(rows, rule, n_exact=0.0), Panels(rows, rule, n_exact=float(n))
    columns = plain.packed.panels.floats.transpose(0, 2, 1).reshape(-1, d)
    assert np.array_equal(columns[:n], rows)
    assert not columns[n:].any()
    screen, width = screened.packed.panels.screen, padded(d)
    found = screen.quads.transpose(0, 2, 1).copy().view(np.int8).reshape(-1, width).astype(np.int64)
    scales = np.repeat(screen.scales, screen.offsets.shape[1])[:n, None]
    moved = rows * scales + screen.concept_noise[:d]
    assert np.allclose(found[:n, :d], moved, atol=0.5001)
    assert not found[n:].any()
    assert not found[:, d:].any()
    assert np.sqrt(sums_together(found**2).max()) <= LONGEST_BYTES
    kind = np.int32 if TILE.dots else np.int16
    starts = screen.starts.transpose(0, 2, 1).copy().view(kind).reshape(len(found), -1, 1 if TILE.dots else 2)
    assert np.array_equal(starts, (-SHIFT * sums_together(found)).astype(kind))
    assert np.allclose(screen.offsets.ravel(), -found @ screen.row_noise, atol=1e-3)


@bytes_only
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 31, 512, 1000])
def test_bytes_of_rows(kind: str, d: int) -> None:
    rng = np.random.default_rng(d)
    own, weights = noise(d, 0)
    for row in rows_of(kind, 20, d, rng) * np.float32(rng.choice([1e-6, 1.0, 50.0])):
        out = np.zeros(padded(d) // 4, np.int32)
        scale, product = bytes_of(row, own, weights, out)
        found = out.view(np.uint8).astype(np.int64) - SHIFT
        assert np.allclose(found[:d], row * np.float64(scale) + own[:d], atol=0.5001)
        assert not found[d:].any()
        assert np.abs(found).max() <= ROW_MOST
        assert np.sqrt(sums_together(found**2).max()) <= LONGEST_BYTES
        assert product == pytest.approx(float(found @ weights), abs=1e-3)


@bytes_only
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_numbers_that_no_byte_can_hold_are_bytes_all_the_same_and_their_product_says_so(bad: float) -> None:
    """An integer made of NaN is undefined: it must not come to that."""
    own, weights = noise(40, 0)
    row, out = np.full(len(own), 0.5, np.float32), np.zeros(len(own) // 4, np.int32)
    row[3] = bad
    product = round_numbers(row, own, weights, out)
    rounded = out.view(np.int8)
    assert rounded[3] == (127 if bad > 0 else -128)
    assert (np.delete(rounded, 3) == np.rint(0.5 + np.delete(own, 3))).all()
    assert not np.isfinite(product) or abs(product) > 1e30


@bytes_only
@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
def test_errors_of_products_are_as_small_as_the_bound_says(left: str, right: str) -> None:
    """In units of their standard deviation: it is 1, and none comes near SPREAD."""
    d, rng = 256, np.random.default_rng(7)
    x, dictionary = rows_of(left, 300, d, rng), rows_of(right, 200, d, rng)
    own, other = noise(d, 0)
    scales, rounded = np.empty(len(x)), np.empty((len(x), d))
    for place, row in enumerate(x):
        out = np.zeros(d // 4, np.int32)
        scales[place], _ = bytes_of(row, own, other, out)
        rounded[place] = out.view(np.uint8).astype(np.float64) - SHIFT - own
    screen = Panels(dictionary, ThresholdRule(0.1), n_exact=0.0, seed=0).packed.panels.screen
    bytes_ = screen.quads.transpose(0, 2, 1).copy().view(np.int8).reshape(-1, d)[: len(dictionary)]
    concept_scales = np.repeat(screen.scales, screen.offsets.shape[1])[: len(dictionary)]
    exact = (x.astype(np.float64) @ dictionary.T) * scales[:, None] * concept_scales
    errors = rounded @ (bytes_ - other.astype(np.float64)).T - exact
    sigma = np.sqrt((np.linalg.norm(rounded, axis=1)[:, None] ** 2 + concept_scales**2) / 12.0)
    assert np.abs(errors / sigma).max() < SPREAD - 1.0
    if {left, right} <= {"normal", "heavy"}:
        assert np.std(errors / sigma) == pytest.approx(1.0, abs=0.1)


@bytes_only
def test_without_noise_errors_of_some_rows_would_all_point_one_way() -> None:
    """What the noise is for: the same rows, rounded as they are, miss the bound by far."""
    rng, d = np.random.default_rng(0), 256
    signs = rng.choice([-1.0, 1.0], d)
    row = signs * np.where(np.arange(d) % 16 == 0, 62.0, 30.5001)
    sigma = np.sqrt((row @ row) * 2.0 / 12.0) / np.linalg.norm(row)
    along = row / np.linalg.norm(row)
    assert abs((np.rint(row) - row) @ along) / sigma > SPREAD
    own = noise(d, 0)[0].astype(np.float64)
    assert abs((np.rint(row + own) - own - row) @ along) / sigma < SPREAD - 1.0


@given(
    st.integers(0, 10_000), st.sampled_from([(1, 1), (3, 9), (16, 8), (70, 24), (131, 65), (20, 300)]),
    st.floats(0.0, 1.2), st.booleans(), st.sampled_from([1e-20, 1e-3, 1.0, 40.0, 1e20]), st.integers(1, 200),
    st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(TIERS),
)  # fmt: skip
def test_screening_loses_nothing(
    seed: int,
    shape: tuple[int, int],
    bound: float,
    positive: bool,
    size: float,
    b: int,
    left: str,
    right: str,
    tier: str,
) -> None:
    """Entries found by bytes first are those of the product itself, whatever the rows: long ones, zeros, rows equal or
    opposite to a concept, rows whose roundings are alike."""
    (n, d), rng = shape, np.random.default_rng(seed)
    dictionary = rows_of(right, n, d, rng)
    x = (np.float64(size) * rows_of(left, b, d, rng)).astype(np.float32)
    x[0], x[-1] = 0.0, np.float32(size) * dictionary[-1] * rng.choice([-1, 1])
    rule = ThresholdRule(float(np.float32(bound * size)), positive)
    criterion = rule.criterion()
    exact = x.astype(np.float64) @ dictionary.T.astype(np.float64)
    clear = np.abs(np.abs(exact) - rule.threshold) > 1e-5 * size
    for looked in (0.0, float(n)):
        with using(tier):
            panels = Panels(dictionary, rule, looked)
            assert panels.screened == (kernels.SCREENS and looked == 0.0)
            pointers, indices, data = panels.entries(x, criterion)
        found = np.zeros((b, n), bool)
        found[np.repeat(np.arange(b), np.diff(pointers)), indices] = True
        wanted = rule.mask(torch.from_numpy(exact)).numpy()
        assert np.array_equal(found[clear], wanted[clear])
        assert np.allclose(data, exact[found], atol=1e-5 * size)
        assert all((np.diff(indices[start:stop]) > 0).all() for start, stop in itertools.pairwise(pointers))


@bytes_only
def test_few_scores_are_looked_at_twice() -> None:
    rng = np.random.default_rng(0)
    dictionary, x = rows_of("normal", 800, 512, rng), rows_of("normal", 300, 512, rng)
    active, looked = screened_entries(x, dictionary, 0.1)
    assert active == (np.abs(x.astype(np.float64) @ dictionary.T) >= 0.1).sum()
    assert active <= looked < 2 * active
    assert screened_entries(x, dictionary, 0.5) == (0, 0)


@pytest.mark.parametrize("tier", TIERS)
def test_a_dictionary_that_diverged_has_no_active_entries_in_its_rows(tier: str) -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(20, 32))).astype(np.float32)
    rule = ThresholdRule(0.0)
    criterion = rule.criterion()
    with using(tier):
        panels = Panels(rows, rule, n_exact=0.0)
        rows[3] = np.nan
        panels.pack()
        _, indices, data = panels.entries(rows[:3].copy(), criterion)
    assert 3 not in indices
    assert np.isfinite(data).all()


@pytest.mark.parametrize("tier", TIERS)
def test_rows_that_are_not_unit_are_not_screened(tier: str) -> None:
    rng = np.random.default_rng(0)
    rows, x = rng.normal(size=(20, 32)).astype(np.float32), rng.normal(size=(50, 32)).astype(np.float32)
    rule = ThresholdRule(9.0)
    with using(tier):
        panels = Panels(rows, rule, n_exact=0.0)
        assert not panels.screened
        pointers, indices, data = panels.entries(x, rule.criterion())
    scores = x @ rows.T
    expected = sparse.csr_matrix(np.where(rule.mask(torch.from_numpy(scores)).numpy(), scores, 0.0))
    assert np.array_equal(pointers, expected.indptr)
    assert np.array_equal(indices, expected.indices)
    assert np.allclose(data, expected.data, atol=1e-4)


@bytes_only
@pytest.mark.parametrize("d", [24, 65, 512])
def test_codes_do_not_depend_on_the_noise_to_the_bit(d: int) -> None:
    rng = np.random.default_rng(d)
    dictionary, x = rows_of("normal", 500, d, rng), rows_of("normal", 300, d, rng)
    rule = ThresholdRule(float(2.0 / np.sqrt(d)))
    criterion = rule.criterion()
    coded = [Panels(dictionary, rule, n_exact=0.0, seed=seed).examined(x, criterion) for seed in (1, 2, 3, None)]
    assert len({looked for _, looked in coded}) > 1  # the noise does change which scores are looked at
    for entries, _ in coded[1:]:
        assert all(np.array_equal(mine, first) for mine, first in zip(entries, coded[0][0], strict=True))


@bytes_only
@pytest.mark.parametrize("d", [1, 7, 24, 65, 512])
def test_a_score_does_not_depend_on_its_neighbours_to_the_bit(d: int) -> None:
    rng = np.random.default_rng(d)
    matrix, x = rng.normal(size=(40, d)).astype(np.float32), rng.normal(size=d).astype(np.float32)
    alone, rows = np.empty(40, np.float32), np.arange(40, dtype=np.int32)
    for row in rows:
        module("x86", "vectors").dot_rows(x, matrix, rows[row : row + 1], 0, 1, np.float32(1.0), alone[row : row + 1])
    for count in range(1, 40):
        chosen, out = rng.choice(rows, count, replace=False), np.empty(count, np.float32)
        module("x86", "vectors").dot_rows(x, matrix, chosen, 0, count, np.float32(1.0), out)
        assert np.array_equal(out, alone[chosen])


@bytes_only
@pytest.mark.parametrize("d", [24, 65, 512])
def test_a_row_alone_has_the_code_that_it_has_among_others_to_the_bit(d: int) -> None:
    rng = np.random.default_rng(d)
    dictionary, x = rows_of("normal", 500, d, rng), rows_of("normal", 20, d, rng)
    rule = ThresholdRule(float(2.0 / np.sqrt(d)))
    criterion = rule.criterion()
    panels = Panels(dictionary, rule, n_exact=0.0, seed=0)
    (pointers, indices, data), looked = panels.examined(x, criterion)
    alone = [panels.examined(x[row : row + 1], criterion) for row in range(len(x))]
    assert sum(own for _, own in alone) == looked  # the same scores could be active
    assert np.array_equal(np.cumsum([len(codes.data) for codes, _ in alone]), pointers[1:])
    assert np.array_equal(np.concatenate([codes.indices for codes, _ in alone]), indices)
    assert np.array_equal(np.concatenate([codes.data for codes, _ in alone]), data)


@bytes_only
def test_a_large_dictionary_gives_the_scores_of_its_parts_to_the_bit() -> None:
    """Scores with more concepts than the cache holds are computed concept by concept, not row by row."""
    from ccr.kernels.x86.score import CACHED

    rng, d, rule = np.random.default_rng(0), 300, ThresholdRule(0.15)
    criterion = rule.criterion()
    n = CACHED // d + 40
    x, dictionary = rows_of("normal", 300, d, rng), rows_of("normal", n, d, rng)
    parts = [dictionary[: n // 2], dictionary[n // 2 :]]
    assert dictionary.size > CACHED >= max(part.size for part in parts)
    whole, *halves = (
        sparse.csr_matrix((found.data, found.indices, found.pointers), shape=(len(x), len(rows)))
        for rows in (dictionary, *parts)
        for found in [Panels(rows, rule, n_exact=0.0).entries(x, criterion)]
    )
    assert whole.nnz > 1000
    np.testing.assert_array_equal(whole.toarray(), sparse.hstack(halves).toarray())


@bytes_only
def test_rows_built_against_a_known_noise() -> None:
    """Who knows the noise can lose an active concept, because then all roundings point one way; with a fresh noise it
    is found. In a prediction the noise is always a fresh one."""
    d, rng, known = 512, np.random.default_rng(0), 5
    dictionary = rows_of("equal", 40, d, rng)
    moved = np.sign(dictionary[0]) * 0.49 - noise(d, known)[0][:d]  # the noise takes each number just below one half
    moved[7] = np.sign(dictionary[0, 7]) * (ROW_MOST - 1.0)  # the largest number makes the scale 1
    x = unit_rows(moved[None]).astype(np.float32)
    score = float((x @ dictionary[0])[0])
    rule = ThresholdRule(0.9 * score)
    criterion = rule.criterion()
    assert score > 0.1

    def is_seen(seed: int | None) -> bool:
        return 0 in Panels(dictionary, rule, n_exact=0.0, seed=seed).entries(x, criterion).indices

    assert not is_seen(known)
    assert all(is_seen(seed) for seed in (6, 7, None, None))


@bytes_only
def test_every_encoder_of_a_prediction_has_a_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a model folder or a source file holds tells the noise, so no row can be built against it."""
    packed, made = kernels.PackedConcepts, []

    def noted(*arguments: object, **options: object) -> object:
        made.append(packed(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(kernels, "PackedConcepts", noted)
    dictionary = rows_of("equal", 400, 64, np.random.default_rng(0))
    for _ in range(3):
        ThresholdRule(0.3).encoder(dictionary)
    assert len({one.panels.screen.row_noise.tobytes() for one in made}) == 3
