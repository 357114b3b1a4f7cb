"""Class and model views against loops over dense codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import confusion_matrix

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain import ModelView, coactivation, explain, top_images, view_codes
from ccr.explain import views as images
from ccr.explain import views as pairs

CLASSES = ["apple", "pear", "plum"]
N = 7
NAMES = [f"concept {i}" for i in range(N)]


def case(seed: int, m: int = 40) -> tuple[np.ndarray, LinearHead, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = (rng.normal(size=(m, N)) * (rng.random((m, N)) < 0.5)).astype(np.float32)
    codes[:, 3] = 0.0
    head = LinearHead(rng.normal(size=(3, N)).astype(np.float32), rng.normal(size=3).astype(np.float32))
    return codes, head, rng.integers(0, 3, m)


def chunked(codes: np.ndarray, size: int = 9) -> Iterator[sparse.csr_matrix]:
    for start in range(0, len(codes), size):
        yield sparse.csr_matrix(codes[start : start + size])


def viewed(seed: int, *, labelled: bool = True) -> ModelView:
    codes, head, y = case(seed)
    return view_codes(chunked(codes), head, concepts=NAMES, classes=CLASSES, y=y if labelled else None)


@given(st.integers(0, 10**6))
def test_a_class_is_carried_by_weight_times_mean_active_code(seed: int) -> None:
    codes, head, y = case(seed)
    view = viewed(seed)
    for number, name in enumerate(CLASSES):
        own = codes[y == number].astype(np.float64)
        found = view.of_class(name, top=None, min_share=0.0)
        assert found.images == len(own)
        for item in found.carrying + found.opposing:
            column = NAMES.index(item.concept)
            shown = own[own[:, column] != 0, column]
            assert item.code == pytest.approx(shown.mean())
            assert item.share == pytest.approx(len(shown) / len(own))
            assert item.contribution == pytest.approx(float(head.coef[number, column]) * shown.mean(), abs=1e-12)
        strengths = [item.contribution for item in found.carrying]
        assert strengths == sorted(strengths, reverse=True)
        assert all(value > 0 for value in strengths)
        assert all(item.contribution < 0 for item in found.opposing)
        # Exact: the concepts' means and the bias are the class's mean logit.
        total = found.bias + sum(item.mean for item in found.carrying + found.opposing)
        mean = (head.logits(own)[:, number]).mean() if len(own) else found.bias
        assert total == pytest.approx(mean, rel=1e-5, abs=1e-5)
        assert found.mean_logit == pytest.approx(mean, rel=1e-5, abs=1e-5)
        if len(own):
            assert found.accuracy == pytest.approx((head.logits(own).argmax(axis=1) == number).mean())


@given(st.integers(0, 10**6))
def test_confusions_are_those_of_the_confusion_matrix(seed: int) -> None:
    codes, head, y = case(seed)
    view = viewed(seed)
    predicted = head.logits(codes).argmax(axis=1)
    matrix = confusion_matrix(y, predicted, labels=range(3))
    assert np.array_equal(view.confusion, matrix)
    found = view.confusions(top=None, concepts=N)
    errors = [pair.errors for pair in found]
    assert errors == sorted(errors, reverse=True)
    assert sum(errors) == (y != predicted).sum()
    for pair in found:
        a, b = CLASSES.index(pair.first), CLASSES.index(pair.second)
        assert a < b
        assert (pair.first_as_second, pair.second_as_first) == (matrix[a, b], matrix[b, a])
        # Exact: how much farther a leads b on a's images than on b's.
        lead = head.logits(codes)[:, a] - head.logits(codes)[:, b]
        if (y == a).any() and (y == b).any():
            assert pair.separation == pytest.approx(lead[y == a].mean() - lead[y == b].mean(), rel=1e-4, abs=1e-4)
        parts = [part.separation for part in pair.separating + pair.confusing]
        assert sum(parts) == pytest.approx(pair.separation, abs=1e-9)
    assert view.separation("pear", "apple", concepts=N).separation == pytest.approx(
        view.separation("apple", "pear", concepts=N).separation
    )


def test_unused_concepts_are_never_shown_or_weigh_nothing() -> None:
    codes, head, y = case(0)
    head.coef[:, 5] = 0.0
    view = view_codes(chunked(codes), head, concepts=NAMES, classes=CLASSES, y=y)
    assert view.unused() == ("concept 3", "concept 5")
    use = {item.concept: item for item in view.use()}
    assert use["concept 3"].images == 0
    for column, name in enumerate(NAMES):
        assert use[name].images == (codes[:, column] != 0).sum()
        assert use[name].share == pytest.approx((codes[:, column] != 0).mean())


def test_rare_concepts_do_not_carry_a_class() -> None:
    codes = np.zeros((100, N), np.float32)
    codes[:, 0] = 0.1
    codes[0, 1] = 50.0
    head = LinearHead(np.ones((3, N)), np.zeros(3))
    view = view_codes(chunked(codes), head, concepts=NAMES, classes=CLASSES, y=np.zeros(100, int))
    assert [item.concept for item in view.of_class("apple").carrying] == ["concept 0"]
    assert [item.concept for item in view.of_class("apple", min_share=0).carrying] == ["concept 1", "concept 0"]
    assert view.of_class("plum").carrying == ()
    json.dumps(view.to_dict(), allow_nan=False)


def test_without_labels_predictions_stand_for_them() -> None:
    codes, head, _ = case(1)
    view = viewed(1, labelled=False)
    assert np.array_equal(view.images, np.bincount(head.logits(codes).argmax(axis=1), minlength=3))
    with pytest.raises(CCRError, match="true labels"):
        view.confusions()
    assert view.to_dict()["confusions"] is None
    assert json.loads(json.dumps(viewed(1).to_dict(), allow_nan=False)) == viewed(1).to_dict()


def test_the_missing_concepts_of_a_mistake() -> None:
    codes, head, _ = case(2)
    view = viewed(2)
    for row in codes:
        found = explain(sparse.csr_matrix(row[None]), head, concepts=NAMES, classes=CLASSES)
        for truth in CLASSES:
            missing = found.mistake(truth, view=view, top=3).missing
            assert missing is not None
            carrying = [item for item in view.of_class(truth, top=None).carrying if item.concept not in found.active]
            assert [item.concept for item in missing] == [item.concept for item in carrying][:3]
            assert all(item.contribution == pytest.approx(item.code * item.weight) for item in missing)


@pytest.mark.parametrize("by", ["jaccard", "images", "lift"])
@given(seed=st.integers(0, 10**6))
def test_coactivation_counts_images_with_both(by: str, seed: int) -> None:
    codes, _, _ = case(seed)
    found = coactivation(chunked(codes), concepts=NAMES, top=100, by=by, min_images=1)  # type: ignore[arg-type]
    expected = {}
    for a, b in combinations(range(N), 2):
        both = (codes[:, a] != 0) & (codes[:, b] != 0)
        if both.any():
            either = ((codes[:, a] != 0) | (codes[:, b] != 0)).sum()
            same = (np.sign(codes[both, a]) == np.sign(codes[both, b])).mean()
            lift = both.mean() / ((codes[:, a] != 0).mean() * (codes[:, b] != 0).mean())
            expected[NAMES[a], NAMES[b]] = (int(both.sum()), both.sum() / either, lift, same)
    assert len(found) == len(expected)
    for pair in found:
        assert (pair.images, pair.jaccard, pair.lift, pair.same_sign) == pytest.approx(
            expected[pair.first, pair.second]
        )
    values = [getattr(pair, by) for pair in found]
    assert values == sorted(values, reverse=True)


def test_coactivation_in_many_batches_and_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, _, _ = case(3)
    whole = coactivation(chunked(codes), concepts=NAMES)
    monkeypatch.setattr(pairs, "BATCH_ENTRIES", 10)
    assert coactivation(chunked(codes), concepts=NAMES) == whole
    assert coactivation(chunked(codes * 0), concepts=NAMES) == ()
    with pytest.raises(CCRError, match="by must be"):
        coactivation([], concepts=NAMES, by="size")  # type: ignore[arg-type]


@pytest.mark.parametrize("waiting", [1, 1_000_000])
def test_the_images_that_show_a_concept_most(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_WAITING", waiting)
    codes, _, _ = case(4, m=200)
    codes[10:20, 2] = 7.0  # ties: earlier rows first
    columns = np.array([5, 2, 3])
    for column, found in zip(columns, top_images(chunked(codes), columns=columns, top=6), strict=True):
        order = [row for row in np.argsort(-codes[:, column], kind="stable") if codes[row, column] > 0][:6]
        assert [item.row for item in found] == order
        assert [item.code for item in found] == pytest.approx(codes[order, column].tolist())


@pytest.mark.parametrize("top", [-1, 1.5, "2", None])
def test_coactivation_counts_pairs_in_whole_numbers(top: Any) -> None:
    with pytest.raises(CCRError, match="top must be a whole number >= 0, got"):
        coactivation([sparse.csr_matrix(np.ones((3, 2)))], concepts=["a", "b"], top=top)
