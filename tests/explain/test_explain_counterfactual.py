"""Counterfactuals against brute force: all subsets of active concepts, and a general solver for code changes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog, nnls

from ccr.coding.heads import LinearHead
from ccr.explain import Explanation, explain


def made(codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> Explanation:
    names = [f"concept {i}" for i in range(coef.shape[1])]
    classes = [f"class {c}" for c in range(len(intercept))]
    return explain(sparse.csr_matrix(codes[None]), LinearHead(coef, intercept), concepts=names, classes=classes)


def random_case(seed: int, *, whole: bool, n: int = 8, classes: int = 4) -> Explanation:
    """`whole` numbers make many exact ties, without rounding."""
    rng = np.random.default_rng(seed)
    if whole:
        codes, coef = rng.integers(-2, 3, n).astype(float), rng.integers(-2, 3, (classes, n)).astype(float)
        return made(codes, coef, rng.integers(-2, 3, classes).astype(float))
    codes = rng.normal(size=n) * (rng.random(n) < 0.7)
    return made(codes, rng.normal(size=(classes, n)), rng.normal(size=classes))


def winner_without(e: Explanation, gone: tuple[int, ...]) -> int:
    kept = [i for i in range(len(e.codes)) if i not in gone]
    return int((e.head.coef[:, kept] @ e.codes[kept] + e.head.intercept).argmax())


def brute_force(e: Explanation) -> tuple[int | None, float]:
    """Size of the smallest set that changes the prediction, and the deepest that one of that size puts it behind."""
    winner = e.classes.index(e.prediction)
    for size in range(1, len(e.codes) + 1):
        depths = []
        for gone in combinations(range(len(e.codes)), size):
            kept = [i for i in range(len(e.codes)) if i not in gone]
            logits = e.head.coef[:, kept] @ e.codes[kept] + e.head.intercept
            if logits.argmax() != winner:
                depths.append(logits[winner] - np.delete(logits, winner).max())
        if depths:
            return size, min(depths)
    return None, 0.0


@pytest.mark.parametrize("whole", [True, False])
@given(st.integers(0, 10**6))
def test_the_smallest_set_is_smallest_by_brute_force(whole: bool, seed: int) -> None:
    e = random_case(seed, whole=whole)
    size, depth = brute_force(e)
    found = e.counterfactual()
    if size is None:
        assert found is None
        return
    assert found is not None
    assert len(found.removed) == size
    assert found.margin_after == pytest.approx(depth, abs=1e-12)
    gone = tuple(e.active.index(term.concept) for term in found.removed)
    assert e.classes[winner_without(e, gone)] == found.becomes != e.prediction
    assert found.margin - sum(t.contribution for t in found.removed) == pytest.approx(found.margin_after, abs=1e-12)
    assert found.margin == pytest.approx(e.contrast(found.becomes).difference, abs=1e-12)
    after = e.intervene({term.concept: 0.0 for term in found.removed}).after
    assert after.prediction == found.becomes
    assert after.probability == pytest.approx(found.probability)


def test_ties_are_broken_the_same_way_every_time() -> None:
    # Removing either concept makes either rival win by 1: the first class, then the first name.
    coef = np.array([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]])
    e = made(np.array([1.0, 1.0]), coef, np.array([3.0, 0.0, 3.0]))
    assert e.prediction == "class 1"
    found = e.counterfactual()
    assert found is not None
    assert (found.becomes, [term.concept for term in found.removed]) == ("class 0", ["concept 0"])


def test_a_tie_goes_to_the_first_class_as_in_predict() -> None:
    coef, code = np.array([[0.0], [1.0]]), np.array([1.0])
    first = made(code, coef, np.zeros(2)).counterfactual()
    assert first is not None
    assert first.becomes == "class 0"
    assert made(code, coef[::-1], np.zeros(2)).counterfactual() is None


def test_none_when_the_bias_alone_decides() -> None:
    coef = np.ones((3, 4))
    assert made(np.ones(4), coef, np.array([1.0, 0.0, 0.0])).counterfactual() is None
    assert made(np.zeros(4), coef, np.array([1.0, 0.0, 0.0])).counterfactual() is None


@given(st.integers(0, 10**6))
def test_with_two_classes_the_change_is_the_closed_form(seed: int) -> None:
    e = random_case(seed, whole=False, classes=2)
    assume(len(e.codes) > 0)
    other = int(e.logits.argmin())
    a = e.head.coef[other] - e.head.coef[1 - other]
    delta = (e.logits[1 - other] - e.logits[other]) * a / (a @ a)
    found = e.change_toward(f"class {other}")
    assert found is not None
    moved = {shift.concept: shift.change for shift in found.shifts}
    assert np.allclose([moved[name] for name in e.active], delta)
    assert found.distance == pytest.approx(np.linalg.norm(delta))


@pytest.mark.parametrize("active_only", [True, False])
@given(st.integers(0, 10**6))
def test_the_smallest_change_by_a_general_solver(active_only: bool, seed: int) -> None:
    e = random_case(seed, whole=False, n=5, classes=4)
    target = seed % 4
    found = e.change_toward(e.classes[target], active_only=active_only)
    names = list(e.active) if active_only else list(e.concepts)
    head = e.head if active_only else e.full_head
    start = np.array([dict(zip(e.active, e.codes, strict=True)).get(name, 0.0) for name in names])
    slopes, gaps = head.coef[target] - head.coef, e.logits - e.logits[target]
    if found is None:
        if names:
            rivals = np.arange(4) != target
            feasible = linprog(
                np.zeros(len(names)), A_ub=-slopes[rivals], b_ub=-gaps[rivals], bounds=[(None, None)] * len(names)
            )
            assert feasible.status == 2  # a linear program says so too
        return
    delta = np.zeros(len(names))
    for shift in found.shifts:
        assert shift.before == pytest.approx(start[names.index(shift.concept)])
        assert shift.after == pytest.approx(shift.before + shift.change)
        delta[names.index(shift.concept)] = shift.change
    above = gaps - slopes @ delta
    assert above.max() <= 1e-7 * max(1.0, np.abs(e.logits).max())
    assert found.distance == pytest.approx(np.linalg.norm(delta))
    # Optimal: delta is a non-negative combination of the constraints that hold with equality.
    tight = np.flatnonzero((above > -1e-7) & (np.arange(4) != target))
    if found.distance > 0:
        assert nnls(slopes[tight].T, delta)[1] <= 1e-6 * found.distance


def test_a_third_class_in_the_way_is_passed_too() -> None:
    # Toward class 2 against class 0 alone would land where class 1 wins.
    coef = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    e = made(np.array([1.0, 0.1]), coef, np.zeros(3))
    assert e.prediction == "class 0"
    found = e.change_toward("class 2")
    assert found is not None
    after = e.intervene({shift.concept: shift.after for shift in found.shifts}).after
    assert after.logits[2] == pytest.approx(after.logits.max(), abs=1e-9)


def test_no_change_where_none_can_help_and_none_needed_for_the_prediction() -> None:
    coef = np.array([[1.0, 1.0], [1.0, 1.0]])
    e = made(np.array([1.0, 0.0]), coef, np.array([1.0, 0.0]))
    assert e.change_toward("class 1") is None
    own = e.change_toward("class 0")
    assert own is not None
    assert (own.distance, own.shifts) == (0.0, ())
    empty = made(np.zeros(2), np.eye(2), np.array([1.0, 0.0]))
    assert empty.change_toward("class 1") is None
    anywhere = empty.change_toward("class 1", active_only=False)
    assert anywhere is not None
    assert anywhere.distance == pytest.approx(np.sqrt(0.5))


def test_a_thousand_classes() -> None:
    e = random_case(0, whole=False, n=60, classes=1000)
    found = e.counterfactual()
    assert found is not None
    change = e.change_toward("class 7")
    assert change is not None
    after = e.intervene({shift.concept: shift.after for shift in change.shifts}).after
    assert after.logits[7] == pytest.approx(after.logits.max(), abs=1e-6)
