"""A fit on a store is the same model whichever way the store is given, and as `ccr fit` makes it."""

from __future__ import annotations

import numpy as np
import pytest

from ccr import ConceptClassifier, ConceptModel, Concepts
from ccr.data.shipped import shipped_store
from ccr.data.store import EmbeddingStore
from ccr.geometry import unit_rows


@pytest.fixture(scope="module")
def concepts() -> Concepts:
    rows = np.random.default_rng(0).choice(len(shipped_store()), 40, replace=False)
    X = shipped_store().X.astype(np.float32)
    return Concepts([f"photo {row}" for row in rows], unit_rows(X[rows] - X.mean(axis=0)))


def fitted(concepts: Concepts, store: EmbeddingStore, **given: object) -> ConceptModel:
    model = ConceptClassifier(concepts, max_iter=4, random_state=0)
    found: ConceptModel = model.fit(store, **given).model_  # type: ignore[arg-type]
    return found


def test_a_store_gives_the_same_model_whichever_way_it_is_given(concepts: Concepts) -> None:
    store = shipped_store()
    in_parts = fitted(concepts, store.select("train"), validation=store.select("val"))
    for model in (fitted(concepts, store), fitted(concepts, store.select("train"))):
        np.testing.assert_array_equal(model.head.coef, in_parts.head.coef)
        np.testing.assert_array_equal(model.concepts.embeddings, in_parts.concepts.embeddings)


def test_test_images_are_never_trained_on(concepts: Concepts) -> None:
    store = shipped_store()
    assert set(store.training.splits) == {"train"}
    watched = store.training.validation
    assert watched is not None
    assert set(watched.splits) == {"val"}


def test_other_selections_and_what_is_given_stay_as_they_are(concepts: Concepts) -> None:
    store = shipped_store()
    some = store.select("train").select(rows=np.arange(300))
    assert some.validation is None
    assert len(some.training) == 300
    assert len(store.select("test").training) == len(store.select("test"))
