"""Drift audit: against metrics, a loop over images, and planted drifts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr import metrics
from ccr.concepts import Concepts
from ccr.explain import audit, drift
from ccr.explain.drift import FAITHFUL, OVERLAP
from ccr.geometry import unit_rows


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
    assert sum(one.retained for one in found.concepts) == round(found.retention * len(initial))
    assert found.fidelity is None
    assert not found.flagged


@given(st.lists(st.one_of(st.floats(-1, 1), st.just(float("nan"))), min_size=12, max_size=12))
def test_the_least_faithful_come_first(values: list[float]) -> None:
    initial, known = concepts(0), [value for value in values if not np.isnan(value)]
    found = audit(initial, initial, fidelity=np.array(values))
    by_name = {one.concept: one.fidelity for one in found.concepts}
    for name, value in zip(initial.names, values, strict=True):
        assert by_name[name] is None if np.isnan(value) else by_name[name] == value
    listed = [one.fidelity for one in found.concepts if one.fidelity is not None]
    assert listed == sorted(known)
    assert [one.flags for one in found.flagged] == [("fidelity",)] * sum(value < FAITHFUL for value in known)
    assert found.fidelity is not None
    assert found.fidelity == (
        metrics.Fidelity.of(np.array(values)) if known else pytest.approx((np.nan,) * 2, nan_ok=True)
    )
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


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


def test_a_concept_that_became_another_is_not_retained() -> None:
    initial = Concepts(["red", "round", "soft"], np.eye(3))
    refined = Concepts(["red", "round", "soft"], [[1, 0, 0], [0.9, 0.4, 0], [0, 0.1, 1]])
    found = audit(initial, refined)
    first = found.concepts[0]
    assert (first.concept, first.retained, first.nearest_after[0].concept) == ("round", False, "red")
    assert "67% are still nearest to their own starting place" in found.footnote
    nearly = replace(found, retention=0.997)
    assert "99.7% are still" in nearly.footnote, "100% only where it is all of them"


@given(st.integers(0, 10**6))
def test_the_images_gained_and_lost(seed: int) -> None:
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
        for codes, other, count, listed in (
            (now, was, one.gained, one.gained_images),
            (was, now, one.lost, one.lost_images),
        ):
            only = [row for row in np.argsort(-np.abs(codes), kind="stable") if codes[row] != 0 and other[row] == 0]
            assert count == len(only)
            assert [(item.row, item.code) for item in listed] == [(row, codes[row]) for row in only[:4]]
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
