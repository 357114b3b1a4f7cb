"""`hf:NAME_OR_FOLDER`: CLIP, SigLIP and SigLIP 2 through transformers, with its Pillow image processors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image

from ccr.core.devices import resolve_device
from ccr.core.explain import Frame, PatchTerms
from ccr.data.encoders import hf_patches
from ccr.data.encoders.progress_bars import no_bars
from ccr.data.encoders.protocol import checked_batch_size, checked_template, digest_of, unit, warn_cut
from ccr.data.encoders.torch_common import TorchEncoder, features_of, weights_digest
from ccr.errors import CCRError, MissingExtraError

_MODELS = {"clip": "CLIPModel", "siglip": "SiglipModel", "siglip2": "Siglip2Model"}
# What the pixels depend on; other entries of a processor's config come and go between versions.
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
    target : str
        A name on the hub, or a folder with the model, its image processor and its tokenizer.
    device : str
        "cpu", "cuda", ... or "auto": a GPU if there is one.
    batch_size : int
        Images or texts that are embedded at a time, from 1.
    template : str, optional
        What texts are put into, with {} once where the text goes. None: texts are embedded as they are.
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
        return hf_patches.frame(self.preprocessing, *image.size)

    def why_no_patches(self) -> str | None:
        return hf_patches.why_not(self._model)

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        inputs = self._processor([image.convert("RGB")], return_tensors="pt")
        given = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        return hf_patches.terms(self._model, self._model_type, given, self.frame(image), way)

    def _embed_images(self, images: list[Image.Image]) -> np.ndarray:
        inputs = self._processor([image.convert("RGB") for image in images], return_tensors="pt")
        return self._features(self._model.get_image_features, inputs)

    def _embed_texts(self, texts: list[str]) -> np.ndarray:
        # Every text is padded to the full length: SigLIP was trained so, and no text then depends on its neighbours.
        length = self._model.config.text_config.max_position_embeddings
        counts = [len(tokens) for tokens in self._tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        warn_cut(texts, counts, length)
        inputs = self._tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        wanted = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
        if self._model_type != "clip":  # SigLIP has no mask: it attends to the padding
            wanted.pop("attention_mask", None)
        return self._features(self._model.get_text_features, wanted)

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
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError('hf: encoders need transformers: pip install "ccr-xai[hf]"') from error
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
    """Can the hub's name be resolved? If not, only what was downloaded before is looked at, instead of half a minute
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
