"""The last layer of the bundled image tower: its tensors as further outputs of the graph, and its int8 weights."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from ccr.core.explain import Frame, PatchTerms
from ccr.data.encoders.graph import with_outputs
from ccr.data.encoders.last_layer import Affine, Attended, Grid, LastLayer, Norm, patch_terms, quick_gelu_gate
from ccr.errors import MissingExtraError

_LAYER = "/vision_model/encoder/layers.11/"
#: The stream before the last layer, its attention and values, the stream after the attention, the MLP's hidden layer,
#: and the stream at the end, which is an output of the graph already.
_TENSORS = (
    "/vision_model/encoder/layers.10/Add_1_output_0",
    f"{_LAYER}self_attn/Softmax_output_0",
    f"{_LAYER}self_attn/v_proj/Add_output_0",
    f"{_LAYER}Add_output_0",
    f"{_LAYER}mlp/fc1/Add_output_0",
)
_FINAL = "onnx::Gather_1524"
_WEIGHTS = {"out": "onnx::MatMul_1766", "up": "onnx::MatMul_1767", "down": "onnx::MatMul_1768"}
_PROJECTION = "onnx::MatMul_1769"
_QUANTISED = ("quantized", "scale", "zero_point")
_NAMED = "vision_model.encoder.layers.11."
_PLAIN = {
    "out": f"{_NAMED}self_attn.out_proj.bias",
    "up": f"{_NAMED}mlp.fc1.bias",
    "down": f"{_NAMED}mlp.fc2.bias",
    "norm.weight": f"{_NAMED}layer_norm2.weight",
    "norm.bias": f"{_NAMED}layer_norm2.bias",
    "final.weight": "vision_model.post_layernorm.weight",
    "final.bias": "vision_model.post_layernorm.bias",
}
_EPS, _HEADS, _GRID = 1e-5, 12, Grid(14, 14, before=1)


def session(model: str | bytes) -> Any:
    """An ONNX session of the image tower, which runs one image at a time on one thread."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError('the bundled encoder needs onnxruntime: pip install "ccr-xai[bundled]"') from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # Without VNNI the fast u8 x s8 kernels saturate at 16 bits: embeddings came out at cosine 0.5 to the true ones.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class BundledPatches:
    """Patch terms from the tower's own tensors: the embedding is the one that the plain graph gives, to the bit."""

    def __init__(self, model: bytes) -> None:
        quantised = [f"{name}_{part}" for name in (*_WEIGHTS.values(), _PROJECTION) for part in _QUANTISED]
        self._weights = (*quantised, *_PLAIN.values())
        self._session = session(with_outputs(model, (*_TENSORS, *self._weights)))

    def terms(self, pixels: np.ndarray, frame: Frame, way: Literal["exact", "values"]) -> PatchTerms:
        """The patch terms of pixels (1, 3, 224, 224)."""
        tensors = self._session.run(["image_embeds", _FINAL, *_TENSORS], {"pixel_values": pixels})
        embedding, final, residual, attention, values, middle, hidden = (tensor[0] for tensor in tensors)
        tokens = values.shape[0]
        image = Attended(
            residual=residual[0],
            attention=attention[:, 0],
            values=values.reshape(tokens, _HEADS, -1).transpose(1, 0, 2),
            embedding=embedding,
            middle=middle[0],
            hidden=hidden[0],
            final=final[0],
        )
        return patch_terms(self._layer, image, grid=_GRID, frame=frame, way=way)

    @cached_property
    def _layer(self) -> LastLayer:
        found = dict(zip(self._weights, self._session.run(self._weights, {"pixel_values": _BLANK}), strict=True))
        weights = {part: Affine(_restored(found, name), found[_PLAIN[part]]) for part, name in _WEIGHTS.items()}
        norms = {
            kind: Norm(found[_PLAIN[f"{kind}.weight"]], found[_PLAIN[f"{kind}.bias"]], _EPS)
            for kind in ("norm", "final")
        }
        return LastLayer(
            **weights,
            norm=norms["norm"],
            gate=quick_gelu_gate,
            final_norm=norms["final"],
            projection=_restored(found, _PROJECTION),
        )


_BLANK = np.zeros((1, 3, 224, 224), np.float32)


def _restored(found: dict[str, np.ndarray], name: str) -> np.ndarray:
    """A weight (outputs, inputs) in numbers, which the graph keeps as bytes (inputs, outputs)."""
    values, scale, zero = (found[f"{name}_{part}"].astype(np.float32) for part in _QUANTISED)
    return np.ascontiguousarray(((values - zero) * scale).T)
