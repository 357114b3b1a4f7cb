"""hf: encoders, with real CLIP and SigLIP models of tiny size and random weights, saved to disk."""

import json
import shutil
import warnings

import numpy as np
import pytest
import torch

from ccr.encoders import load_encoder
from ccr.errors import CCRError, CCRWarning
from tests.data.helpers import picture

transformers = pytest.importorskip("transformers", reason="needs the hf extra")

WORDS = ["a", "photo", "of", "red", "green", "round", "skin"]
LENGTH = 48
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def tokenizer(words=WORDS):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: row for row, word in enumerate(["[PAD]", "[UNK]", "[BOS]", "[EOS]", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[BOS]", 2), ("[EOS]", 3)]
    inner.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=LENGTH, **names)


def build(kind, seed=0, words=WORDS):
    torch.manual_seed(seed)
    text = {
        **SMALL,
        "vocab_size": 4 + len(words),
        "max_position_embeddings": LENGTH,
        "eos_token_id": 3,
        "pad_token_id": 0,
    }
    vision = {**SMALL, "patch_size": 8}
    if kind == "clip":
        vision |= {"image_size": 32, "projection_dim": 12}
        text |= {"bos_token_id": 2, "projection_dim": 12}
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
        return transformers.CLIPModel(config)
    if kind == "siglip":
        return transformers.SiglipModel(
            transformers.SiglipConfig(
                text_config={**text, "projection_size": 16}, vision_config={**vision, "image_size": 32}
            )
        )
    config = transformers.Siglip2Config(
        text_config={**text, "projection_size": 16}, vision_config={**vision, "num_patches": 16}
    )
    return transformers.Siglip2Model(config)


def processor(kind):
    names = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor", "siglip2": "Siglip2ImageProcessor"}
    make = getattr(transformers, names[kind] + "Pil", None) or getattr(transformers, names[kind])
    if kind == "clip":
        return make(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    if kind == "siglip":
        return make(size={"height": 32, "width": 32})
    return make(patch_size=8, max_num_patches=16)


def save(folder, kind, seed=0, words=WORDS):
    build(kind, seed, words).save_pretrained(folder)
    processor(kind).save_pretrained(folder)
    tokenizer(words).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["clip", "siglip", "siglip2"])
def folder(request, tmp_path_factory):
    return save(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("clip"), "clip")


def load(folder, **options):
    return load_encoder(f"hf:{folder}", device="cpu", **options)


def test_images_and_texts_are_unit_rows_of_one_space(folder):
    encoder = load(folder)
    images = encoder.embed_images(picture(seed, (40, 30)) for seed in range(3))
    texts = encoder.embed_texts(["red", "green round skin"])
    assert images.shape == (3, encoder.dimension)
    assert texts.shape == (2, encoder.dimension)
    for rows in (images, texts):
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert encoder.embed_images([]).shape == (0, encoder.dimension)
    assert encoder.embed_texts([]).shape == (0, encoder.dimension)


def test_neighbours_and_batch_size_change_nothing_beyond_rounding(folder):
    encoder = load(folder)
    pictures = [picture(seed, (40, 30)) for seed in range(5)]
    whole = encoder.embed_images(pictures, batch_size=5)
    assert np.allclose(encoder.embed_images(pictures, batch_size=2), whole, atol=1e-5)
    assert np.allclose(encoder.embed_texts(["red", "a photo of red skin"])[:1], encoder.embed_texts(["red"]), atol=1e-5)


def test_texts_beyond_the_context_are_not_cut_in_silence(clip_folder):
    encoder = load(clip_folder)
    with pytest.warns(CCRWarning, match=r"1 text of more than the 48 tokens that the encoder reads, .* 'red red red"):
        encoder.embed_texts(["red " * 60, "red skin"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.embed_texts(["red " * 46])  # with its first and last token, exactly as many


def test_embeddings_are_the_models_own(clip_folder):
    model = transformers.CLIPModel.from_pretrained(clip_folder).eval()
    inputs = processor("clip")([picture(1)], return_tensors="pt")
    words = tokenizer()(["red skin"], return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs, input_ids=words["input_ids"], attention_mask=words["attention_mask"])
    encoder = load(clip_folder)
    assert np.allclose(encoder.embed_images([picture(1)]), output.image_embeds.numpy(), atol=1e-5)
    assert np.allclose(encoder.embed_texts(["red skin"]), output.text_embeds.numpy(), atol=1e-5)


def test_fingerprints_name_the_space(clip_folder, tmp_path):
    encoder = load(clip_folder)
    copy = tmp_path / "copy"
    shutil.copytree(clip_folder, copy)
    assert load(copy).fingerprint == encoder.fingerprint  # the same weights under another name
    prompted = load(clip_folder, template="a photo of {}")
    assert prompted.fingerprint == encoder.fingerprint
    assert prompted.text_fingerprint != encoder.text_fingerprint
    assert np.allclose(prompted.embed_texts(["red"]), encoder.embed_texts(["a photo of red"]))
    assert load(save(tmp_path / "other", "clip", seed=1)).fingerprint != encoder.fingerprint
    (file,) = [path for path in copy.iterdir() if "image_mean" in path.read_text(errors="ignore")]
    file.write_text(file.read_text().replace("0.48145466", "0.5"))
    assert load(copy).fingerprint != encoder.fingerprint  # other preprocessing, other space
    json.dumps(encoder.preprocessing)


def test_half_precision_weights_are_used_as_float32(clip_folder, tmp_path):
    folder = tmp_path / "half"
    shutil.copytree(clip_folder, folder)
    build("clip").to(torch.bfloat16).save_pretrained(folder)
    assert {tensor.dtype for tensor in load(folder)._model.parameters()} == {torch.float32}


def test_missing_parts_of_a_folder_are_explained(clip_folder, tmp_path):
    folder = tmp_path / "part"
    shutil.copytree(clip_folder, folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CCRError, match=r"it needs config\.json, model\.safetensors"):
        load(folder)


def test_pickled_weights_are_never_loaded(clip_folder, tmp_path):
    folder = tmp_path / "pickle"
    shutil.copytree(clip_folder, folder)
    (folder / "model.safetensors").unlink()
    torch.save(build("clip").state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(CCRError, match="cannot be used as an encoder"):
        load(folder)


def test_other_kinds_of_models_are_refused(tmp_path):
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    config.save_pretrained(tmp_path)
    with pytest.raises(CCRError, match="is a 'bert' model"):
        load(tmp_path)


def test_without_a_network_the_way_round_is_named(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CCRError, match=r"weights of 'nobody/no-clip'.*hf:FOLDER.*bundled"):
        load("nobody/no-clip")
