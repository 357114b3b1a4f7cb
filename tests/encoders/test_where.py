"""Where in the picture with real encoders: bundled, and tiny random CLIP, SigLIP and SigLIP 2."""

import numpy as np
import pytest
import torch

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.encoders import load_encoder
from ccr.encoders.bundled import with_outputs
from ccr.encoders.registry import ClipPreprocess, unit
from ccr.encoders.torch_common import in_projection
from ccr.errors import CCRError
from ccr.explain import Frame
from ccr.photos.on_photos import explain_image, split_image, why_not_exact
from tests.data.helpers import picture

transformers = pytest.importorskip("transformers", reason="needs the hf extra")
from tests.encoders.test_hf import load, save  # noqa: E402


@pytest.fixture(scope="module", params=["clip", "siglip", "siglip2"])
def encoder(request, tmp_path_factory):
    """Random weights, biases and norms too: they start at 0 and 1, where half of the formulas could be wrong unseen."""
    encoder = load(save(tmp_path_factory.mktemp(request.param), request.param))
    torch.manual_seed(1)
    for weights in encoder._model.vision_model.parameters():
        torch.nn.init.normal_(weights, mean=0.05, std=0.3)
    return encoder


def model_of(encoder, pictures):
    """A model on the embeddings of some pictures, with the data's mean and metric."""
    X = np.concatenate([encoder.embed_images(pictures)] * 8)
    X = X + np.random.default_rng(0).normal(scale=0.02, size=X.shape).astype(np.float32)
    y = np.tile(np.arange(len(pictures)) % 2, 8)
    texts = np.random.default_rng(1).normal(size=(10, X.shape[1]))
    concepts = Concepts([f"concept {row}" for row in range(10)], texts)
    return (
        ConceptClassifier(concepts, coder=HardThreshold(length=4), fidelity=0.9, max_iter=2, weights_per_class=None)
        .fit(X, y)
        .model_
    )


@pytest.mark.parametrize("size", [(40, 30), (33, 61), (32, 32)])
def test_the_embedding_is_the_encoders_and_nothing_is_left_over(encoder, size):
    photo = picture(1, size)
    patches = split_image(encoder, photo)
    norm = np.linalg.norm(patches.embedding)
    assert patches.way == "exact"
    assert np.allclose(patches.embedding / norm, encoder.embed_images([photo])[0], atol=1e-5)
    # Everything but rounding is computed on its own: that it makes the embedding is no matter of definition.
    assert np.linalg.norm(patches.rest["rounding"]) < 1e-5 * norm
    assert np.linalg.norm(patches.terms.sum(axis=(0, 1))) > 1e-3 * norm


def test_scores_are_patches_plus_rest(encoder):
    pictures = [picture(seed, (40, 30)) for seed in range(6)]
    model = model_of(encoder, pictures)
    for photo in pictures:
        where = explain_image(model, encoder, photo).where
        together = where.maps.sum(axis=(1, 2)) + sum(part for name, part in where.rest.items() if name != "rounding")
        assert np.allclose(together, where.codes, rtol=1e-4, atol=1e-5)
        plain = model.explain(encoder.embed_images([photo])[0])
        assert where.concepts == plain.active


@pytest.mark.parametrize("way", ["values", "occlusion"])
def test_the_other_ways_state_what_does_not_add_up(encoder, way):
    patches = split_image(encoder, picture(2, (40, 30)), way=way)
    assert patches.way == way
    assert np.allclose(patches.terms.sum(axis=(0, 1)) + patches.rest["not split"], patches.embedding, atol=1e-5)


def test_frames_are_what_the_encoder_sees(encoder):
    kind, frame = encoder._model_type, encoder.frame(picture(1, (80, 40)))
    assert frame == (Frame(0.25, 0.0, 0.75, 1.0) if kind == "clip" else Frame())


def test_a_crop_is_its_frame():
    photo, prepare = picture(3, (300, 400)), ClipPreprocess(size=100)
    assert prepare.frame(photo).pixels(300, 400) == (0, 50, 300, 350)
    assert prepare.frame(picture(3, (100, 100))) == Frame()


class Plain:
    """An encoder that can embed and nothing else: the mean colours of the picture's halves."""

    name, fingerprint, dimension = "plain", "plain", 6

    def embed_images(self, images, *, batch_size=None):
        rows = []
        for image in images:
            pixels = np.asarray(image.convert("RGB"), np.float64) / 255
            middle = pixels.shape[1] // 2
            rows.append(np.concatenate([pixels[:, :middle].mean(axis=(0, 1)), pixels[:, middle:].mean(axis=(0, 1))]))
        rows = np.array(rows)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_any_encoder_has_occlusion():
    from PIL import Image

    photo, seen = Image.new("RGB", (64, 64), "blue"), []
    photo.paste("red", (48, 0, 64, 16))  # only the upper right corner is another
    patches = split_image(Plain(), photo, tell=lambda done, total, what: seen.append((done, total)))
    assert patches.way == "occlusion"
    size = np.linalg.norm(patches.terms, axis=2)
    assert np.unravel_index(size.argmax(), size.shape) == (0, 7)
    assert seen[-1] == (50, 50)
    assert "plain does not offer it" in why_not_exact(Plain())
    with pytest.raises(CCRError, match="use occlusion"):
        split_image(Plain(), photo, way="exact")
    with pytest.raises(CCRError, match="way must be one of"):
        split_image(Plain(), photo, way="magic")


def test_another_encoder_is_refused(encoder, tmp_path):
    pictures = [picture(seed, (40, 30)) for seed in range(4)]
    model = model_of(encoder, pictures)
    from dataclasses import replace

    model = replace(model, provenance=replace(model.provenance, encoder_fingerprint="another"))
    with pytest.raises(CCRError, match="embeddings of encoder another"):
        explain_image(model, encoder, pictures[0])
    model = replace(model, provenance=replace(model.provenance, encoder_fingerprint=None))
    with pytest.raises(CCRError, match="smoothing must be at least 0"):
        explain_image(model, encoder, pictures[0], smoothing=-1)


def test_a_graph_with_further_outputs_is_one_that_onnx_reads():
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["inner"])
    last = onnx.helper.make_node("Neg", ["inner"], ["y"])
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    plain = onnx.helper.make_model(onnx.helper.make_graph([node, last], "g", kinds[:1], kinds[1:]))
    names = ["inner", "n" * 300]  # a length of two bytes
    found = onnx.load_from_string(with_outputs(plain.SerializeToString(), names))
    assert [output.name for output in found.graph.output] == ["y", *names]
    assert found.graph.node == plain.graph.node


@pytest.mark.parametrize("row", [0, 300])
def test_bundled_adds_up_on_a_real_photo(row):
    pytest.importorskip("onnxruntime", reason="needs the bundled extra")
    from ccr.data.datasets import open_dataset

    photo = list(open_dataset("demo").select("test"))[row].image()
    encoder = load_encoder("bundled", threads=1)
    patches = encoder.patch_terms(photo)
    norm = np.linalg.norm(patches.embedding)
    assert patches.terms.shape == (14, 14, 512)
    plain = encoder.embed_images([photo])
    assert np.array_equal(unit(patches.embedding[None]), plain)  # the plain graph's, to the bit
    together = patches.terms.sum(axis=(0, 1)) + sum(patches.rest.values())
    assert np.allclose(together, patches.embedding, rtol=1e-4, atol=1e-5 * norm)
    # int8 rounds: what four products of the last layer lose is a few percent, and stated.
    assert np.linalg.norm(patches.rest["rounding"]) < 0.06 * norm


def test_an_attention_that_cannot_be_taken_apart_says_what_to_use() -> None:
    uneven = torch.nn.MultiheadAttention(8, 2, kdim=4, vdim=4)
    with pytest.raises(CCRError, match=r"different widths.*occlusion"):
        in_projection(uneven)
