"""Classes that are numbers or booleans: a store has labels as texts, and the model keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.classifier import ConceptClassifier
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr_studio.work.refits import _own
from tests.data.helpers import PixelEncoder
from tests.studio.helpers import CONCEPTS, client_of, finish, make_bench, write_store


@pytest.mark.parametrize("kind", [lambda number: 9 + number, lambda number: number > 0])
def test_classes_stay_what_they_are(kind: Callable[[Any], Any], tmp_path: Path) -> None:
    texts = PixelEncoder().embed_texts(CONCEPTS)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    X = texts[y] + rng.normal(0, 0.3, (240, texts.shape[1])) / np.sqrt(texts.shape[1])
    own = kind(y)
    write_store(tmp_path / "store", X, np.array([str(label) for label in own.tolist()]))
    store = EmbeddingStore.open(tmp_path / "store")
    model = ConceptClassifier(Concepts(CONCEPTS, texts), max_iter=5, random_state=0).fit(np.asarray(store), own).model_
    bench = make_bench(store, model, tmp_path)
    client = client_of(bench)
    for refit in ("head", "full"):
        job = bench.refit(refit, {})
        finish(bench)
        assert job.state == "done", job.message
        fitted = bench.now().model
        assert fitted.classes.dtype == model.classes.dtype
        assert fitted.classes.tolist() == model.classes.tolist()
        assert bench.now().right.mean() == pytest.approx((fitted.predict(store) == own).mean())
    report = client.get("/api/exports/report.html")
    assert report.status_code == 200, report.text
    assert f"{int(bench.now().right[bench.photos.validation].mean() * 1000) / 10:.1f}" in report.text
    bench.close()


def test_labels_become_the_models_own_unless_one_is_new() -> None:
    assert _own(np.array(["10", "9"]), np.array([9, 10])).tolist() == [10, 9]
    assert _own(np.array(["True"]), np.array([False, True])).tolist() == [True]
    assert _own(np.array(["9", "pear"]), np.array([9, 10])).tolist() == ["9", "pear"]
    assert _own(np.array([], dtype=str), np.array([9, 10])).tolist() == []
