"""`hf:NAME_OR_FOLDER`: CLIP, SigLIP and SigLIP 2 through transformers, and their embeddings over patches."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image

from ccr.encoders.patches import Attended, Grid, LastLayer, patch_terms
from ccr.encoders.registry import centre_frame, checked_batch_size, checked_template, digest_of, unit, warn_cut
from ccr.encoders.torch_common import (
    TorchEncoder,
    affine,
    attended,
    catch,
    features_of,
    in_projection,
    layer_of,
    weights_digest,
)
from ccr.errors import CCRError
from ccr.explain import Frame, PatchTerms
from ccr.utils.arrays import import_extra
from ccr.utils.threads import resolve_device


@contextmanager
def no_bars(wanted: bool = True) -> Iterator[None]:
    """While inside, transformers draws no progress bars (if `wanted`); afterwards all is as it was."""
    from transformers.utils import logging

    if not wanted or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


# `hf:NAME_OR_FOLDER`: CLIP, SigLIP and SigLIP 2 through transformers, with its Pillow image processors.
_MODELS = {"clip": "CLIPModel", "siglip": "SiglipModel", "siglip2": "Siglip2Model"}
# Entries of a processor's config that pixels depend on; others come and go between versions.
_PREPROCESSING = [
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "size",
    "crop_size",
    "resample",
    "rescale_factor",
    "image_mean",
    "image_std",
    "patch_size",
    "max_num_patches",
]


class HFEncoder(TorchEncoder):
    """A CLIP-like model of the Hugging Face hub, or of a local folder, in float32.

    Parameters
    ----------
    target : a name on the hub, or a folder with the model, its image processor and its tokenizer.
    device : "cpu", "cuda", ... or "auto": a GPU if there is one.
    batch_size : images or texts that are embedded at a time, from 1.
    template : what texts are put into, with {} once where the text goes. None: texts are embedded as they are.
    """

    def __init__(self, target: str, *, device: str = "auto", batch_size: int = 32, template: str | None = None) -> None:
        self.name = f"hf:{target}"
        self.template = checked_template(template)
        self.batch_size = checked_batch_size(batch_size)
        self.device = resolve_device(device)
        parts = _load(target)
        self._model_type, self._processor, self._tokenizer = parts.kind, parts.processor, parts.tokenizer
        self._model = parts.model.float().eval().to(self.device)

    @property
    def preprocessing(self) -> dict[str, Any]:
        config = self._processor.to_dict()
        return {name: _plain(config[name]) for name in _PREPROCESSING if config.get(name) is not None}

    @cached_property
    def fingerprint(self) -> str:
        return digest_of(kind="hf", weights=weights_digest(self._model), preprocessing=self.preprocessing)

    def frame(self, image: Image.Image) -> Frame:
        """All of the picture, unless the processor cuts out the centre."""
        preprocessing, (width, height) = self.preprocessing, image.size
        size, crop = preprocessing.get("size") or {}, preprocessing.get("crop_size") or {}
        if not (preprocessing.get("do_center_crop") and crop):
            return Frame()
        crop_size = int(crop["width"]), int(crop["height"])
        if not preprocessing.get("do_resize", True):
            return centre_frame(width, height, short_side=min(width, height), crop=crop_size)
        if "shortest_edge" in size:
            return centre_frame(width, height, short_side=int(size["shortest_edge"]), crop=crop_size)
        across, down = crop_size[0] / int(size["width"]), crop_size[1] / int(size["height"])
        return Frame((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)

    def why_no_patches(self) -> str | None:
        vision = self._model.vision_model
        if hasattr(vision, "pre_layrnorm") or getattr(vision, "use_head", False):
            return None
        return "this SigLIP has no pooling head"

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        inputs = self._processor([image.convert("RGB")], return_tensors="pt")
        tensors = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        taken_apart = _clip if self._model_type == "clip" else _siglip
        grid = _grid(self._model, self._model_type, tensors)
        return patch_terms(*taken_apart(self._model, tensors), grid=grid, frame=self.frame(image), way=way)

    def _embed_images(self, images: list[Image.Image]) -> np.ndarray:
        inputs = self._processor([image.convert("RGB") for image in images], return_tensors="pt")
        return self._features(self._model.get_image_features, inputs)

    def _embed_texts(self, texts: list[str]) -> np.ndarray:
        # Every text is padded to the full length: SigLIP was trained so, and no text then depends on its neighbours.
        length = self._model.config.text_config.max_position_embeddings
        counts = [len(tokens) for tokens in self._tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        warn_cut(texts, counts, length)
        inputs = self._tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        tensors = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
        if self._model_type != "clip":  # SigLIP has no mask: it attends to the padding
            tensors.pop("attention_mask", None)
        return self._features(self._model.get_text_features, tensors)

    def _features(self, call: Callable[..., Any], inputs: Any) -> np.ndarray:
        with torch.inference_mode():
            output = call(**{name: tensor.to(self.device) for name, tensor in inputs.items()})
        return unit(features_of(output).float().cpu().numpy())


class _Parts(NamedTuple):
    """Kind of model, model, processor and tokenizer of one target."""

    kind: str
    model: Any
    processor: Any
    tokenizer: Any


def _load(target: str) -> _Parts:
    transformers = import_extra("transformers", "hf", "hf: encoders need transformers")
    _check_not_both(target)
    source: dict[str, Any] = {"local_files_only": Path(target).is_dir() or not _hub_is_known()}
    source["trust_remote_code"] = False  # said, or transformers asks on stdin whether to run what a folder brings
    # PIL: the other image processors need torchvision and give slightly other pixels
    pil: dict[str, Any] = (
        {"backend": "pil"} if int(transformers.__version__.split(".")[0]) >= 5 else {"use_fast": False}
    )
    try:
        with no_bars(source["local_files_only"]):  # a download keeps its bar
            return _load_parts(transformers, target, source, pil)
    except CCRError:
        raise
    except Exception as error:  # the hub, the file system and the parsers each have their own kinds of errors
        raise _explained(target, error) from error


def _check_not_both(target: str) -> None:
    """A folder that lies here under the name of a model on the hub is not taken for it."""
    if target.count("/") == 1 and target[0] not in "./~" and Path(target).exists():
        raise CCRError(
            f"hf:{target} is a name on the hub, but {Path(target).resolve()} lies here too: write hf:./{target} to use "
            "that folder, or work in another one"
        )


def _load_parts(transformers: Any, target: str, source: dict[str, Any], pil: dict[str, Any]) -> _Parts:
    config = transformers.AutoConfig.from_pretrained(target, **source)
    kind = str(config.model_type)
    if kind not in _MODELS:
        raise CCRError(f"hf: knows {', '.join(_MODELS)}; {target!r} is a {kind!r} model: choose a CLIP or SigLIP one")
    # safetensors only: a .bin file is a pickle and could run anything
    model = getattr(transformers, _MODELS[kind]).from_pretrained(target, use_safetensors=True, **source)
    processor = transformers.AutoImageProcessor.from_pretrained(target, **pil, **source)
    tokenizer = transformers.AutoTokenizer.from_pretrained(target, **source)
    return _Parts(kind, model, processor, tokenizer)


def _hub_is_known() -> bool:
    """Whether the hub's name can be resolved. If not, only what was downloaded before is used, instead of half a minute
    of retries. Behind a proxy names need not resolve."""
    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return True
    from huggingface_hub import constants  # comes with transformers

    host = urlsplit(constants.ENDPOINT).hostname
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False


def _explained(target: str, error: Exception) -> CCRError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if Path(target).is_dir():
        needs = "config.json, model.safetensors, preprocessor_config.json and the tokenizer's files"
        return CCRError(f"the folder {target} cannot be used as an encoder: {reason}; it needs {needs}")
    return CCRError(
        f"could not get the weights of {target!r} from the Hugging Face hub: {reason}. Without a network, download "
        f"them elsewhere (`hf download {target}`) and give the folder, as hf:FOLDER; or use the encoder `bundled`, "
        "which needs the package registry alone"
    )


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts only, so that JSON and hashes are stable."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(name): _plain(item) for name, item in sorted(value.items()) if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (float, str)):
        return value
    return int(value)


def _clip(model: Any, inputs: dict[str, Any]) -> tuple[LastLayer, Attended]:
    last, vision = model.vision_model.encoder.layers[-1], model.vision_model
    attention = last.self_attn
    layer = layer_of(
        affine(attention.out_proj.weight, attention.out_proj.bias),
        last.layer_norm2,
        last.mlp.fc1,
        last.mlp.fc2,
        last.mlp.activation_fn,
        final_norm=vision.post_layernorm,
        projection=model.visual_projection.weight,
    )
    tokens, embedding = catch(last, lambda: features_of(model.get_image_features(**inputs)))
    with torch.inference_mode():
        normed = last.layer_norm1(tokens)
    maps = [affine(part.weight, part.bias) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    heads = int(attention.num_heads)
    return layer, attended(normed[0], normed, maps, heads, residual=tokens[0], embedding=embedding)


def _siglip(model: Any, inputs: dict[str, Any]) -> tuple[LastLayer, Attended]:
    head = model.vision_model.head
    out = head.attention.out_proj
    layer = layer_of(affine(out.weight, out.bias), head.layernorm, head.mlp.fc1, head.mlp.fc2, head.mlp.activation_fn)
    tokens, embedding = catch(head, lambda: features_of(model.get_image_features(**inputs)))
    if "pixel_attention_mask" in inputs:  # SigLIP 2 pads its pictures
        tokens = tokens[inputs["pixel_attention_mask"][0].bool()]
    maps, heads = in_projection(head.attention), int(head.attention.num_heads)
    return layer, attended(head.probe[0, 0], tokens, maps, heads, residual=None, embedding=embedding)


def _grid(model: Any, kind: str, inputs: dict[str, Any]) -> Grid:
    if "spatial_shapes" in inputs:
        rows, columns = (int(size) for size in inputs["spatial_shapes"][0])
        return Grid(rows, columns, before=0)
    patch = int(model.config.vision_config.patch_size)
    height, width = inputs["pixel_values"].shape[-2:]
    return Grid(height // patch, width // patch, before=1 if kind == "clip" else 0)
