"""The testbed, the pursuit, the losses and the lemmas: oracles, properties, degenerate and bad input."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr.errors import CCRError
from ccr_lab.theory import Testbed, estimator_loss, refine_worlds
from ccr_lab.theory.pursuit import (
    believed_codes,
    drawn_loss,
    eps_limit,
    expected_loss,
    information_gain,
    ip_omp,
    loss_bound,
    rotated,
    surrogate,
    surrogate_codes,
    top_k,
)
from ccr_lab.theory.refinement import contraction, into_ball, one_sample_limit, rate_limit, spectral_event, spectrum
from ccr_lab.theory.testbed import orthonormal_rows, row_distance

FEW = settings(max_examples=30, deadline=None)


@st.composite
def beds(draw, *, least_k: int = 1, spare: int = 0, widest: int = 12, square: bool = False) -> Testbed:
    d = draw(st.integers(least_k + spare, widest))
    n = d if square else draw(st.integers(least_k + spare, d))
    k = draw(st.integers(least_k, n - spare))
    gamma = draw(st.floats(0.1, 2.0))
    return Testbed(n, d, k, gamma=gamma, Gamma=gamma * draw(st.floats(1.0, 4.0)))


seeds = st.integers(0, 2**32 - 1)


# ---- the generative model


@FEW
@given(beds(), seeds)
def test_worlds_obey_the_model(bed: Testbed, seed: int) -> None:
    worlds = bed.draw(worlds=3, samples=4, random_state=seed)
    np.testing.assert_allclose(
        worlds.truth @ worlds.truth.swapaxes(1, 2), np.tile(np.eye(bed.n), (3, 1, 1)), atol=1e-12
    )
    assert (worlds.support.sum(axis=2) == bed.k).all()
    sizes = np.abs(worlds.beta[worlds.support])
    assert sizes.min() >= bed.gamma
    assert sizes.max() <= bed.Gamma
    np.testing.assert_allclose(worlds.X @ worlds.truth.swapaxes(1, 2), worlds.beta, atol=1e-12)


def test_moments_signs_and_supports_are_those_stated() -> None:
    bed = Testbed(5, 5, 2)
    beta = bed.draw(samples=40_000, random_state=0).beta[0]
    values = beta[beta != 0]
    assert abs(values.mean()) < 0.01
    assert abs(values.var() - bed.variance) < 0.01
    np.testing.assert_allclose((beta != 0).mean(axis=0), 2 / 5, atol=0.01)
    positive = Testbed(5, 5, 2, signs="positive")
    values = positive.draw(samples=40_000).beta
    assert (values >= 0).all()
    assert abs(values[values > 0].var() - positive.variance) < 0.01


def test_same_seed_same_world_and_another_seed_another() -> None:
    bed = Testbed(4, 6, 2)
    first, again, other = (bed.draw(worlds=2, samples=3, random_state=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.start(0.1, random_state=3), again.start(0.1, random_state=3))
    assert np.abs(first.X - other.X).max() > 1e-3


def test_start_errors_are_uniform_in_the_ball() -> None:
    worlds = Testbed(8, 8, 2).draw(worlds=500)
    radii = np.linalg.norm(worlds.start(0.3) - worlds.truth, axis=2).ravel() / 0.3
    assert radii.max() <= 1 + 1e-12
    assert abs(np.mean(radii**8) - 0.5) < 0.02  # |e|^d is uniform on [0, 1]
    on_sphere = np.linalg.norm(worlds.start(0.3, where="sphere") - worlds.truth, axis=2)
    np.testing.assert_allclose(on_sphere, 0.3)


def test_orthonormal_rows_have_no_preferred_sign() -> None:
    rows = orthonormal_rows(1, 1, worlds=400)
    assert 0.4 < (rows > 0).mean() < 0.6


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"n": 3, "d": 2, "k": 1}, "n must"),
        ({"n": 0, "d": 2, "k": 1}, "n must"),
        ({"n": 2, "d": 2, "k": 3}, "k must"),
        ({"n": 2, "d": 2, "k": 0}, "k must"),
        ({"n": 2, "d": 2, "k": 1, "gamma": 2.0, "Gamma": 1.0}, "gamma"),
        ({"n": 2, "d": 2, "k": 1, "gamma": 0.0}, "gamma"),
        ({"n": 2, "d": 2, "k": 1, "gamma": float("nan")}, "gamma"),
        ({"n": 2, "d": 2, "k": 1, "signs": "minus"}, "signs"),
    ],
)
def test_impossible_testbeds_are_refused(bad: dict, word: str) -> None:
    with pytest.raises(CCRError, match=word):
        Testbed(**bad).draw()


def test_bad_counts_radii_lengths_and_eps_are_refused() -> None:
    worlds = Testbed(3, 4, 2).draw()
    for call in (
        lambda: Testbed(3, 4, 2).draw(worlds=0),
        lambda: Testbed(3, 4, 2).draw(samples=0),
        lambda: worlds.start(-0.1),
        lambda: ip_omp(worlds.truth, worlds.X[:, 0], length=4),
        lambda: top_k(worlds.truth, worlds.X, length=0),
        lambda: rotated(worlds, 2.1),
        lambda: refine_worlds(worlds, worlds.truth, radius=0.1, rate=-1.0, steps=1),
    ):
        with pytest.raises(CCRError):
            call()


# ---- pursuit


def _brute_pursuit(dictionary: np.ndarray, x: np.ndarray, length: int) -> list[int]:
    """IP-OMP with explicit projectors."""
    order: list[int] = []
    for _ in range(length):
        rows = dictionary[order]
        P = np.eye(len(x)) - (np.linalg.pinv(rows) @ rows if order else 0)
        free = [i for i in range(len(dictionary)) if i not in order]
        scores = [abs((P @ dictionary[i]) @ (P @ x)) / np.linalg.norm(P @ dictionary[i]) for i in free]
        order.append(free[int(np.argmax(scores))])
    return order


@FEW
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(0, 4))
def test_ip_omp_is_the_projection_formula_and_information_pursuit(seed: int, n: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    d, length = n + extra, min(n, 4)
    dictionary, x = rng.standard_normal((1, n, d)), rng.standard_normal((1, d))
    order = ip_omp(dictionary, x, length=length).order[0].tolist()
    assert order == _brute_pursuit(dictionary[0], x[0], length)
    for step in range(length - (length == d)):
        gains = information_gain(dictionary, x, np.array([order[:step]], dtype=int))[0]
        assert int(gains.argmax()) == order[step]


def test_conditional_information_is_the_determinant_formula() -> None:
    rng = np.random.default_rng(0)
    dictionary, x, asked = rng.standard_normal((1, 5, 7)), rng.standard_normal((1, 7)), [3, 1]
    joint = np.vstack([dictionary[0], x])
    covariance = joint @ joint.T

    def entropy(*names: int) -> float:
        return 0.5 * np.linalg.slogdet(covariance[np.ix_(names, names)])[1]

    gains = information_gain(dictionary, x, np.array([asked]))[0]
    for i in (0, 2, 4):
        expected = entropy(i, *asked) + entropy(5, *asked) - entropy(*asked) - entropy(i, 5, *asked)
        assert gains[i] == pytest.approx(expected, rel=1e-9)
    assert np.isneginf(gains[[1, 3]]).all()


def test_omp_would_not_be_information_pursuit() -> None:
    """The check can fail: without dividing by |P d_i| a long row is asked though it says less."""
    dictionary, x = np.array([[[1.0, 0.0], [6.0, 8.0]]]), np.array([[1.0, 0.2]])
    assert np.abs(dictionary[0] @ x[0]).argmax() == 1
    assert ip_omp(dictionary, x, length=1).order[0, 0] == 0
    assert information_gain(dictionary, x, np.empty((1, 0), dtype=int))[0].argmax() == 0


def test_pursuit_stops_when_the_target_is_explained() -> None:
    pursuit = ip_omp(np.eye(4)[None], np.array([[0.0, 2.0, 0.0, 0.0]]), length=3)
    assert pursuit.order[0].tolist() == [1, -1, -1]
    np.testing.assert_array_equal(pursuit.dense(4), [[0.0, 2.0, 0.0, 0.0]])


def test_a_duplicate_concept_is_never_asked_twice() -> None:
    rows = np.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    order = ip_omp(rows, np.array([[2.0, 1.0, 1.0]]), length=3).order[0]
    assert sorted(order.tolist()) in ([-1, 0, 2], [-1, 1, 2])


@FEW
@given(beds(), seeds)
def test_orthonormal_dictionaries_make_ip_omp_a_top_k(bed: Testbed, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dictionary, x = orthonormal_rows(bed.n, bed.d, worlds=4, random_state=rng), rng.standard_normal((4, bed.d))
    codes = ip_omp(dictionary, x, length=bed.k).dense(bed.n)
    chosen = top_k(dictionary, x[:, None], length=bed.k)[:, 0]
    scores = (dictionary @ x[:, :, None])[:, :, 0]
    np.testing.assert_allclose(codes, np.where(chosen, scores, 0.0), atol=1e-10)
    best = max(itertools.combinations(range(bed.n), bed.k), key=lambda T: np.abs(scores[0, list(T)]).sum())
    assert set(best) == set(np.flatnonzero(chosen[0]))


@FEW
@given(beds(), seeds)
def test_the_truth_finds_the_support_and_predicts_perfectly(bed: Testbed, seed: int) -> None:
    worlds = bed.draw(worlds=3, samples=2, random_state=seed)
    codes = believed_codes(worlds, worlds.truth)
    np.testing.assert_array_equal(codes != 0, worlds.support)
    np.testing.assert_allclose(codes, worlds.beta, atol=1e-10)
    assert (estimator_loss(worlds, worlds.truth) < 1e-20).all()


# ---- losses


@FEW
@given(beds(), seeds)
def test_closed_form_of_method_2_is_the_general_loss(bed: Testbed, seed: int) -> None:
    worlds = bed.draw(worlds=2, samples=3, random_state=seed)
    start = worlds.start(0.7, random_state=seed)
    np.testing.assert_allclose(
        surrogate(start, worlds.X, worlds.beta, length=bed.k).loss,
        expected_loss(worlds, surrogate_codes(worlds, start)),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("codes", [believed_codes, surrogate_codes])
def test_closed_form_losses_agree_with_drawing_z(codes) -> None:
    worlds = Testbed(6, 9, 3).draw(worlds=3, samples=2, random_state=1)
    chosen = codes(worlds, worlds.start(0.6, random_state=1))
    exact = expected_loss(worlds, chosen)
    drawn = drawn_loss(worlds, chosen, draws=40_000, random_state=2)
    np.testing.assert_allclose(drawn, exact, rtol=5 * np.sqrt(2 / 40_000))
    assert (exact > 0.01).all()


def test_answers_by_the_believed_features_hide_every_error() -> None:
    """The trap of Information pursuit (docs/method.md): with n = d and k = n any dictionary would look perfect."""
    worlds = Testbed(4, 4, 4).draw(worlds=5)
    start = worlds.start(0.5)
    codes = believed_codes(worlds, start)
    assert (expected_loss(worlds, codes, answered_by=start) < 1e-20).all()
    assert (expected_loss(worlds, codes) > 1e-3).all()


@FEW
@given(beds(), seeds)
def test_gradient_is_the_finite_difference(bed: Testbed, seed: int) -> None:
    rng = np.random.default_rng(seed)
    worlds = bed.draw(worlds=1, samples=3, random_state=rng)
    start, X = worlds.start(0.8, random_state=rng), worlds.X
    slope, direction = surrogate(start, X, worlds.beta, length=bed.k).gradient, rng.standard_normal(start.shape)
    up, down = (surrogate(start + h * direction, X, worlds.beta, length=bed.k) for h in (1e-6, -1e-6))
    if not np.array_equal(up.selected, down.selected):
        return  # on the border between two selections there is no gradient
    scale = max(1.0, np.linalg.norm(slope) * np.linalg.norm(direction))
    assert abs((up.loss - down.loss)[0] / 2e-6 - (slope * direction).sum()) < 1e-6 * scale


@FEW
@given(beds(), seeds)
def test_many_worlds_are_refined_as_algorithm_1_refines_one(bed: Testbed, seed: int) -> None:
    rng = np.random.default_rng(seed)
    worlds = bed.draw(worlds=3, samples=4, random_state=rng)
    radius, rate = rng.uniform(0.05, 0.5, 3), rng.uniform(0.01, 0.3, 3) / bed.Gamma**2
    start = worlds.start(2 * radius, random_state=rng)
    path = refine_worlds(worlds, start, radius=radius, rate=rate, steps=5)
    for w in range(3):
        losses, dictionary = refined(worlds.X[w], worlds.beta[w], start[w], bed.k, radius[w], rate[w], steps=5)
        np.testing.assert_allclose(path.losses[:, w], losses, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(path.dictionary[w], dictionary, atol=1e-9)


def refined(X, beta, start, length, radius, rate, *, steps):
    """Algorithm 1 in one world, sample by sample and row by row: the losses, and the last dictionary."""
    losses, current = [], start.copy()
    for _ in range(steps + 1):
        losses.append(0.0)
        slope = np.zeros_like(current)
        for x, b in zip(X, beta, strict=True):
            scores = current @ x
            for row, score in enumerate(scores):
                chosen = row in np.argsort(-np.abs(scores))[:length]
                losses[-1] += ((score - b[row]) ** 2 if chosen else b[row] ** 2) / len(X)
                slope[row] += 2 / len(X) * (score - b[row]) * x if chosen else 0.0
        last, current = current, current - rate * slope
        for row, center in enumerate(start):
            move = current[row] - center
            current[row] = center + move * min(1.0, radius / max(np.linalg.norm(move), 1e-300))
    return losses, last


@given(st.integers(0, 99), st.sampled_from([0.0, 0.5, 3.0]))
def test_into_ball_gives_the_nearest_move_of_the_ball(seed: int, radius: float) -> None:
    moves = np.random.default_rng(seed).standard_normal((2, 5, 3))
    found = into_ball(moves, np.float64(radius))
    assert (np.linalg.norm(found, axis=-1) <= radius + 1e-12).all()
    # The nearest point of a ball is at distance max(0, |move| - radius).
    gap = np.maximum(0.0, np.linalg.norm(moves, axis=-1) - radius)
    np.testing.assert_allclose(np.linalg.norm(found - moves, axis=-1), gap, atol=1e-12)


# ---- lemmas and theorems as properties


@FEW
@given(beds(least_k=2), st.floats(0, np.pi), seeds)
def test_rotation_is_orthonormal_at_distance_two_sine_half(bed: Testbed, theta: float, seed: int) -> None:
    worlds = bed.draw(random_state=seed)
    turned = rotated(worlds, 2 * np.sin(theta / 2))
    np.testing.assert_allclose(turned[0] @ turned[0].T, np.eye(bed.n), atol=1e-12)
    assert row_distance(turned, worlds.truth)[0] == pytest.approx(2 * np.sin(theta / 2), abs=1e-12)
    moved = np.linalg.norm(turned[0] - worlds.truth[0], axis=1) > 0
    if theta > 1e-3:
        assert moved.sum() == bed.k - bed.k % 2
    assert not (moved & ~worlds.support[0, 0]).any()


@FEW
@given(beds(least_k=2), st.floats(0.01, 0.999), seeds)
def test_necessity_bound_and_exact_loss(bed: Testbed, share: float, seed: int) -> None:
    worlds, eps = bed.draw(random_state=seed), share * eps_limit(bed)
    turned = rotated(worlds, eps)
    loss = estimator_loss(worlds, turned)[0]
    assert loss >= loss_bound(bed, eps)
    paired = np.linalg.norm(turned[0] - worlds.truth[0], axis=1) > 0
    assert loss == pytest.approx(eps**2 * (worlds.beta[0, 0, paired] ** 2).sum(), rel=1e-7)


def test_necessity_is_empty_for_one_concept() -> None:
    worlds = Testbed(1, 1, 1).draw()
    np.testing.assert_array_equal(rotated(worlds, 0.1), worlds.truth)
    assert loss_bound(worlds.testbed, 0.1) == 0


@FEW
@given(beds(spare=1), seeds)
def test_support_is_found_below_the_bound_for_the_worst_errors(bed: Testbed, seed: int) -> None:
    worlds = bed.draw(worlds=3, random_state=seed)
    x = worlds.X
    along = x / np.linalg.norm(x, axis=2, keepdims=True)
    sign = np.where(worlds.support[:, 0], -np.sign(worlds.beta[:, 0]), 1.0)[:, :, None]
    within = worlds.truth + 0.999 * bed.support_radius * sign * along
    np.testing.assert_array_equal(top_k(within, x, length=bed.k), worlds.support)
    smallest = np.abs(np.where(worlds.support[:, 0], worlds.beta[:, 0], np.inf)).min(axis=1)
    enough = 1.01 * smallest / (2 * np.linalg.norm(x[:, 0], axis=1))
    beyond = worlds.truth + enough[:, None, None] * sign * along
    assert (top_k(beyond, x, length=bed.k) != worlds.support).any(axis=(1, 2)).all()


@FEW
@given(beds(), st.floats(0.01, 0.49), seeds)
def test_one_sample_contracts_exactly_and_goes_to_its_limit(bed: Testbed, share: float, seed: int) -> None:
    worlds = bed.draw(worlds=2, random_state=seed)
    start = worlds.start(bed.theorem_radius, random_state=seed)
    radius, power = row_distance(start, worlds.truth), (worlds.beta[:, 0] ** 2).sum(axis=1)
    path = refine_worlds(worlds, start, radius=radius, rate=share / power, steps=4)
    np.testing.assert_allclose(
        path.losses[1:], (1 - 2 * share) ** 2 * path.losses[:-1], rtol=1e-6, atol=1e-9 * path.losses[0].max()
    )
    outside = ~worlds.support[:, 0]
    np.testing.assert_array_equal(path.dictionary[outside], start[outside])
    last = refine_worlds(worlds, start, radius=radius, rate=0.4 / power, steps=40).dictionary
    np.testing.assert_allclose(last, one_sample_limit(worlds, start), atol=1e-12)


@FEW
@given(st.floats(-1, 1), st.floats(0.001, 1), st.floats(1, 5), st.sampled_from([-1, 1]), seeds)
def test_position_lemma_needs_the_absolute_value(a: float, b: float, stretch: float, side: int, seed: int) -> None:
    v = np.random.default_rng(seed).standard_normal(4)
    a, b = a * b, side * b
    c = b * stretch
    assert np.linalg.norm((c - a) * v) >= np.linalg.norm((b - a) * v) - 1e-12
    a, b, c = -3 * abs(c), -abs(b), -abs(c)  # |c| >= |b| >= a and bc > 0, as printed
    if abs(c) > abs(b):
        assert np.linalg.norm((c - a) * v) < np.linalg.norm((b - a) * v)


@FEW
@given(beds(least_k=2, square=True, widest=6), seeds)
def test_many_samples_contract_where_the_event_holds(bed: Testbed, seed: int) -> None:
    worlds = bed.draw(worlds=4, samples=600, random_state=seed)
    worlds = worlds.take(spectral_event(bed, spectrum(worlds)))
    if not len(worlds):
        return
    rate = np.full(len(worlds), 0.99 * rate_limit(bed))
    start = worlds.start(bed.theorem_radius, random_state=seed)
    path = refine_worlds(worlds, start, radius=row_distance(start, worlds.truth), rate=rate, steps=3)
    assert (path.distances[1:] <= contraction(bed, rate) * path.distances[:-1] * (1 + 1e-12)).all()
    power = (worlds.X**2).sum(axis=2).mean(axis=1)
    assert (path.losses <= bed.k * power * path.distances**2).all()


def test_spectrum_is_that_of_the_samples_themselves() -> None:
    bed = Testbed(6, 6, 3)
    worlds = bed.draw(worlds=2, samples=50, random_state=0)
    values = spectrum(worlds)
    for w in range(2):
        X, support = worlds.X[w], worlds.support[w]
        all_ = [np.linalg.eigvalsh(X[support[:, i]].T @ X[support[:, i]] / 50) for i in range(6)]
        assert values.lowest[w] == pytest.approx(min(e[0] for e in all_))
        assert values.highest[w] == pytest.approx(max(e[-1] for e in all_))


def test_event_bounds_are_those_of_method_2() -> None:
    bed = Testbed(10, 10, 2, gamma=1.0, Gamma=1.0)  # variance 1
    values = type(spectrum(bed.draw(samples=5)))
    low, high = 2 * 1 / (4 * 100), 4 * 2 / 10
    lows, highs = np.array([low, low * 0.99, low, low]), np.array([high, high, high * 1.01, 0.1])
    assert spectral_event(bed, values(lows, highs)).tolist() == [True, False, False, True]
    assert contraction(bed, np.array(0.1)) == pytest.approx(np.sqrt(1 - 2 * 0.1 / 200))
    assert rate_limit(bed) == pytest.approx(1 / 256)


def test_the_event_needs_samples() -> None:
    """Many samples (docs/method.md): n = 10, k = 2: never with 100 samples, always with 2000."""
    bed = Testbed(10, 10, 2)
    for samples, expected in ((100, False), (2000, True)):
        worlds = bed.draw(worlds=20, samples=samples, random_state=0)
        assert (spectral_event(bed, spectrum(worlds)) == expected).all()


def test_a_single_dimension_works() -> None:
    worlds = Testbed(1, 1, 1).draw(worlds=3)
    start = worlds.start(0.1)
    path = refine_worlds(worlds, start, radius=0.1, rate=0.1 / worlds.beta[:, 0, 0] ** 2, steps=100)
    assert (path.distances[-1] < 1e-6).all()
