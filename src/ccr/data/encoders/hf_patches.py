"""Patch terms of CLIP, SigLIP and SigLIP 2 through transformers."""

from __future__ import annotations

from typing import Any, Literal

import torch

from ccr.core.explain import Frame, PatchTerms
from ccr.data.encoders.last_layer import Attended, Grid, LastLayer, patch_terms
from ccr.data.encoders.preprocess import centre_frame
from ccr.data.encoders.torch_common import features_of
from ccr.data.encoders.torch_patches import affine, attended, catch, in_projection, layer_of


def why_not(model: Any) -> str | None:
    """Why the model's last layer cannot be taken apart; None: it can."""
    vision = model.vision_model
    if hasattr(vision, "pre_layrnorm") or getattr(vision, "use_head", False):
        return None
    return "this SigLIP has no pooling head"


def terms(model: Any, kind: str, inputs: dict[str, Any], frame: Frame, way: Literal["exact", "values"]) -> PatchTerms:
    """The patch terms of one prepared image."""
    layer, image = _clip(model, inputs) if kind == "clip" else _siglip(model, inputs)
    return patch_terms(layer, image, grid=_grid(model, kind, inputs), frame=frame, way=way)


def frame(preprocessing: dict[str, Any], width: int, height: int) -> Frame:
    """The part of a picture that a processor with these settings leaves: all of it, unless it cuts out the centre."""
    size, crop = preprocessing.get("size") or {}, preprocessing.get("crop_size") or {}
    if not (preprocessing.get("do_center_crop") and crop):
        return Frame()
    wanted = int(crop["width"]), int(crop["height"])
    if not preprocessing.get("do_resize", True):
        return centre_frame(width, height, short_side=min(width, height), crop=wanted)
    if "shortest_edge" in size:
        return centre_frame(width, height, short_side=int(size["shortest_edge"]), crop=wanted)
    across, down = wanted[0] / int(size["width"]), wanted[1] / int(size["height"])
    return Frame((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)


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
