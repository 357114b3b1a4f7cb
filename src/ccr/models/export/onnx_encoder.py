"""The bundled image tower as ONNX nodes before a model's own: from the pixels of one photo to its embedding.

Resizing, cropping and normalising are inside; decoding a file and turning it upright are not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ccr.data.assets import CLIP_IMAGE_TOWER, Log, fetch
from ccr.data.encoders.bundled import BundledEncoder
from ccr.data.encoders.preprocess import ClipPreprocess
from ccr.errors import CCRError
from ccr.models.export.onnx_parts import OPSET, Parts, onnx_library
from ccr.models.export.onnx_resize import add_centre_square

_TOWER = "tower/"  # begins the names of the tower's parts


def check_bundled(model: Any) -> None:
    """An error unless the model was fitted on embeddings of the bundled encoder."""
    ours, origin = BundledEncoder(), model.provenance
    if origin.encoder_fingerprint != ours.fingerprint:
        noted = origin.encoder or "an encoder that it does not name"
        raise CCRError(
            f"only the bundled image tower can be joined to a model, and this one reads embeddings of {noted} "
            f"(fingerprint {origin.encoder_fingerprint}, the bundled encoder's is {ours.fingerprint}): export without "
            "the encoder, or fit on a store made with --encoder bundled"
        )


def add_tower(parts: Parts, *, log: Log | None = None) -> str:
    """Everything from one photo's PIXELS (height, width, 3) to its embedding (1, 512); the embedding's name."""
    tower = _tower(str(fetch(CLIP_IMAGE_TOWER, log=log)))
    seen = _preprocessed(parts, ClipPreprocess())
    renamed = {"pixel_values": seen}
    for node in tower.graph.node:
        copy = parts.onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = _TOWER + copy.name
        copy.input[:] = [renamed.get(name, name and _TOWER + name) for name in node.input]
        copy.output[:] = [name and _TOWER + name for name in node.output]
        parts.nodes.append(copy)
    for tensor in tower.graph.initializer:
        named = parts.onnx.TensorProto()
        named.CopyFrom(tensor)
        named.name = _TOWER + tensor.name
        parts.constants.append(named)
    return f"{_TOWER}image_embeds"


@lru_cache(maxsize=1)
def _tower(path: str) -> Any:
    """The tower in our operator set, its 8-bit weights unsigned."""
    onnx = onnx_library()
    tower = onnx.version_converter.convert_version(onnx.load(path), OPSET)
    signed = {
        name for node in tower.graph.node if node.op_type == "MatMulInteger" for name in (node.input[1], node.input[3])
    }
    for tensor in tower.graph.initializer:
        if tensor.name in signed and tensor.data_type == onnx.TensorProto.INT8:
            # Weights and zero points alike by 128, so that products are the same integers. Kernels for unsigned weights
            # are exact everywhere; those for signed ones saturate on processors without VNNI.
            values = onnx.numpy_helper.to_array(tensor).astype(np.int16) + 128
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.uint8), tensor.name))
    return tower


def _preprocessed(parts: Parts, how: ClipPreprocess) -> str:
    """(1, 3, size, size) float32, as `ClipPreprocess` makes it: the arithmetic is the same, step by step."""
    square = add_centre_square(parts, how.size)
    pixels = parts.add("Cast", square, name="square_float", to=parts.onnx.TensorProto.FLOAT)
    pixels = parts.add("Div", pixels, parts.constant("most", np.float32(255)), name="to_one")
    by_plane = {name: np.array(value, np.float32)[:, None, None] for name, value in vars(how).items() if name != "size"}
    pixels = parts.add("Sub", pixels, parts.constant("pixel_mean", by_plane["mean"]), name="less_mean")
    pixels = parts.add("Div", pixels, parts.constant("pixel_std", by_plane["std"]), name="scaled_pixels")
    # -1, not 1: where the batch is known, the nodes of the tower are fused otherwise than in its own file.
    shape = parts.constant("square_shape", np.array([-1, 3, how.size, how.size]))
    return parts.add("Reshape", pixels, shape, name="pixel_values")
