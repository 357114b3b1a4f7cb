"""The bundled encoder with its real weights: a few images, a few texts."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from ccr.data.datasets import open_dataset
from ccr.data.encoders import load_encoder
from ccr.data.encoders.adapter import load_adapter
from ccr.errors import FormatError

pytest.importorskip("onnxruntime", reason="needs the bundled extra")
pytest.importorskip("transformers", reason="needs the bundled extra")


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("bundled", threads=2)


@pytest.fixture(scope="module")
def photos():
    """Four photos: two watermelons, two satsumas."""
    dataset = open_dataset("demo").select("test")
    chosen = [[sample for sample in dataset if sample.label == label][:2] for label in ("Watermelon", "Satsumas")]
    return [sample.image() for pair in chosen for sample in pair]


@pytest.fixture(scope="module")
def rows(encoder, photos):
    return encoder.embed_images(photos)


def test_images_are_unit_rows(encoder, rows):
    assert rows.shape == (4, encoder.dimension)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert encoder.embed_images([]).shape == (0, 512)


def test_likes_are_near(rows):
    cosines = rows @ rows.T
    assert min(cosines[0, 1], cosines[2, 3]) > cosines[:2, 2:].max()


def test_an_image_never_depends_on_its_neighbours_or_threads(encoder, photos, rows):
    one_thread = load_encoder("bundled", threads=1)
    assert np.array_equal(one_thread.embed_images(photos[::-1], batch_size=3)[::-1], rows)
    crops = [encoder.crop(photo) for photo in photos[:1]]
    assert np.array_equal(encoder.embed_images(crops), rows[:1])


# First 64 numbers, in thousandths, of photo 1163. Saturating int8 kernels (a CPU without VNNI, and without the
# option that the encoder sets) gave a cosine of 0.0 to them; other fruit have 0.5 to 0.65.
PHOTO = "1163"
KNOWN = """
36 -62 -34 -17 41 36 -4 13 -20 2 6 20 -40 -9 -55 1 -16 36 52 -10 28 35 37 -41 17 -11 38 31 4 -6 25 0 9 -13 -11
-43 2 -20 34 36 -36 24 10 -31 -19 18 -33 25 6 -24 14 24 -6 35 -33 1 20 39 10 -18 64 -20 18 2"""


def test_int8_kernels_do_not_saturate(encoder):
    (sample,) = [sample for sample in open_dataset("demo") if sample.key == PHOTO]
    known = np.array(KNOWN.split(), dtype=float)
    found = encoder.embed_images([sample.image()])[0, :64]
    assert found @ known / np.linalg.norm(found) / np.linalg.norm(known) > 0.9


def test_the_template_is_part_of_the_text_fingerprint_alone(encoder):
    prompted = load_encoder("bundled", template="a photo of {}")
    assert prompted.fingerprint == encoder.fingerprint
    assert prompted.text_fingerprint != encoder.text_fingerprint


@pytest.fixture
def small_adapter(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {
        "landmarks": (5, 384),
        "kernel_weight": (5, 512),
        "linear_weight": (384, 512),
        "bias": 512,
        "image_mean": 512,
    }
    tensors = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "a.safetensors", {"gamma": "0.5", "templates": json.dumps(["{}", "a photo of {}"])})
    return tmp_path / "a.safetensors", tensors


def test_the_adapter_follows_its_formula(small_adapter):
    path, tensors = small_adapter
    vectors = {"red": np.eye(384)[0], "a photo of red": np.eye(384)[1]}
    found = load_adapter(path)(["red"], lambda texts: np.stack([vectors[text] for text in texts]))
    wide = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    sentence = (vectors["red"] + vectors["a photo of red"]) / np.sqrt(2)
    kernel = np.exp(-2 * 0.5 * (1 - wide["landmarks"] @ sentence))
    expected = kernel @ wide["kernel_weight"] + sentence @ wide["linear_weight"] + wide["bias"]
    assert np.allclose(found[0], expected / np.linalg.norm(expected), atol=1e-4)
    alone = load_adapter(path)(["red"], lambda texts: np.stack([vectors[text] for text in texts]), "{}")
    assert not np.allclose(alone, found)


def test_a_damaged_adapter_is_explained(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(FormatError, match="must be a text adapter"):
        load_adapter(tmp_path / "a.safetensors")


def test_texts_find_their_images(encoder, rows, capfd):
    texts = encoder.embed_texts(["watermelon", "orange satsumas"])
    assert texts.shape == (2, 512)
    assert np.allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)
    scores = (rows - rows.mean(axis=0)) @ texts.T
    assert scores[:2, 0].min() > scores[2:, 0].max()
    assert scores[2:, 1].min() > scores[:2, 1].max()
    alone = encoder.embed_texts(["watermelon"])
    assert np.allclose(alone[0], texts[0], atol=1e-5)  # no text depends on its neighbours
    assert capfd.readouterr() == ("", "")  # no bars, no warnings
    assert encoder.embed_texts([]).shape == (0, 512)
    assert encoder.image_mean.shape == (512,)
