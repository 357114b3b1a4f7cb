"""The bundled encoder with its real weights: a few images, a few texts."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from ccr.data.datasets import open_dataset
from ccr.encoders import load_encoder
from ccr.encoders.bundled import BLOCK, Product, load_adapter, spelled
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


WORDS = ("red", "fire engine", "engine", "wings")


@pytest.fixture
def small_adapter(tmp_path):
    """An adapter of four words, and its tensors in wide numbers."""
    rng = np.random.default_rng(0)
    tensors = {
        "words": np.frombuffer("\n".join(WORDS).encode(), np.uint8),
        "points": rng.integers(-127, 128, (4, 384)).astype(np.int8),
        "points_scale": np.full(4, 1e-3, np.float32),
        "weights": rng.integers(-127, 128, (4, 512)).astype(np.int8),
        "weights_scale": rng.random(4).astype(np.float32),
        "noise": rng.random(4).astype(np.float32),
        "image_mean": rng.standard_normal(512).astype(np.float32),
    }
    save_file(tensors, tmp_path / "a.safetensors", {"gamma": "0.5", "word_share": "0.3"})
    wide = {name: one.astype(np.float64) for name, one in tensors.items()}
    for name in ("points", "weights"):
        wide[name] *= wide[f"{name}_scale"][:, None]
    return load_adapter(tmp_path / "a.safetensors"), wide


def test_the_adapter_follows_its_formula(small_adapter):
    adapter, wide = small_adapter
    f = lambda x: np.exp(-2 * 0.5 * (1 - wide["points"] @ x)) @ wide["weights"]  # noqa: E731
    missed = wide["noise"][:, None] * wide["weights"]
    true = np.array([f(point) for point in wide["points"]]) + missed
    sentence = np.eye(384)[0]
    for text, known in (("a blue thing", []), ("Red fire-engine!", [0, 1]), ("red wing of an engine", [0, 3, 2])):
        expected = f(sentence)
        if known:
            expected = expected + (missed[known] + 0.3 * true[known]).mean(axis=0)
        found = adapter.directions(sentence[None].astype(np.float32), [text])[0]
        assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-4), text


def test_known_words_are_found_longest_first_and_in_either_number(small_adapter):
    adapter, _ = small_adapter
    named = lambda text: [WORDS[row] for row in adapter.known_words(text)]  # noqa: E731
    assert named("a red fire engine") == ["red", "fire engine"]
    assert named("engines on fire, one wing") == ["engine", "wings"]
    assert named("") == named("\ud800 123 _ !") == []


@given(st.text(max_size=40))
def test_a_spelling_is_spelled_as_itself(text):
    assert spelled(spelled(text)) == spelled(text)


def test_a_known_word_has_the_direction_that_it_was_fitted_to(encoder):
    """Ridge regression: what the fit misses at a word is its noise times its weight, so that nothing is missed."""
    adapter = encoder._adapter
    rows = np.arange(0, len(adapter.words), 997)
    true = adapter.predict(adapter.points[rows]) + adapter.noise[rows, None] * adapter.weights[rows]
    assert np.abs(np.linalg.norm(true, axis=1) - 1).max() < 0.05  # fitted to unit rows, kept as bytes
    names = [word for word, row in adapter.words.items() if row in rows]
    assert ((encoder.embed_texts(names) * true).sum(axis=1) > 0.95).all()


def test_no_name_of_cifar10_was_trained_on(encoder):
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    never = re.compile(rf"\b({'|'.join(names)})s?\b")
    assert not [word for word in encoder._adapter.words if never.search(word)]
    assert {"beak", "saddle", "wheel", "striped"} <= encoder._adapter.words.keys()


def test_a_damaged_adapter_is_explained(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(FormatError, match="must be a text adapter"):
        load_adapter(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.zeros((3, 512), np.int8), "weights_scale": np.ones(3, np.float32)},
        {"points": np.zeros((4, 12), np.int8)},
        {"noise": np.full(4, np.nan, np.float32)},
        {"weights_scale": np.full(4, np.inf, np.float32)},
        {"image_mean": np.zeros((2, 512), np.float32)},
        {"words": np.frombuffer(b"red\nred\nengine\nwings", np.uint8)},
        {"words": np.frombuffer(b"red", np.uint8)},
        {"gamma": "nan"},
        {"word_share": "inf"},
    ],
    ids=str,
)
def test_an_adapter_whose_parts_do_not_belong_together_is_refused(small_adapter, tmp_path, change):
    """Its shapes were first seen in a product, where torch broke off, and NaN not at all."""
    with safe_open(tmp_path / "a.safetensors", "numpy") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, value in change.items():
        (metadata if isinstance(value, str) else tensors)[name] = value
    save_file(tensors, tmp_path / "a.safetensors", metadata)
    with pytest.raises(FormatError, match="must be a text adapter"):
        load_adapter(tmp_path / "a.safetensors")


def test_texts_find_their_images(encoder, rows, capfd):
    texts = encoder.embed_texts(["watermelon", "orange satsumas"])
    assert texts.shape == (2, 512)
    assert np.allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)
    scores = (rows - rows.mean(axis=0)) @ texts.T
    assert scores[:2, 0].min() > scores[2:, 0].max()
    assert scores[2:, 1].min() > scores[:2, 1].max()
    assert capfd.readouterr() == ("", "")  # no bars, no warnings
    assert encoder.embed_texts([]).shape == (0, 512)
    assert encoder.image_mean.shape == (512,)


def test_ten_names_sort_real_images(encoder, clip):
    """No image or name of CIFAR-10 was trained on."""
    names, images = np.unique(clip.y_test), np.asarray(clip.X_test, dtype=np.float32)
    scores = (images - images.mean(axis=0)) @ encoder.embed_texts(list(names)).T
    assert (names[scores.argmax(axis=1)] == clip.y_test).mean() >= 0.9


def test_a_text_depends_on_nothing_but_itself(encoder):
    texts = ["red wing", "apple", "red wing", "a long curved bill", *(f"{n} berries" for n in range(2 * BLOCK))]
    together = encoder.embed_texts(texts)
    assert np.array_equal(together[0], together[2])
    alone = load_encoder("bundled", threads=1)
    for row in (0, 1, 3, len(texts) - 1):
        assert np.array_equal(alone.embed_texts([texts[row]])[0], together[row])  # other threads, no neighbours
    assert np.array_equal(encoder.embed_texts(texts[::-1]), together[::-1])
    template = encoder.embed_texts(["apple"], template="a drawing of {}")
    assert not np.allclose(template[0], together[1], atol=1e-3)


def test_a_text_without_a_known_word_is_predicted_alone(encoder):
    adapter, sentences = encoder._adapter, encoder._sentences
    predicted = adapter.predict(sentences.embed(["яблоко"]))[0]
    assert np.allclose(encoder.embed_texts(["яблоко"])[0], predicted / np.linalg.norm(predicted), atol=1e-6)


def test_known_words_are_looked_up_in_the_text_and_not_in_the_template(encoder):
    adapter, sentences = encoder._adapter, encoder._sentences
    assert "photo" in adapter.words
    found = encoder.embed_texts(["zyxwv"], template="a photo of {}")[0]
    predicted = adapter.predict(sentences.embed(["a photo of zyxwv"]))[0]
    assert np.allclose(found, predicted / np.linalg.norm(predicted), atol=1e-6)


@pytest.mark.parametrize("rows", [41, 48, 54, 78, 80, 256])
def test_weights_that_are_laid_out_once_give_the_same_bits(monkeypatch, rows):
    """Without torch's calls for it they are laid out in each product. Products have so many tokens, or texts."""
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in ((1152, 384), (1152,), (rows, 384)))
    with torch.inference_mode():
        once = Product(weight, bias, rows=80)(x)
        monkeypatch.setattr("ccr.encoders.bundled._LAYING_OUT", ("missing",))
        each_time = Product(weight, bias, rows=80)(x)
    assert torch.equal(once, each_time)
    assert torch.allclose(once, x @ weight.T + bias, atol=1e-4)
