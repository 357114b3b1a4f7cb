"""The wall: filters, sorts and counts against a plain loop over all photos."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr_studio.api.views import set_apart
from ccr_studio.filters import ConceptRange, Filtered, Selections, Wish
from ccr_studio.photos import Photos
from ccr_studio.seen import PlacedPhotos, SeenModel
from tests.studio.helpers import CLASSES


@pytest.fixture(scope="module")
def seen(store: EmbeddingStore, model: ConceptModel) -> SeenModel:
    return SeenModel(model, "0", PlacedPhotos(Photos(store)))


def test_columns_are_what_the_model_says(seen: SeenModel, store: EmbeddingStore, model: ConceptModel) -> None:
    names = np.array(seen.classes)
    assert (names[seen.predicted] == model.predict(store)).all()
    np.testing.assert_allclose(seen.confidence, model.predict_proba(store).max(axis=1), rtol=1e-5)
    assert (names[seen.truth] == store.y).all()
    scores = model.images(store).span(0, len(store)).numpy() @ model.concepts.embeddings[3]
    np.testing.assert_allclose(seen.values(model.names[3]), scores, atol=1e-5)
    for row in (0, 50, 103):
        ours, theirs = seen.explain(row), model.explain(store[row])
        assert ours.active == theirs.active
        np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-6)


wishes = st.builds(
    Wish,
    classes=st.lists(st.sampled_from(list(CLASSES)), max_size=2, unique=True).map(tuple),
    predicted=st.lists(st.sampled_from(list(CLASSES)), max_size=2, unique=True).map(tuple),
    splits=st.lists(st.sampled_from(["train", "val", "test"]), max_size=2, unique=True).map(tuple),
    right=st.sampled_from([None, "right", "wrong"]),
    low=st.sampled_from([0.0, 0.4, 0.7]),
    high=st.sampled_from([0.8, 1.0]),
    concepts=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([None, 0.0, 0.1]), st.sampled_from([None, 0.3])), max_size=2
    ),
    sort=st.sampled_from(["row", "confidence", "class", "predicted", "concept"]),
    descending=st.booleans(),
)


def holds(seen: SeenModel, wish: Wish, row: int, without: str = "") -> bool:
    """The filters, one photo at a time."""
    store = seen.photos.store
    checks: dict[str, bool] = {
        "classes": not wish.classes or store.labels[row] in wish.classes,
        "predicted": not wish.predicted or seen.classes[seen.predicted[row]] in wish.predicted,
        "splits": store.splits[row] in wish.splits if wish.splits else store.splits[row] != "test",
        "right": wish.right is None
        or (seen.classes[seen.predicted[row]] == store.labels[row]) == (wish.right == "right"),
        "confidence": wish.low <= seen.confidence[row] <= wish.high,
        "concepts": all(
            (one.above is None or seen.values(one.concept)[row] >= one.above)
            and (one.below is None or seen.values(one.concept)[row] <= one.below)
            for one in wish.concepts
        ),
        "selection": wish.rows is None or row in wish.rows,
    }
    return all(value for name, value in checks.items() if name != without)


def named(seen: SeenModel, wish: Wish) -> Wish:
    from dataclasses import replace

    ranges = tuple(ConceptRange(seen.model.names[at], low, high) for at, low, high in wish.concepts)  # type: ignore[misc]
    return replace(wish, concepts=ranges, by=seen.model.names[1] if wish.sort == "concept" else None)


@given(wish=wishes)
@settings(max_examples=60)
def test_filters_sorts_and_counts_agree_with_a_loop(seen: SeenModel, wish: Wish) -> None:
    wish = named(seen, wish)
    filtered = Filtered(seen, wish)
    rows = filtered.rows().tolist()
    everything = range(len(seen.photos))
    assert sorted(rows) == [row for row in everything if holds(seen, wish, row)]
    keys: dict[str, Any] = {
        "row": np.arange(len(seen.photos)),
        "confidence": seen.confidence,
        "class": seen.truth,
        "predicted": seen.predicted,
        "concept": seen.values(wish.by) if wish.by else None,
    }
    ordered = [keys[wish.sort][row] for row in rows]
    assert ordered == sorted(ordered, reverse=wish.descending)
    counts = filtered.counts()
    assert counts.total == len(rows)
    for name in CLASSES:
        number = seen.number(name)
        assert counts.classes[name] == sum(
            seen.truth[row] == number and holds(seen, wish, row, "classes") for row in everything
        )
    wrong = sum(not seen.right[row] and holds(seen, wish, row, "right") for row in everything)
    assert counts.right["wrong"] == wrong
    assert sum(counts.confidence) == sum(holds(seen, wish, row, "confidence") for row in everything)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(classes=("pear",)), "no class"),
        (Wish(splits=("dev",)), "no split"),
        (Wish(low=0.9, high=0.1), "lower bound first"),
        (Wish(sort="size"), "sorted by"),
        (Wish(sort="concept"), "needs its name"),
        (Wish(concepts=(ConceptRange("nobody", 0.0),)), "no concept"),
    ],
)
def test_bad_wishes_are_refused_in_words(seen: SeenModel, wish: Wish, words: str) -> None:
    with pytest.raises(CCRError, match=words):
        Filtered(seen, wish).rows()


def test_what_sets_a_selection_apart_is_counted_right(seen: SeenModel, tmp_path: Any) -> None:
    selections = Selections(seen.photos, tmp_path)
    rows = np.flatnonzero((seen.truth == 0) & seen.photos.open)
    key = selections.add(rows[::-1])
    assert key == selections.add(rows)  # known by what is in it
    assert Selections(seen.photos, tmp_path).get(key).tolist() == rows.tolist()
    apart = set_apart(seen, key, rows)
    others = np.setdiff1d(np.flatnonzero(seen.photos.open), rows)
    codes = seen.codes.toarray()
    for line in apart.concepts:
        column = seen.model.row(line.concept)
        assert line.inside == pytest.approx((codes[rows, column] != 0).mean())
        assert line.outside == pytest.approx((codes[others, column] != 0).mean())
    for bad in ("x" * 16, "../../etc", "0" * 16):
        with pytest.raises(CCRError, match="selection"):
            selections.get(bad)


def test_stores_without_splits_hold_some_photos_out(store: EmbeddingStore) -> None:
    class Plain(EmbeddingStore):
        splits = property(lambda self: np.full(len(self), None, dtype=object))  # type: ignore[assignment]

    photos = Photos(Plain.open(store.path))
    assert len(photos.test) == 0
    assert photos.open.all()
    assert 0 < len(photos.validation) < len(photos.training)
    assert not set(photos.validation.tolist()) & set(photos.training.tolist())
    assert len(photos.validation) + len(photos.training) == len(store)
