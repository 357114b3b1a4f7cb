"""Drift audit: against metrics, a loop over images, and planted drifts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr.core import metrics
from ccr.core.concepts import Concepts
from ccr.core.explain import audit, drift
from ccr.core.explain.drift import FLAGS, OVERLAP
from ccr.core.geometry import unit_rows


def concepts(seed: int, n: int = 12, d: int = 6, step: float = 0.0, base: Concepts | None = None) -> Concepts:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) if base is None else base.embeddings + step * rng.normal(size=(n, d))
    return Concepts([f"concept {i}" for i in range(n)], rows)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.5, 2.0]), st.integers(1, 20))
def test_it_agrees_with_the_measures(seed: int, step: float, neighbours: int) -> None:
    initial = concepts(seed)
    refined = concepts(seed + 1, step=step, base=initial)
    found = audit(initial, refined, neighbours=neighbours)
    assert found.deviation == metrics.deviation(refined, initial)
    assert found.retention == pytest.approx(metrics.retention(refined, initial))
    start, now = unit_rows(initial.embeddings.astype(float)), unit_rows(refined.embeddings.astype(float))
    for one in found.concepts:
        row = initial.index(one.concept)
        assert one.deviation == pytest.approx(np.linalg.norm(refined.embeddings[row] - initial.embeddings[row]))
        assert one.own_cosine == pytest.approx(now[row] @ start[row])
        for where, listed in ((start, one.nearest_before), (now, one.nearest_after)):
            cosines = start @ where[row]
            order = [i for i in np.argsort(-cosines, kind="stable") if i != row][:neighbours]
            assert [item.concept for item in listed] == [initial.names[i] for i in order]
            assert [item.cosine for item in listed] == pytest.approx(cosines[order].tolist())
    flagged = [one.flagged for one in found.concepts]
    assert flagged == sorted(flagged, reverse=True)
    lost = ["lost" in one.flags for one in found.concepts]
    assert lost == sorted(lost, reverse=True)
    assert len(found.flagged) == sum(flagged)
    assert sum(lost) == sum(not one.retained for one in found.concepts)


def test_nothing_moved_nothing_flagged() -> None:
    initial = concepts(0)
    found = audit(initial, initial)
    assert found.flagged == ()
    assert found.retention == 1.0
    assert all(one.deviation == 0 for one in found.concepts)


def test_duplicates_and_a_single_concept() -> None:
    rows = np.eye(4)[[0, 0, 1, 2]]
    twice = Concepts(list("abcd"), rows)
    assert audit(twice, twice).flagged == ()
    alone = Concepts(["a"], np.eye(3)[:1])
    found = audit(alone, Concepts(["a"], np.eye(3)[1:2]))
    assert found.retention == 1.0
    assert found.concepts[0].nearest_after == ()


def test_a_concept_that_became_another_comes_first() -> None:
    initial = Concepts(["red", "round", "soft"], np.eye(3))
    refined = Concepts(["red", "round", "soft"], [[1, 0, 0], [0.9, 0.4, 0], [0, 0.1, 1]])
    found = audit(initial, refined)
    first = found.concepts[0]
    assert (first.concept, first.retained, first.nearest_after[0].concept) == ("round", False, "red")
    assert "lost" in first.flags
    assert set(first.flags) <= set(FLAGS)


def test_a_clearly_other_neighbour_is_flagged_an_exchange_of_equals_is_not() -> None:
    initial = Concepts(["a", "b", "c"], [[1, 0, 0], [0.5, 0.8, 0], [0.49, 0, 0.8]])
    swapped = initial.with_embeddings([[1, -0.005, 0.005], *initial.embeddings[1:].tolist()])
    assert audit(initial, swapped).flagged == ()
    apart = Concepts(["a", "b", "c"], [[1, 0, 0], [0.5, 0.8, 0], [0.4, 0, 0.8]])
    turned = apart.with_embeddings([[1, -0.2, 0.2], *apart.embeddings[1:].tolist()])
    assert [(one.concept, one.flags) for one in audit(apart, turned).flagged] == [("a", ("neighbour",))]


@given(st.integers(0, 10**6))
def test_the_images_whose_code_changed_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = ((rng.normal(size=(50, 12)) * (rng.random((50, 12)) < 0.3)).astype(np.float32) for _ in range(2))
    before[:, 0] = after[:, 0]
    initial = concepts(seed)
    cuts = [slice(0, 13), slice(13, 50)]
    found = audit(
        initial,
        initial,
        before=(sparse.csr_matrix(before[cut]) for cut in cuts),
        after=(sparse.csr_matrix(after[cut]) for cut in cuts),
        images=4,
    )
    assert found.n == 50
    for one in found.concepts:
        column = initial.index(one.concept)
        was, now = before[:, column], after[:, column]
        change = np.abs(now.astype(float) - was)
        order = [row for row in np.argsort(-change, kind="stable") if change[row] > 0][:4]
        assert [item.row for item in one.images] == order
        assert [(item.before, item.after) for item in one.images] == [(was[row], now[row]) for row in order]
        assert (one.active_before, one.active_after) == ((was != 0).sum(), (now != 0).sum())
        both, either = ((was != 0) & (now != 0)).sum(), ((was != 0) | (now != 0)).sum()
        assert one.overlap == pytest.approx(both / either if either else 1.0)
        assert ("images" in one.flags) == (one.overlap < OVERLAP)
    again = found.to_dict()
    assert json.loads(json.dumps(again, allow_nan=False)) == again
    assert len(found.to_dict(top=3)["concepts"]) == 3


def test_neighbours_do_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    initial, refined = concepts(0, n=40), concepts(1, n=40, step=0.5, base=concepts(0, n=40))
    whole = audit(initial, refined)
    monkeypatch.setattr(drift, "CHUNK_VALUES", 100)
    assert [d.nearest_after for d in audit(initial, refined).concepts] == [d.nearest_after for d in whole.concepts]
