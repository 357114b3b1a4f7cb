"""Setting code entries: for one image, and over a data set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain import explain, intervention_curve
from ccr.explain.counterfactual import CorrectedBatch

NAMES = [f"concept {i}" for i in range(10)]


def case(seed: int, m: int = 30, n: int = 10, classes: int = 3) -> tuple[sparse.csr_matrix, LinearHead, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = sparse.csr_matrix(rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.4))
    return codes, LinearHead(rng.normal(size=(classes, n)), rng.normal(size=classes)), rng.integers(0, classes, m)


@given(st.integers(0, 10**6), st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, -2.0, 1e-3])))
def test_setting_entries_moves_logits_by_weight_times_change(seed: int, values: dict[str, float]) -> None:
    codes, head, _ = case(seed)
    before = explain(codes[0], head, concepts=NAMES, classes=list("abc"))
    found = before.intervene(values)
    dense = codes[0].toarray()[0]
    for name, value in values.items():
        dense[NAMES.index(name)] = value
    assert np.allclose(found.after.logits, head.coef @ dense + head.intercept)
    total = found.after.bias + sum(term.contribution for term in found.after.contributions)
    assert total == pytest.approx(found.after.logit, abs=1e-12)
    assert set(found.after.active) == {name for name, value in zip(NAMES, dense, strict=True) if value}
    moved = sum(shift.change * head.coef[:, NAMES.index(shift.concept)] for shift in found.shifts)
    assert np.allclose(found.after.logits - before.logits, moved)
    assert found.changed == (found.after.prediction != before.prediction)
    assert np.array_equal(before.codes, codes[0].data)


def test_bad_interventions_are_refused() -> None:
    codes, head, _ = case(0)
    e = explain(codes[0], head, concepts=NAMES, classes=list("abc"))
    with pytest.raises(CCRError, match="no concept is called 'zebra'"):
        e.intervene({"zebra": 1.0})
    for value in (float("nan"), "0", None, True):
        with pytest.raises(CCRError, match="must be a finite number"):
            e.intervene({"concept 1": value})  # type: ignore[dict-item]


def naive_curve(
    codes: np.ndarray, correct: np.ndarray, head: LinearHead, y: np.ndarray, steps: list[int]
) -> list[float]:
    shares = []
    for step in steps:
        right = 0
        for code, goal, label in zip(codes, correct, y, strict=True):
            logits = head.coef @ code + head.intercept
            rival = max((c for c in range(len(logits)) if c != label), key=lambda c: logits[c])
            gain = (head.coef[label] - head.coef[rival]) * (goal - code)
            fixed = code.copy()
            for column in np.argsort(-gain, kind="stable")[:step]:
                fixed[column] = goal[column]
            right += (head.coef @ fixed + head.intercept).argmax() == label
        shares.append(right / len(y))
    return shares


@given(st.integers(0, 10**6))
def test_the_curve_is_what_a_loop_over_images_gives(seed: int) -> None:
    codes, head, y = case(seed)
    correct = np.random.default_rng(seed + 1).normal(size=codes.shape)
    batches = [CorrectedBatch(codes[a:b], correct[a:b], y[a:b]) for a, b in ((0, 7), (7, 30))]
    found = intervention_curve(iter(batches), head, steps=[0, 1, 3, 10, 99])
    assert found.n == 30
    assert found.accuracy == pytest.approx(naive_curve(codes.toarray(), correct, head, y, [0, 1, 3, 10, 99]))
    plain = (head.logits(codes).argmax(axis=1) == y).mean()
    assert found.accuracy[0] == pytest.approx(plain)
    done = (head.logits(correct).argmax(axis=1) == y).mean()
    for order in ("effect", "error", "random"):
        curve = intervention_curve(iter(batches), head, steps=[10], order=order)
        assert curve.accuracy[-1] == pytest.approx(done)


def test_orders_differ_and_bad_ones_are_refused() -> None:
    codes, head, y = case(5, m=300)
    correct = (head.coef[y] - head.coef.mean(axis=0)) * 2
    curves = {
        order: intervention_curve([CorrectedBatch(codes, correct, y)], head, steps=[0, 2, 10], order=order)
        for order in ("effect", "error", "random")
    }
    assert curves["effect"].accuracy[1] > curves["random"].accuracy[1]
    assert curves["effect"].accuracy[-1] > 0.95
    assert curves["random"] == intervention_curve(
        [CorrectedBatch(codes, correct, y)], head, steps=[0, 2, 10], order="random"
    )
    with pytest.raises(CCRError, match="order must be"):
        intervention_curve([], head, order="best")  # type: ignore[arg-type]
    for steps in ([1.5], ["2"], [float("nan")], [-1], []):
        with pytest.raises(CCRError, match="steps must be whole numbers"):
            intervention_curve([], head, steps=steps)  # type: ignore[arg-type]
