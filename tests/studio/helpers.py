"""Small real parts for the tests of the studio: pictures, their store, a model, a workbench."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccr.core.coding import HardThreshold
from ccr.core.concepts import Concepts
from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.models.classifier import ConceptClassifier
from ccr.models.concept_model import ConceptModel
from ccr.studio import serving
from ccr.studio.workbench import Workbench
from tests.data.helpers import PixelEncoder, encoded

#: A class and a concept whose names would do something, if anybody let them.
HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = {"apple": (200, 40, 40), "lime": (60, 180, 60), "plum": (110, 40, 130), HOSTILE: (60, 80, 200)}
CONCEPTS = [*(f"word {number}" for number in range(27)), HOSTILE]
COUNTS = {"train": 16, "val": 5, "test": 5}


def colour_picture(name: str, seed: int) -> Image.Image:
    """A noisy picture of a class's colour, with a stripe of another."""
    rng = np.random.default_rng([seed, len(name)])
    pixels = np.clip(np.array(CLASSES[name]) + rng.normal(0, 55, (40, 40, 3)), 0, 255)
    at = int(rng.integers(0, 30))
    pixels[at : at + 9] = rng.integers(0, 255, 3)
    return Image.fromarray(pixels.astype(np.uint8))


def make_store(folder: Path) -> EmbeddingStore:
    """Pictures of four classes in three splits, embedded."""
    for split, count in COUNTS.items():
        for name in CLASSES:
            place = folder / "pictures" / split / name
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                seed = number + 100 * list(COUNTS).index(split)
                (place / f"{number}.png").write_bytes(encoded(colour_picture(name, seed)))
    embed_dataset(open_dataset(folder / "pictures"), PixelEncoder(), folder / "store", workers=0)
    return EmbeddingStore.open(folder / "store")


def fit_model(store: EmbeddingStore) -> ConceptModel:
    texts = Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    train = store.select("train")
    estimator = ConceptClassifier(texts, coder=HardThreshold(length=6), max_iter=12, random_state=0)
    return estimator.fit(train).model_


def make_bench(store: EmbeddingStore, model: ConceptModel | None, folder: Path, **options: Any) -> Workbench:
    """A workbench with the encoder at hand."""
    bench = serving.open_workbench(store, model, folder / "session", models=folder / "models", **options)
    bench.words._load = PixelEncoder
    bench.words.start()
    assert bench.words.encoder is not None
    return bench


def finish(bench: Workbench) -> None:
    """Wait for the running refit."""
    for _ in range(1200):
        if not bench.refits.running:
            return
        time.sleep(0.05)
    raise AssertionError("the refit does not end")
