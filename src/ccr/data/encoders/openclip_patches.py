"""Patch terms of open_clip's own vision transformers."""

from __future__ import annotations

from typing import Any, Literal

import torch

from ccr.core.explain import Frame, PatchTerms
from ccr.data.encoders.last_layer import Affine, Grid, patch_terms
from ccr.data.encoders.preprocess import centre_frame
from ccr.data.encoders.torch_patches import affine, attended, catch, in_projection, layer_of, numbers


def why_not(model: Any) -> str | None:
    """Why the model's last layer cannot be taken apart; None: it can."""
    visual = getattr(model, "visual", None)
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


def terms(model: Any, pixels: torch.Tensor, frame: Frame, way: Literal["exact", "values"]) -> PatchTerms:
    """The patch terms of one prepared image (1, 3, height, width)."""
    visual = model.visual
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
    tokens, embedding = catch(last, lambda: model.encode_image(pixels), tokens_first=tokens_first)
    with torch.inference_mode():
        normed = last.ln_1(tokens)
    maps, heads = in_projection(last.attn), int(last.attn.num_heads)
    image = attended(normed[0], normed, maps, heads, residual=tokens[0], embedding=embedding)
    rows, columns = (int(size) for size in visual.grid_size)
    return patch_terms(layer, image, grid=Grid(rows, columns, before=1), frame=frame, way=way)


def frame(transform: Any, width: int, height: int) -> Frame:
    """The part of a picture that is left after the steps of a transform: all of it, unless the centre is cut out."""
    steps = {type(step).__name__: step for step in getattr(transform, "transforms", ())}
    resize, crop = getattr(steps.get("Resize"), "size", None), getattr(steps.get("CenterCrop"), "size", None)
    if resize is None or crop is None:
        return Frame()
    across, down = (crop, crop) if isinstance(crop, int) else (int(crop[1]), int(crop[0]))
    if isinstance(resize, (list, tuple)) and len(resize) == 2:
        return Frame()
    short_side = resize if isinstance(resize, int) else int(resize[0])
    return centre_frame(width, height, short_side=short_side, crop=(across, down))
