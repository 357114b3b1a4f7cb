"""The last layer of the bundled image tower: its tensors as further outputs of the graph, and its int8 weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal

import numpy as np
from PIL import Image

from ccr.encoders.assets import CLIP_IMAGE_TOWER, MINILM, Log, fetch, fetch_group
from ccr.encoders.bundled_texts import SentenceModel, TextAdapter, load_adapter
from ccr.encoders.patches import Affine, Attended, Grid, LastLayer, Norm, patch_terms, quick_gelu_gate
from ccr.encoders.registry import ClipPreprocess, Crop, batches, checked_template, digest_of, fill_template, unit
from ccr.errors import MissingExtraError
from ccr.explain import Frame, PatchTerms

# Further outputs of an ONNX graph, without a library to parse it. An ONNX file is one protocol buffer, and two of
# them after each other are one that has the lists of both: that is how the format defines its merging. So a graph
# gets further outputs when a graph of nothing but outputs is appended to it.
_GRAPH, _OUTPUT, _NAME = 7, 12, 1  # fields of ModelProto, GraphProto and ValueInfoProto (onnx.proto)


def with_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """The same model, whose outputs are also these tensors of its graph, after those that it has."""
    outputs = b"".join(_field(_OUTPUT, _field(_NAME, name.encode())) for name in names)
    return model + _field(_GRAPH, outputs)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    groups = []
    while True:
        number, low = number >> 7, number & 127
        groups.append(low | (128 if number else 0))
        if not number:
            return bytes(groups)


# `bundled`: CLIP ViT-B/16 images and stand-in texts from registry packages alone, no model hub needed.
class BundledEncoder:
    """OpenAI's CLIP ViT-B/16 image tower (int8 ONNX), and texts by a sentence model (MiniLM) whose vectors are mapped
    to CLIP's text directions, corrected by the words of a text whose CLIP vectors are known.

    Every image is run on its own: the weights are dynamically quantised, so the embedding of an image in a batch would
    depend on its neighbours.

    Parameters
    ----------
    template : str, optional
        What texts are put into, with {} once where the text goes. None: texts as they are.
    threads : int, optional
        Images, and blocks of texts, that are run side by side, from 1, which changes no number. None: one per core.
    log : callable, optional
        Called with a message when something is downloaded.
    """

    name = "bundled"
    dimension = 512

    def __init__(self, *, template: str | None = None, threads: int | None = None, log: Log | None = None) -> None:
        self.template = checked_template(template)
        self.threads = threads
        self._log = log
        self._preprocess = ClipPreprocess()

    @property
    def preprocessing(self) -> dict[str, Any]:
        return self._preprocess.describe()

    @cached_property
    def fingerprint(self) -> str:
        return digest_of(kind="bundled", images=CLIP_IMAGE_TOWER.sha256, preprocessing=self.preprocessing)

    @cached_property
    def text_fingerprint(self) -> str:
        sentences = [asset.sha256 for asset in MINILM.assets]
        return digest_of(
            space=self.fingerprint, sentences=sentences, adapter=self._adapter.sha256, template=self.template
        )

    @property
    def image_mean(self) -> np.ndarray:
        """Mean of ImageNet sample photos: what a single image is centred on before it is compared with texts."""
        return self._adapter.image_mean

    @property
    def crop(self) -> Crop:
        return self._preprocess.crop

    def embed_images(self, images: Iterable[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        threads = self.threads or _available_cores()
        rows: list[np.ndarray] = []
        with ThreadPoolExecutor(threads) as pool:
            for batch in batches(images, batch_size or 8 * threads):
                rows.extend(pool.map(self._embed_image, batch))
        return unit(np.concatenate(rows)) if rows else np.empty((0, self.dimension), dtype=np.float32)

    def frame(self, image: Image.Image) -> Frame:
        return self._preprocess.frame(image)

    def why_no_patches(self) -> str | None:
        return None

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        return self._patches.terms(self._preprocess(image), self.frame(image), way)

    def embed_texts(self, texts: Sequence[str], *, template: str | None = None) -> np.ndarray:
        """Unit rows (n, d), directions from the mean of texts; each depends on nothing but its text, to the last bit.
        Known words are looked up in the texts themselves, not in the template around them."""
        prompts = dict(zip(texts, fill_template(template or self.template, texts), strict=True))
        places = {text: place for place, text in enumerate(prompts)}
        threads = self.threads or _available_cores()
        sentences = self._sentences.embed(list(prompts.values()), threads=threads)
        return self._adapter.directions(sentences, list(prompts), threads=threads)[[places[text] for text in texts]]

    def _embed_image(self, image: Image.Image) -> np.ndarray:
        (row,) = self._session.run(["image_embeds"], {"pixel_values": self._preprocess(image)})
        return np.asarray(row)

    @cached_property
    def _session(self) -> Any:
        return session(str(fetch(CLIP_IMAGE_TOWER, log=self._log)))

    @cached_property
    def _patches(self) -> BundledPatches:
        return BundledPatches(fetch(CLIP_IMAGE_TOWER, log=self._log).read_bytes())

    @cached_property
    def _adapter(self) -> TextAdapter:
        return load_adapter()

    @cached_property
    def _sentences(self) -> SentenceModel:
        return SentenceModel(fetch_group(MINILM, log=self._log))


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
