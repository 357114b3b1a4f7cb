"""What all encoders share, and the checks of open_clip that need no open_clip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ccr.encoders import load_encoder, parse_spec
from ccr.encoders.openclip import check_activation, explain_import, split_target
from ccr.encoders.registry import ClipPreprocess, batches, digest_of, fill_template
from ccr.errors import CCRError
from ccr.utils.threads import resolve_device
from tests.data.helpers import picture


@pytest.mark.parametrize(
    ("spec", "kind", "target"),
    [
        ("bundled", "bundled", ""),
        (" hf:openai/clip-vit-base-patch16 ", "hf", "openai/clip-vit-base-patch16"),
        ("hf:C:/models/clip", "hf", "C:/models/clip"),
        ("open_clip:ViT-B-16-quickgelu/openai", "open_clip", "ViT-B-16-quickgelu/openai"),
    ],
)
def test_specs_are_read(spec, kind, target):
    assert parse_spec(spec) == (kind, target)


@pytest.mark.parametrize("spec", ["", "clip", "hf:", "hf", "bundled:x", "timm:vit"])
def test_other_specs_are_refused_with_an_example(spec):
    with pytest.raises(CCRError, match="try 'hf:openai/clip-vit-base-patch16' or 'bundled'"):
        load_encoder(spec)


def test_options_are_checked_before_anything_is_loaded():
    with pytest.raises(CCRError, match="batch_size must be at least 1, got 0"):
        load_encoder("bundled", batch_size=0)
    with pytest.raises(CCRError, match="exactly once"):
        load_encoder("bundled", template="a photo")
    with pytest.raises(CCRError, match="device must be"):
        resolve_device("quantum")


def test_texts_are_data_in_templates():
    assert fill_template("a {} on a table", ["{}", "%s", "<b>"]) == [
        "a {} on a table",
        "a %s on a table",
        "a <b> on a table",
    ]
    assert fill_template(None, ["x"]) == ["x"]
    with pytest.raises(CCRError, match="put it in a list"):
        fill_template(None, "x")


@given(st.lists(st.integers()), st.integers(1, 9))
def test_batches_lose_nothing(items, size):
    pieces = list(batches(items, size))
    assert [item for piece in pieces for item in piece] == items
    assert all(len(piece) == size for piece in pieces[:-1])


def test_digests_are_stable_and_tell_parts_apart():
    assert digest_of(a=1, b=[2]) == digest_of(b=[2], a=1) != digest_of(a=1, b=[3])
    assert digest_of(kind="x") == "e579f8356b455e01"


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_crop_is_square_and_the_crop_of_itself(width, height):
    preprocess = ClipPreprocess(size=16)
    crop = preprocess.crop(picture(width, (width, height)))
    assert crop.size == (16, 16)
    assert np.array_equal(np.asarray(preprocess.crop(crop)), np.asarray(crop))


def test_preprocessing_is_transformers_for_a_square_image():
    transformers = pytest.importorskip("transformers", reason="needs the hf extra")
    image = picture(1, (300, 300))
    processor = getattr(transformers, "CLIPImageProcessorPil", transformers.CLIPImageProcessor)()
    expected = processor(image, return_tensors="np")["pixel_values"]
    assert np.allclose(ClipPreprocess()(image), expected, atol=1e-5)


def test_extreme_shapes_are_embedded():
    for size in ((2000, 1), (1, 2000)):
        assert ClipPreprocess(size=8).crop(Image.new("RGB", size)).size == (8, 8)


@pytest.mark.parametrize("model", ["ViT-B-16", "ViT-L-14-336", "RN50"])
def test_openai_weights_without_quickgelu_are_refused(model):
    with pytest.raises(CCRError, match=f"use open_clip:{model}-quickgelu/openai"):
        check_activation(model, "openai")
    with pytest.raises(CCRError, match="QuickGELU"):
        load_encoder(f"open_clip:{model}/openai")


def test_other_pairs_pass():
    check_activation("ViT-B-16-quickgelu", "openai")
    check_activation("ViT-B-16", "laion2b_s34b_b88k")


def test_open_clip_targets():
    assert split_target("ViT-B-16//data/w.safetensors") == ("ViT-B-16", "/data/w.safetensors")
    assert split_target("ViT-B-16/w/x.pt") == ("ViT-B-16", "w/x.pt")
    for target in ("ViT-B-16", "ViT-B-16/", "/openai"):
        with pytest.raises(CCRError, match="MODEL/TAG"):
            split_target(target)


def test_import_failures_of_open_clip_are_explained():
    text = str(explain_import(RuntimeError("operator torchvision::nms does not exist")))
    assert "CUDA build" in text
    assert "bundled" in text
    assert 'pip install "ccr-xai[open-clip]"' in str(explain_import(ImportError("No module named 'open_clip'")))
