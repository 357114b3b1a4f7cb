from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, recall_score

from ccr import metrics
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.geometry import unit_rows


@given(st.integers(1, 500), st.data())
def test_wilson_interval_against_scipy(n: int, draw: st.DataObject) -> None:
    successes = draw.draw(st.integers(0, n))
    reference = binomtest(successes, n).proportion_ci(method="wilson")
    found = metrics.wilson_interval(successes, n)
    assert found == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert found.low <= successes / n <= found.high


def test_accuracies_against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["apple", "pear", "plum"], 200)
    guess = np.where(rng.random(200) < 0.7, truth, rng.choice(["apple", "pear", "plum"], 200))
    assert metrics.accuracy(truth, guess) == pytest.approx(accuracy_score(truth, guess))
    expected = recall_score(truth, guess, average=None, labels=["apple", "pear", "plum"])
    assert list(metrics.per_class_accuracy(truth, guess).values()) == pytest.approx(list(expected))


def test_length_ignores_stored_zeros() -> None:
    dense = np.array([[0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 3.0]])
    stored = sparse.csr_matrix(dense)
    stored.data[0] = 0.0
    assert metrics.explanation_length(dense) == 1.5
    assert metrics.explanation_length(sparse.csr_matrix(dense)) == 1.5
    assert metrics.explanation_length(stored) == 1.0


def test_deviation_and_retention() -> None:
    start = np.eye(3)
    moved = unit_rows(start + np.array([[0, 0.1, 0], [0, 0, 0], [2.0, 0, 0]]))
    found = metrics.deviation(moved, start)
    assert found.max == pytest.approx(np.linalg.norm(moved[2] - start[2]))
    assert found.mean == pytest.approx(np.linalg.norm(moved - start, axis=1).mean())
    assert metrics.retention(moved, start) == pytest.approx(2 / 3)
    assert metrics.retention(start, start) == 1.0


def test_duplicates_that_stay_are_retained() -> None:
    twins = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert metrics.retention(twins, twins) == 1.0


@pytest.mark.parametrize(("truth", "guess"), [([], []), ([1, 2], [1])])
def test_unequal_or_empty_labels_are_refused(truth: list[int], guess: list[int]) -> None:
    with pytest.raises(CCRError, match="equally many and not empty"):
        metrics.accuracy(truth, guess)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(CCRError, match="successes"):
        metrics.wilson_interval(3, 2)
    for confidence in (95, 1.0, 0.0, np.nan):
        with pytest.raises(CCRError, match=r"confidence must be in \(0, 1\)"):
            metrics.wilson_interval(5, 10, confidence=confidence)
    with pytest.raises(CCRError, match="at least one row"):
        metrics.explanation_length(np.zeros((0, 3)))


def coded(seed: int, m: int = 30, n: int = 9, classes: int = 4) -> tuple[sparse.csr_matrix, LinearHead, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = sparse.random(m, n, density=0.5, random_state=seed, data_rvs=rng.standard_normal, format="csr")
    head = LinearHead(rng.normal(size=(classes, n)), rng.normal(size=classes))
    return codes, head, rng.integers(0, classes, m)


@given(st.integers(0, 10**6), st.integers(1, 10))
def test_accuracy_at_k_against_one_image_at_a_time(seed: int, k: int) -> None:
    codes, head, y = coded(seed)
    right = 0
    for code, label in zip(codes.toarray(), y, strict=True):
        winner = int((head.coef @ code + head.intercept).argmax())
        keep = np.argsort(-np.abs(code * head.coef[winner]), kind="stable")[:k]
        short = np.zeros_like(code)
        short[keep] = code[keep]
        right += int((head.coef @ short + head.intercept).argmax()) == label
    assert metrics.accuracies_at_k(codes, head, y, (k,)) == [pytest.approx(right / len(y))]


@given(st.integers(0, 10**6), st.integers(1, 10))
def test_accuracy_at_nec_against_one_class_at_a_time(seed: int, k: int) -> None:
    codes, head, y = coded(seed)
    coef = np.zeros_like(head.coef)
    for row, weights in enumerate(head.coef):
        keep = np.argsort(-np.abs(weights), kind="stable")[:k]
        coef[row, keep] = weights[keep]
    expected = np.mean((codes @ coef.T + head.intercept).argmax(axis=1) == y)
    assert metrics.accuracy_at_nec(codes, head, y, k) == pytest.approx(expected)


def test_keeping_everything_changes_nothing_and_bad_k_is_refused() -> None:
    codes, head, y = coded(0)
    plain = float(np.mean(head.logits(codes).argmax(axis=1) == y))
    assert metrics.accuracies_at_k(codes, head, y, (9,)) == [plain]
    assert metrics.accuracy_at_nec(codes, head, y, 9) == plain
    for call, none, two in ((metrics.accuracies_at_k, (0,), (2,)), (metrics.accuracy_at_nec, 0, 2)):
        with pytest.raises(CCRError, match="k must be at least 1"):
            call(codes, head, y, none)  # type: ignore[operator]
        with pytest.raises(CCRError, match="one label for each code"):
            call(codes, head, y[:3], two)  # type: ignore[operator]


def test_several_cuts_are_the_single_ones() -> None:
    codes, head, y = coded(5)
    ks = (1, 2, 5, 9)
    assert metrics.accuracies_at_k(codes, head, y, ks) == [metrics.accuracies_at_k(codes, head, y, (k,))[0] for k in ks]


@given(seed=st.integers(0, 1000))
def test_contribution_length_against_one_image_at_a_time(seed: int) -> None:
    found, full, _ = coded(seed)
    codes = found.toarray()
    sparse_coef = np.where(np.random.default_rng(seed).random(full.coef.shape) < 0.4, 0.0, full.coef)
    head = LinearHead(sparse_coef, full.intercept)
    counts, all_classes = [], []
    for code in codes:
        winner = int((head.coef @ code + head.intercept).argmax())
        counts.append(np.count_nonzero(code * head.coef[winner]))
        all_classes.append(np.count_nonzero((code * head.coef).any(axis=0)))
    assert metrics.contribution_length(codes, head) == pytest.approx(np.mean(counts))
    assert metrics.in_play(codes, head) == pytest.approx(np.mean(all_classes))
    with pytest.raises(CCRError, match="at least one row"):
        metrics.contribution_length(codes[:0], head)


def test_the_paired_bootstrap_against_the_formula() -> None:
    rng = np.random.default_rng(0)
    m = 2000
    hard = rng.random(m)
    scores = np.array([hard < 0.7, hard < 0.72, rng.random(m) < 0.7]).astype(float)
    own, apart = metrics.paired_bootstrap(scores)
    for row, interval in zip(scores, own, strict=True):
        half = 1.96 * row.std() / np.sqrt(m)
        assert interval.low == pytest.approx(row.mean() - half, abs=0.003)
        assert interval.high == pytest.approx(row.mean() + half, abs=0.003)
    for row, interval in zip(scores[1:], apart[1:], strict=True):
        difference = row - scores[0]
        half = 1.96 * difference.std() / np.sqrt(m)
        assert interval.low == pytest.approx(difference.mean() - half, abs=0.003)
        assert interval.high == pytest.approx(difference.mean() + half, abs=0.003)
    assert apart[0] == (0.0, 0.0)
    # Two points better on the very same images are told apart; the single intervals overlap.
    assert apart[1].low > 0
    assert own[0].high > own[1].low
    with pytest.raises(CCRError, match="methods, images"):
        metrics.paired_bootstrap(np.zeros((2, 0)))
