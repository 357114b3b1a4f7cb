"""open_clip: encoders, with a real model of open_clip and random weights."""

import os

import numpy as np
import pytest

from ccr.encoders import load_encoder
from ccr.errors import CCRError
from tests.data.helpers import picture

try:
    import open_clip
except Exception as error:  # a torchvision that does not fit raises RuntimeError
    if os.environ.get("CCR_REQUIRE_OPEN_CLIP"):  # make test-open-clip: here a skip would be a failure
        raise
    pytest.skip(f"open_clip cannot be imported here ({error}): run make test-open-clip", allow_module_level=True)

MODEL = "RN50-quickgelu"  # the smallest that open_clip knows by name


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(open_clip.create_model(MODEL, pretrained=None).state_dict(), path)
    return path


def test_a_local_checkpoint_embeds(checkpoint):
    encoder = load_encoder(f"open_clip:{MODEL}/{checkpoint}", device="cpu")
    images = encoder.embed_images([picture(1, (250, 230)), picture(2, (250, 230))], batch_size=1)
    texts = encoder.embed_texts(["red skin"])
    assert images.shape == (2, encoder.dimension)
    assert np.allclose(np.linalg.norm(np.concatenate([images, texts]), axis=1), 1, atol=1e-5)
    plain = load_encoder(f"open_clip:RN50/{checkpoint}", device="cpu")
    assert plain.fingerprint != encoder.fingerprint  # the same weights with the other activation


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ViT-B-16/openai", "use open_clip:ViT-B-16-quickgelu/openai"),
        ("ViT-B-16-quickgelu/laion2b_s34b_b88k", "neither a file nor weights|other activation"),
        ("No-Such-Model/openai-not", "has no model"),
        ("ViT-B-16/nothing", "neither a file nor weights"),
    ],
)
def test_wrong_pairs_are_refused(target, message):
    with pytest.raises(CCRError, match=message):
        load_encoder(f"open_clip:{target}", device="cpu")


def test_patches_add_up_to_the_embedding(tmp_path):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-32", pretrained=None)
    for weights in model.visual.parameters():
        torch.nn.init.normal_(weights, std=0.05)  # biases too, which start at zero
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    encoder = load_encoder(f"open_clip:ViT-B-32/{tmp_path / 'model.safetensors'}", device="cpu")
    assert encoder.why_no_patches() is None
    patches = encoder.patch_terms(picture(1, (250, 230)))
    assert patches.terms.shape[:2] == (7, 7)
    norm = np.linalg.norm(patches.embedding)
    assert np.linalg.norm(patches.rest["rounding"]) < 1e-5 * norm
    assert np.allclose(patches.embedding / norm, encoder.embed_images([picture(1, (250, 230))])[0], atol=1e-5)


def test_a_model_without_a_class_token_says_why_not(checkpoint):
    encoder = load_encoder(f"open_clip:{MODEL}/{checkpoint}", device="cpu")
    assert "no plain vision transformer" in encoder.why_no_patches()
