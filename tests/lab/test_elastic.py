from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ccr.coding.heads import LinearHead, softmax_objective
from ccr.errors import CCRError
from ccr_lab.rivals.elastic_net import elastic_net_path, largest_alpha, optimality_violation


def problem(
    classes: int = 4, *, m: int = 300, n: int = 12, seed: int = 0, scale: float = 1.0, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(m, n)) @ (np.eye(n) + 0.3 * rng.normal(size=(n, n)))
    truth = rng.normal(size=(n, classes)) * (rng.random((n, classes)) < 0.5)
    y = (codes @ truth + rng.gumbel(size=(m, classes))).argmax(axis=1)
    return codes * scale + shift, y


def objective(
    head: LinearHead, codes: np.ndarray, y: np.ndarray, alpha: float, l1_ratio: float, weight: np.ndarray | None = None
) -> float:
    weight = np.ones(len(y)) if weight is None else weight
    loss, _ = softmax_objective(head, codes, y, alpha=alpha * (1 - l1_ratio), weight=weight)
    return loss + alpha * l1_ratio * float(np.abs(head.coef).sum())


def saga(
    codes: np.ndarray, y: np.ndarray, alpha: float, l1_ratio: float, weight: np.ndarray | None = None
) -> LinearHead:
    """scikit-learn's solution; for two classes its one row of differences, whose penalty is another: not used there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        oracle = LogisticRegression(
            penalty="elasticnet", l1_ratio=l1_ratio, C=1 / (len(y) * alpha), solver="saga", tol=1e-7, max_iter=20_000
        ).fit(codes, y, sample_weight=weight)
    return LinearHead(oracle.coef_, oracle.intercept_)


@pytest.mark.parametrize("l1_ratio", [0.3, 0.99, 1.0])
def test_against_scikit_learn(l1_ratio: float) -> None:
    codes, y = problem()
    path = elastic_net_path(codes, y, classes=4, l1_ratio=l1_ratio, n_alphas=6, alpha_ratio=0.02, tol=1e-6)
    for alpha, head in zip(path.alphas[1:], path.heads[1:], strict=True):
        oracle = saga(codes, y, alpha, l1_ratio)
        mine, theirs = (objective(each, codes, y, alpha, l1_ratio) for each in (head, oracle))
        assert mine <= theirs + 1e-9
        assert mine == pytest.approx(theirs, abs=1e-6)
        np.testing.assert_allclose(head.probabilities(codes), oracle.probabilities(codes), atol=2e-3)
        if l1_ratio < 1:  # without the quadratic part, a concept's weights may be shifted for all classes alike
            np.testing.assert_allclose(head.coef, oracle.coef, atol=2e-3)


def test_the_first_alpha_is_the_smallest_without_weights() -> None:
    codes, y = problem(shift=3.0)
    top = largest_alpha(codes, y, classes=4)
    path = elastic_net_path(codes, y, classes=4, alphas=[1.001 * top, 0.999 * top], tol=1e-6)
    assert not path.heads[0].coef.any()
    assert path.heads[1].coef.any()
    default = elastic_net_path(codes, y, classes=4, n_alphas=3)
    assert default.alphas[0] == top
    assert not default.heads[0].coef.any()


@pytest.mark.parametrize(
    ("classes", "m", "n", "scale", "shift"),
    [
        (4, 300, 12, 1.0, 0.0),
        (2, 200, 8, 1.0, 0.0),
        (3, 200, 1, 1.0, 0.0),  # one concept
        (3, 40, 90, 1.0, 0.0),  # more concepts than rows
        (4, 300, 12, 1.0, 300.0),
        (9, 300, 40, 0.05, -2.0),
        (60, 200, 5, 1.0, 0.0),  # classes of a few rows
    ],
)
def test_every_head_is_optimal(classes: int, m: int, n: int, scale: float, shift: float) -> None:
    codes, y = problem(classes, m=m, n=n, scale=scale, shift=shift)
    path = elastic_net_path(codes, y, classes=classes, n_alphas=12, alpha_ratio=1e-2, tol=1e-4)
    assert (path.violations <= 1e-4).all()
    for alpha, head, claimed in zip(path.alphas, path.heads, path.violations, strict=True):
        assert head.coef.shape == (classes, n)
        found = optimality_violation(head, codes, y, alpha=alpha)
        assert found <= 1.01e-4
        assert found == pytest.approx(claimed, abs=1e-6)


def test_the_violation_is_zero_only_at_the_optimum() -> None:
    """Against the definition: directional derivatives of the objective along every weight (with the intercept that
    keeps the mean logits) and every intercept."""
    codes, y = problem(3, m=100, n=4)
    alpha, l1_ratio, step = 0.05, 0.7, 1e-7
    rng = np.random.default_rng(3)
    head = LinearHead(rng.normal(size=(3, 4)) * (rng.random((3, 4)) < 0.5), rng.normal(size=3))
    base, worst = objective(head, codes, y, alpha, l1_ratio), 0.0
    for place in np.ndindex(3, 4):
        for sign in (1, -1):
            moved = head.coef.copy()
            moved[place] += sign * step
            follows = head.intercept - (moved - head.coef) @ codes.mean(axis=0)
            fall = base - objective(LinearHead(moved, follows), codes, y, alpha, l1_ratio)
            worst = max(worst, fall / step / alpha)
    for place in range(3):
        moved = head.intercept.copy()
        moved[place] += step
        rise = objective(LinearHead(head.coef, moved), codes, y, alpha, l1_ratio) - base
        worst = max(worst, abs(rise / step))
    assert optimality_violation(head, codes, y, alpha=alpha, l1_ratio=l1_ratio) == pytest.approx(worst, rel=1e-4)


def test_two_classes_get_opposite_weights() -> None:
    """And they are those of scikit-learn's single row, whose penalty is that of the difference."""
    codes, y = problem(2, m=200, n=6)
    path = elastic_net_path(codes, y, classes=2, l1_ratio=1.0, n_alphas=5, alpha_ratio=0.05, tol=1e-7)
    for alpha, head in zip(path.alphas[1:], path.heads[1:], strict=True):
        np.testing.assert_allclose(head.coef[1] - head.coef[0], saga(codes, y, alpha, 1.0).coef[0], atol=2e-3)
        assert (head.coef[0] * head.coef[1] <= 0).all()
        balanced = elastic_net_path(codes, y, classes=2, l1_ratio=0.9, alphas=[alpha], tol=1e-7).heads[0]
        np.testing.assert_allclose(balanced.coef[0], -balanced.coef[1], atol=1e-5)


def test_constant_columns_and_absent_classes_get_no_weight() -> None:
    codes, y = problem(3)
    codes[:, 4], codes[:, 7] = 0.0, 5.0
    path = elastic_net_path(codes, y, classes=5, n_alphas=8, tol=1e-5)
    assert (path.violations <= 1e-5).all()
    for head in path.heads:
        assert not head.coef[:, [4, 7]].any()
        assert not head.coef[3:].any()
        assert np.isfinite(head.intercept).all()
        assert head.logits(codes).argmax(axis=1).max() < 3


def test_codes_that_say_nothing_give_the_shares_of_the_classes() -> None:
    y = np.array([0, 0, 0, 1])
    head = elastic_net_path(np.full((4, 2), 7.0), y, classes=2, n_alphas=3).heads[-1]
    assert not head.coef.any()
    np.testing.assert_allclose(head.probabilities(np.full((1, 2), 7.0))[0], [0.75, 0.25])


def test_separable_classes_and_identical_columns_converge() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    codes = np.repeat(np.eye(3)[y] + 0.05 * rng.normal(size=(120, 3)), 2, axis=1)
    path = elastic_net_path(codes, y, classes=3, alpha_ratio=1e-4, n_alphas=20)
    assert (path.violations <= 1e-3).all()
    assert (path.heads[-1].logits(codes).argmax(axis=1) == y).all()


def test_float32_codes_are_solved_as_exactly() -> None:
    codes, y = problem(5, m=3000, n=20, shift=1.0)
    exact = elastic_net_path(codes, y, classes=5, n_alphas=10, tol=1e-5)
    single = elastic_net_path(codes.astype(np.float32), y, classes=5, n_alphas=10, tol=1e-3)
    assert (single.violations <= 1e-3).all()
    for alpha, head, oracle in zip(single.alphas, single.heads, exact.heads, strict=True):
        assert optimality_violation(head, codes, y, alpha=alpha) <= 1.1e-3
        np.testing.assert_allclose(head.coef, oracle.coef, atol=1e-2)


def test_weights_that_the_screening_missed_are_found() -> None:
    """A start far from the solution: few weights may move at first."""
    codes, y = problem(4, m=300, n=60)
    top = largest_alpha(codes, y, classes=4)
    start = elastic_net_path(codes, y, classes=4, alphas=[top]).heads[0]
    far = elastic_net_path(codes, y, classes=4, alphas=[top / 20], start=start, tol=1e-6).heads[0]
    assert optimality_violation(far, codes, y, alpha=top / 20) <= 1.01e-6


def test_warm_and_cold_starts_meet() -> None:
    codes, y = problem()
    path = elastic_net_path(codes, y, classes=4, n_alphas=10, tol=1e-6)
    cold = elastic_net_path(codes, y, classes=4, alphas=path.alphas[-1:], tol=1e-6)
    warm = elastic_net_path(codes, y, classes=4, alphas=path.alphas[-1:], tol=1e-6, start=path.heads[-2])
    again = elastic_net_path(codes, y, classes=4, alphas=path.alphas[-1:], tol=1e-4, start=path.heads[-1])
    np.testing.assert_allclose(cold.heads[0].coef, path.heads[-1].coef, atol=1e-5)
    np.testing.assert_allclose(warm.heads[0].coef, path.heads[-1].coef, atol=1e-5)
    np.testing.assert_array_equal(again.heads[0].coef, path.heads[-1].coef)


def test_the_path_stops_when_told_and_reports() -> None:
    codes, y = problem()
    path = elastic_net_path(codes, y, classes=4, stop=lambda head: np.count_nonzero(head.coef) > 8)
    assert len(path.alphas) == len(path.heads) == len(path.violations) < 50
    assert np.count_nonzero(path.heads[-1].coef) > 8 >= np.count_nonzero(path.heads[-2].coef)


@pytest.mark.parametrize(("n", "alpha_ratio"), [(12, 1e-4), (60, 0.5)])
def test_too_few_iterations_are_confessed(n: int, alpha_ratio: float) -> None:
    codes, y = problem(n=n)
    path = elastic_net_path(codes, y, classes=4, n_alphas=3, alpha_ratio=alpha_ratio, max_iter=2, tol=1e-8)
    assert path.violations[-1] > 1e-8
    assert path.violations[-1] == pytest.approx(optimality_violation(path.heads[-1], codes, y, alpha=path.alphas[-1]))


def test_arguments_are_left_alone() -> None:
    codes, y = problem()
    before, start = codes.copy(), elastic_net_path(codes, y, classes=4, n_alphas=3).heads[-1]
    coef = start.coef.copy()
    elastic_net_path(codes, y, classes=4, alphas=[0.01], start=start)
    np.testing.assert_array_equal(codes, before)
    np.testing.assert_array_equal(start.coef, coef)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.1])
def test_bad_options(l1_ratio: float) -> None:
    codes, y = problem()
    with pytest.raises(CCRError, match="l1_ratio must be in"):
        elastic_net_path(codes, y, classes=4, l1_ratio=l1_ratio)


def test_weights_that_are_not_permitted_stay_zero_and_the_others_are_optimal() -> None:
    codes, y = problem(classes=4, n=12, seed=3)
    permitted = np.random.default_rng(1).random((4, 12)) < 0.6
    path = elastic_net_path(codes, y, classes=4, l1_ratio=0.9, n_alphas=8, permitted=permitted, tol=1e-5)
    assert (path.violations <= 1e-5).all()
    assert not any((head.coef != 0)[~permitted].any() for head in path.heads)
    head, alpha = path.heads[-1], path.alphas[-1]
    assert (head.coef != 0)[permitted].mean() > 0.9
    gradient = softmax_objective(head, codes, y, alpha=0.1 * alpha, weight=np.ones(len(y)))[1].coef
    used = head.coef != 0
    assert np.allclose(gradient[used], -0.9 * alpha * np.sign(head.coef[used]), atol=2e-5 * alpha)
    assert (np.abs(gradient[permitted & ~used]) <= 0.9 * alpha * (1 + 2e-5)).all()


def test_concepts_that_no_class_may_use_could_as_well_not_be_there() -> None:
    codes, y = problem(classes=3, n=12, seed=4)
    some = np.arange(12) % 3 != 0
    masked = elastic_net_path(codes, y, classes=3, n_alphas=6, permitted=np.tile(some, (3, 1)), tol=1e-8)
    fewer = elastic_net_path(codes[:, some], y, classes=3, n_alphas=6, tol=1e-8)
    assert np.allclose(masked.alphas, fewer.alphas)
    for one, other in zip(masked.heads, fewer.heads, strict=True):
        assert np.allclose(one.coef[:, some], other.coef, atol=1e-6)
