"""An ONNX file with the bundled image tower says of a photo what Python says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from ccr import ConceptClassifier, ConceptModel, Concepts, EmbeddingStore
from ccr.data.datasets import open_dataset
from ccr.encoders import load_encoder
from ccr.errors import CCRError
from ccr.export import onnx_model as onnx_resize
from ccr.export.onnx_model import PIXELS, onnx_model
from ccr.geometry import unit_rows

FRUIT = Path(__file__).parents[2] / "src" / "ccr" / "data" / "demo_store"
#: Width and height; None is the photo as it is.
SIZES: list[tuple[int, int] | None] = [None, (224, 224), (640, 300), (90, 120), (250, 900)]
TALL = SIZES[-1]


@pytest.fixture(scope="module")
def model() -> ConceptModel:
    """A model of the demo's photos; its concepts are photos, too."""
    store = EmbeddingStore.open(FRUIT).select("train")
    rows = np.asarray(store.X, np.float32)
    concepts = Concepts([f"photo {row}" for row in range(0, len(rows), 20)], unit_rows(rows - rows.mean(axis=0))[::20])
    return ConceptClassifier(concepts, max_iter=2, random_state=0).fit(store).model_


@pytest.fixture(scope="module")
def photos() -> list[tuple[Image.Image, np.ndarray]]:
    """Photos of several sizes, with their embeddings by the bundled encoder."""
    try:
        taken = [sample.image() for sample in list(open_dataset("demo").select("test"))[::40]]
        images = [image if size is None else image.resize(size) for image, size in zip(taken, SIZES, strict=False)]
        return list(zip(images, load_encoder("bundled", threads=1).embed_images(images), strict=True))
    except CCRError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("flat_first", [True, False])
def test_a_file_with_the_encoder_says_what_python_says(
    flat_first: bool, model: ConceptModel, photos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both kinds of Pillow; one that never makes photos flat first would resize the tall one otherwise."""
    known = onnx_resize.flattens_first()
    monkeypatch.setattr(onnx_resize, "flattens_first", lambda: flat_first)
    built = onnx_model(model, with_encoder=True).SerializeToString()
    session = onnxruntime.InferenceSession(built, providers=["CPUExecutionProvider"])
    for (image, row), size in zip(photos, SIZES, strict=True):
        if size == TALL and flat_first != known:
            continue
        label, logits, codes = session.run(["label", "logits", "codes"], {PIXELS: np.asarray(image)})
        assert label[0] == model.predict(row[None])[0]
        assert np.abs(logits - model.logits(row[None])).max() < 1e-4
        assert np.array_equal(codes != 0, model.encode(row[None]).toarray() != 0), "the same concepts are active"
