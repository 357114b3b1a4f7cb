"""`open_clip:MODEL/TAG_OR_CHECKPOINT`: models of the open_clip library, and their embeddings over patches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from ccr.encoders.patches import Affine, Grid, patch_terms
from ccr.encoders.registry import centre_frame, checked_batch_size, checked_template, digest_of, unit, warn_cut
from ccr.encoders.torch_common import (
    TorchEncoder,
    affine,
    attended,
    catch,
    in_projection,
    layer_of,
    numbers,
    weights_digest,
)
from ccr.errors import CCRError, MissingExtraError
from ccr.explain import Frame, PatchTerms
from ccr.utils.threads import resolve_device

# `open_clip:MODEL/TAG_OR_CHECKPOINT`: models of the open_clip library.
_SUFFIX = "-quickgelu"


class OpenClipEncoder(TorchEncoder):
    """A model of open_clip with pretrained weights or a local checkpoint, in float32.

    Parameters
    ----------
    target : MODEL/TAG with a tag that open_clip lists for the model, or MODEL/PATH with the path of a checkpoint.
    device, batch_size, template : as of `HFEncoder`.
    """

    def __init__(self, target: str, *, device: str = "auto", batch_size: int = 32, template: str | None = None) -> None:
        model, weights = split_target(target)
        check_activation(model, weights)
        self.name = f"open_clip:{target}"
        self.template = checked_template(template)
        self.batch_size = checked_batch_size(batch_size)
        self.device = resolve_device(device)
        self._model, self._transform, self._tokenizer = _load(model, weights)
        self._model = self._model.float().eval().to(self.device)

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {"open_clip": " ".join(str(self._transform).split())}

    @cached_property
    def fingerprint(self) -> str:
        # Weights alone do not tell the two activations apart.
        activation = "quickgelu" if _uses_quickgelu(self._model) else "gelu"
        return digest_of(
            kind="open_clip",
            weights=weights_digest(self._model),
            activation=activation,
            preprocessing=self.preprocessing,
        )

    def frame(self, image: Image.Image) -> Frame:
        """All of the picture, unless a step of the transform cuts out the centre."""
        width, height = image.size
        steps = {type(step).__name__: step for step in getattr(self._transform, "transforms", ())}
        resize, crop = getattr(steps.get("Resize"), "size", None), getattr(steps.get("CenterCrop"), "size", None)
        if resize is None or crop is None:
            return Frame()
        across, down = (crop, crop) if isinstance(crop, int) else (int(crop[1]), int(crop[0]))
        if isinstance(resize, (list, tuple)) and len(resize) == 2:
            return Frame()
        short_side = resize if isinstance(resize, int) else int(resize[0])
        return centre_frame(width, height, short_side=short_side, crop=(across, down))

    def why_no_patches(self) -> str | None:
        visual = getattr(self._model, "visual", None)
        blocks = getattr(getattr(visual, "transformer", None), "resblocks", None)
        if visual is None or not blocks:
            return "this model of open_clip is no plain vision transformer"
        if getattr(visual, "attn_pool", None) is not None:
            return "this model of open_clip pools by an attention of its own"
        if getattr(visual, "pool_type", "tok") != "tok" or getattr(visual, "global_average_pool", False):
            return "this model of open_clip has no class token that is embedded"
        if not isinstance(getattr(blocks[-1], "attn", None), torch.nn.MultiheadAttention):
            return "this model of open_clip has an attention of its own kind"
        return None

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        pixels = self._transform(image.convert("RGB"))[None].to(self.device)
        visual = self._model.visual
        last = visual.transformer.resblocks[-1]
        out = affine(last.attn.out_proj.weight, last.attn.out_proj.bias)
        if (first := getattr(last.ls_1, "gamma", None)) is not None:
            out = Affine(out.weight * numbers(first)[:, None], out.bias * numbers(first))
        layer = layer_of(
            out,
            last.ln_2,
            last.mlp.c_fc,
            last.mlp.c_proj,
            last.mlp.gelu,
            final_norm=visual.ln_post,
            projection=None if visual.proj is None else visual.proj.T,
            scale=getattr(last.ls_2, "gamma", None),
        )
        # Before 2.26 the tokens came first, then the images.
        tokens_first = not getattr(visual.transformer, "batch_first", False)
        tokens, embedding = catch(last, lambda: self._model.encode_image(pixels), tokens_first=tokens_first)
        with torch.inference_mode():
            normed = last.ln_1(tokens)
        maps, heads = in_projection(last.attn), int(last.attn.num_heads)
        seen = attended(normed[0], normed, maps, heads, residual=tokens[0], embedding=embedding)
        rows, columns = (int(size) for size in visual.grid_size)
        return patch_terms(layer, seen, grid=Grid(rows, columns, before=1), frame=self.frame(image), way=way)

    def _embed_images(self, images: list[Image.Image]) -> np.ndarray:
        pixels = torch.stack([self._transform(image.convert("RGB")) for image in images]).to(self.device)
        with torch.inference_mode():
            return unit(self._model.encode_image(pixels).float().cpu().numpy())

    def _embed_texts(self, texts: list[str]) -> np.ndarray:
        if hasattr(self._tokenizer, "encode"):  # CLIP's own, which puts a token before and after each text
            most = int(self._tokenizer.context_length)
            warn_cut(texts, [len(self._tokenizer.encode(text)) + 2 for text in texts], most)
        with torch.inference_mode():
            return unit(self._model.encode_text(self._tokenizer(texts).to(self.device)).float().cpu().numpy())


def split_target(target: str) -> tuple[str, str]:
    """Model name and tag or checkpoint path: `ViT-B-16-quickgelu/openai`, `ViT-B-16//data/model.safetensors`."""
    model, slash, weights = target.partition("/")
    if not (model and slash and weights):
        raise CCRError(
            f"open_clip: wants MODEL/TAG or MODEL/CHECKPOINT, got {target!r}: try open_clip:ViT-B-16-quickgelu/openai"
        )
    return model, weights


def check_activation(model: str, weights: str) -> None:
    """Refuse OpenAI's weights in a model without QuickGELU: they load, and give wrong embeddings in silence."""
    if weights == "openai" and not model.endswith(_SUFFIX):
        raise CCRError(
            f"OpenAI's weights were trained with QuickGELU and give wrong embeddings in {model!r}: "
            f"use open_clip:{model}{_SUFFIX}/openai"
        )


def check_file(weights: str) -> None:
    """Refuse checkpoints that are not safetensors: they are pickles, which can run anything."""
    if not weights.endswith(".safetensors"):
        raise CCRError(
            f"a checkpoint must be a .safetensors file, got {weights!r}: other kinds can run code; convert it"
        )


def explain_import(error: Exception) -> MissingExtraError:
    """Reason why open_clip cannot be imported, and the remedy."""
    if "torchvision" in str(error) or "nms" in str(error):
        return MissingExtraError(
            f"open_clip needs a torchvision that fits the installed torch ({torch.__version__}), and that one does not "
            f"load: {error}. torchvision from the package registry is a CUDA build and fails beside a CPU build of "
            "torch. Install both from one index in an environment of their own, or use hf: or bundled, which need no "
            "torchvision"
        )
    return MissingExtraError(f'open_clip: encoders need open_clip: pip install "ccr-xai[open-clip]" ({error})')


def _load(model: str, weights: str) -> tuple[Any, Any, Any]:
    try:
        import open_clip
    except (
        ImportError,
        RuntimeError,
        AttributeError,
        OSError,
    ) as error:  # RuntimeError: a torchvision that does not fit
        raise explain_import(error) from error
    if model not in open_clip.list_models():
        raise CCRError(f"open_clip has no model {model!r}; `open_clip.list_models()` lists them")
    if Path(weights).is_file():
        check_file(weights)
    else:
        _check_tag(open_clip, model, weights)
    try:
        loaded, _, transform = open_clip.create_model_and_transforms(model, pretrained=weights, precision="fp32")
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CCRError(
            f"could not load the weights {weights!r} of open_clip's {model!r}: {reason}. Without a network, give a "
            f"local checkpoint as open_clip:{model}/PATH; or use the encoder `bundled`, which needs the package "
            "registry alone"
        ) from error
    return loaded, transform, open_clip.get_tokenizer(model)


def _check_tag(open_clip: Any, model: str, tag: str) -> None:
    """Refuse unknown tags, and tags whose weights want the other activation."""
    tags = open_clip.list_pretrained_tags_by_model(model)
    if tag not in tags:
        raise CCRError(f"{tag!r} is neither a file nor weights of {model!r}, which has {', '.join(tags) or 'none'}")
    trained = bool((open_clip.get_pretrained_cfg(model, tag) or {}).get("quick_gelu", False))
    built = bool((open_clip.get_model_config(model) or {}).get("quick_gelu", False))
    if trained != built:
        right = model + _SUFFIX if trained else model.removesuffix(_SUFFIX)
        raise CCRError(f"the weights {tag!r} need another activation than {model!r} has: use open_clip:{right}/{tag}")


def _uses_quickgelu(model: torch.nn.Module) -> bool:
    return any(type(module).__name__ == "QuickGELU" for module in model.modules())
