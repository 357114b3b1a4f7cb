"""`bundled`: CLIP ViT-B/16 images and stand-in texts from registry packages alone, no model hub needed.

The tower's last layer is taken apart into patches. Texts are vectors of a sentence model, mapped to CLIP's text
directions by kernel ridge regression on words whose CLIP directions y_i are known. With x the sentence vector of a
text, x_i those of the words, a_i the weights and e_i the noise that the fit allows word i:

    f(x) = sum over i of exp(-2 gamma (1 - <x, x_i>)) a_i

Ridge regression misses a word that it was fitted on by its noise times its weight: y_i = f(x_i) + e_i a_i. So the
numbers that predict unknown texts also give back the known words. A text is predicted, then corrected by its known
words w:

    direction(x) = unit(f(x) + mean over w of (e_w a_w + word_share y_w))

`tools/train_text_adapter.py` makes the file and says from what; docs/bundled-encoder.md says how good it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from ccr.encoders.assets import CLIP_IMAGE_TOWER, MINILM, Log, fetch, fetch_group, file_sha256
from ccr.encoders.patches import Affine, Attended, Grid, LastLayer, Norm, patch_terms, quick_gelu_gate
from ccr.encoders.registry import (
    ClipPreprocess,
    Crop,
    batches,
    checked_template,
    digest_of,
    fill_template,
    unit,
    warn_cut,
)
from ccr.explain import Frame, PatchTerms
from ccr.io.files import format_errors
from ccr.utils.arrays import import_extra
from ccr.utils.threads import Workers

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


class BundledEncoder:
    """OpenAI's CLIP ViT-B/16 image tower (int8 ONNX), and texts by a sentence model (MiniLM) whose vectors are mapped
    to CLIP's text directions, corrected by the words of a text whose CLIP vectors are known.

    Every image is run on its own: the weights are dynamically quantised, so the embedding of an image in a batch would
    depend on its neighbours.

    Parameters
    ----------
    template : what texts are put into, with {} once where the text goes. None: texts as they are.
    threads : images, and blocks of texts, that are run side by side, from 1, which changes no number. None: one per
        core.
    log : called with a message when something is downloaded.
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
        sentences = [asset.sha256 for asset in MINILM]
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
    onnxruntime = import_extra("onnxruntime", "bundled", "the bundled encoder needs onnxruntime")
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
        tensors = dict(zip(self._weights, self._session.run(self._weights, {"pixel_values": _BLANK}), strict=True))
        weights = {part: Affine(_weight_of(tensors, name), tensors[_PLAIN[part]]) for part, name in _WEIGHTS.items()}
        norms = {
            kind: Norm(tensors[_PLAIN[f"{kind}.weight"]], tensors[_PLAIN[f"{kind}.bias"]], _EPS)
            for kind in ("norm", "final")
        }
        return LastLayer(
            **weights,
            norm=norms["norm"],
            gate=quick_gelu_gate,
            final_norm=norms["final"],
            projection=_weight_of(tensors, _PROJECTION),
        )


_BLANK = np.zeros((1, 3, 224, 224), np.float32)


def _weight_of(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """A weight (outputs, inputs) in numbers, which the graph keeps as bytes (inputs, outputs)."""
    values, scale, zero = (tensors[f"{name}_{part}"].astype(np.float32) for part in _QUANTISED)
    return np.ascontiguousarray(((values - zero) * scale).T)


# Texts: the sentence model, and the map from its vectors to directions of CLIP.
ADAPTER_FILE = Path(__file__).parent / "text_adapter.safetensors"
#: Tokens, and texts of the ridge, in one product. Blocks are filled up to it: a product's rounding depends on its
#: shape, and so a text's vector would depend, in its last bits, on how many texts came with it.
TOKENS, BLOCK = 80, 48
_LONGEST_TEXT = 256  # tokens; what all-MiniLM-L6-v2 was trained with


class Product:
    """`x @ weight.T + bias` in single precision, by oneDNN where torch has it: it uses all vector units of a processor
    where torch's own product uses half of them on many (measured: twice as fast).

    `rows` of x are expected, for which oneDNN lays out the weights once. The calls for that are those of torch.compile;
    where a torch has them not, the weights are laid out in each product, for the same bits (of all products that texts
    make) in a fifth more time.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, *, rows: int) -> None:
        self._one_dnn = torch.backends.mkldnn.is_available()
        operations = torch.ops.mkldnn
        self._laid_out = self._one_dnn and all(hasattr(operations, name) for name in _LAYING_OUT)
        if self._laid_out:
            self._weight, self._bias = operations._reorder_linear_weight(weight.contiguous(), rows), bias
        else:
            self._weight, self._bias = self._placed(weight), self._placed(bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._laid_out:
            product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return product
        product = functional.linear(self._placed(x), self._weight, self._bias)
        return product.to_dense() if self._one_dnn else product

    def _placed(self, part: torch.Tensor) -> torch.Tensor:
        return part.to_mkldnn() if self._one_dnn else part


_LAYING_OUT = ("_reorder_linear_weight", "_linear_pointwise")


class SentenceModel:
    """all-MiniLM-L6-v2: texts to unit sentence vectors (n, 384), the mean over tokens.

    The model is a plain BERT of six layers, written out here: the same numbers as those of transformers, to rounding,
    without the seconds that importing it takes.
    """

    dimension, heads, layers = 384, 12, 6

    def __init__(self, folder: os.PathLike[str]) -> None:
        from safetensors.torch import load_file

        tokenizers = import_extra("tokenizers", "bundled", "texts need tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._weights = load_file(Path(folder) / "model.safetensors")
        self._products: dict[str, Product] = {}
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}."
            parts = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
            self._products[f"{at}attention.self"] = self._product(*parts)
            for part in ("attention.output.dense", "intermediate.dense", "output.dense"):
                self._products[f"{at}{part}"] = self._product(f"{at}{part}")

    def _product(self, *names: str) -> Product:
        """The product with these weights, one below the other."""
        weight, bias = (
            torch.cat([self._weights.pop(f"{name}.{kind}") for name in names]) for kind in ("weight", "bias")
        )
        return Product(weight, bias, rows=TOKENS)

    def embed(self, texts: Sequence[str], *, threads: int | None = None) -> np.ndarray:
        """Unit rows (n, 384). Texts of equal length in tokens share a product, so that none is padded."""
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return rows
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        warn_cut(texts, [len(own) for own in tokens], _LONGEST_TEXT)
        # The last token ends a text, also one that is cut.
        tokens = [own if len(own) <= _LONGEST_TEXT else own[: _LONGEST_TEXT - 1] + own[-1:] for own in tokens]
        places: dict[int, list[int]] = {}
        for place, own in enumerate(tokens):
            places.setdefault(len(own), []).append(place)
        blocks = [block for length, same in places.items() for block in batches(same, _texts_of(length))]
        with Workers(threads) as workers:
            embedded = workers.map(lambda block: self._embed_block([tokens[place] for place in block]), blocks)
        for block, part in zip(blocks, embedded, strict=True):
            rows[block] = part
        return unit(rows)

    def _embed_block(self, tokens: list[list[int]]) -> np.ndarray:
        """Mean states of texts of one length."""
        filled = torch.tensor(tokens + tokens[:1] * (_texts_of(len(tokens[0])) - len(tokens)))
        with torch.inference_mode():
            return np.asarray(self._states(filled).mean(dim=1)[: len(tokens)])

    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Last states (texts, length, 384) of tokens (texts, length)."""
        at = "embeddings."
        x = self._weights[f"{at}word_embeddings.weight"][tokens]
        x = x + self._weights[f"{at}token_type_embeddings.weight"][0]
        x = self._norm(x + self._weights[f"{at}position_embeddings.weight"][: tokens.shape[1]], at)
        shape = (*tokens.shape, self.heads, self.dimension // self.heads)
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}."
            parts = self._products[f"{at}attention.self"](x).chunk(3, dim=-1)
            query, key, value = (part.reshape(shape).transpose(1, 2) for part in parts)
            attended = functional.scaled_dot_product_attention(query, key, value)
            attended = self._products[f"{at}attention.output.dense"](attended.transpose(1, 2).reshape(x.shape))
            x = self._norm(attended + x, f"{at}attention.output.")
            hidden = functional.gelu(self._products[f"{at}intermediate.dense"](x))
            x = self._norm(self._products[f"{at}output.dense"](hidden) + x, f"{at}output.")
        return x

    def _norm(self, x: torch.Tensor, at: str) -> torch.Tensor:
        scale, shift = self._weights[f"{at}LayerNorm.weight"], self._weights[f"{at}LayerNorm.bias"]
        return functional.layer_norm(x, (self.dimension,), scale, shift, 1e-12)


def _texts_of(length: int) -> int:
    """How many texts of so many tokens share a product."""
    return max(1, TOKENS // length)


@dataclass(frozen=True)
class TextAdapter:
    """The map of this module's formula.

    Parameters
    ----------
    words : known words and phrases, as `spelled`, by their row.
    points : (n, 384), their sentence vectors.
    weights : (n, 512).
    noise : (n,), from 0: how far the fit may miss each word, per unit of its weight.
    image_mean : (512,), mean of the images that single images are centred on.
    gamma, word_share : of the formula.
    sha256 : of the file.
    """

    words: Mapping[str, int]
    points: np.ndarray
    weights: np.ndarray
    noise: np.ndarray
    image_mean: np.ndarray
    gamma: float
    word_share: float
    sha256: str

    def directions(self, sentences: np.ndarray, texts: Sequence[str], *, threads: int | None = None) -> np.ndarray:
        """Unit rows (n, 512) of texts with these sentence vectors (n, 384)."""
        known = [self.known_words(text) for text in texts]
        needed = sorted({row for rows in known for row in rows} - self._corrections.keys())
        predicted = self.predict(np.concatenate([sentences, self.points[needed]]), threads=threads)
        missed = self.noise[needed, None] * self.weights[needed]
        self._corrections.update(
            zip(needed, missed + self.word_share * (predicted[len(texts) :] + missed), strict=True)
        )
        for number, rows in enumerate(known):
            if rows:
                predicted[number] += np.mean([self._corrections[row] for row in rows], axis=0)
        return unit(predicted[: len(texts)])

    @cached_property
    def _corrections(self) -> dict[int, np.ndarray]:
        """Corrections of the texts by the known words in them."""
        return {}

    def predict(self, sentences: np.ndarray, *, threads: int | None = None) -> np.ndarray:
        """f (n, 512) of sentence vectors (n, 384)."""
        size = -(-len(sentences) // BLOCK) * BLOCK
        filled = torch.zeros((size, self.points.shape[1]))
        filled[: len(sentences)] = torch.from_numpy(np.asarray(sentences, np.float32))
        cosines, weigh = self._products

        def values(block: torch.Tensor) -> torch.Tensor:
            return weigh(cosines(block).mul_(2 * self.gamma).exp_())

        with Workers(threads) as workers, torch.inference_mode():
            predicted = workers.map(values, filled.split(BLOCK)) if size else []
        rows = torch.cat(predicted).numpy() if predicted else np.empty((0, self.weights.shape[1]), np.float32)
        return rows[: len(sentences)]

    @cached_property
    def _products(self) -> tuple[Product, Product]:
        """The cosines less 1 to all points, and the sum of the weights."""
        points, weights = torch.from_numpy(self.points), torch.from_numpy(self.weights).T.contiguous()
        cosines = Product(points, torch.full((len(points),), -1.0), rows=BLOCK)
        return cosines, Product(weights, torch.zeros(len(weights)), rows=BLOCK)

    def known_words(self, text: str) -> list[int]:
        """Rows of the known words in a text, the longest phrases first; a word may be known in its other number."""
        parts, rows = spelled(text).split(), []
        while parts:
            for length in range(min(self._longest, len(parts)), 0, -1):
                forms = (" ".join(parts[:length]),) if length > 1 else _forms(parts[0])
                row = next((self.words[form] for form in forms if form in self.words), None)
                if row is not None:
                    rows.append(row)
                    break
            parts = parts[length:]
        return rows

    @cached_property
    def _longest(self) -> int:
        """Number of words of the longest known phrase."""
        return max((word.count(" ") + 1 for word in self.words), default=1)


def spelled(text: str) -> str:
    """A text as known words are looked up: small letters, no punctuation, one space between words."""
    return " ".join(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text.lower()))


def _forms(word: str) -> tuple[str, ...]:
    """A word, and what may be its plural or singular."""
    return (word, f"{word}s", word.removesuffix("s"), word.removesuffix("es"))


def load_adapter(path: Path = ADAPTER_FILE) -> TextAdapter:
    """The adapter that ships with the package, or another one of the same form."""
    from safetensors import safe_open

    with format_errors(path, "be a text adapter as tools/train_text_adapter.py writes it", "install ccr-xai again"):
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
        words = tensors["words"].tobytes().decode().split("\n")
        adapter = TextAdapter(
            words={word: row for row, word in enumerate(words)},
            points=_dequantised(tensors, "points"),
            weights=_dequantised(tensors, "weights"),
            noise=tensors["noise"].astype(np.float32),
            image_mean=tensors["image_mean"].astype(np.float32),
            gamma=float(metadata["gamma"]),
            word_share=float(metadata["word_share"]),
            sha256=file_sha256(path),
        )
        _check_parts(adapter, len(words))
        return adapter


def _check_parts(adapter: TextAdapter, words: int) -> None:
    """A ValueError unless the parts belong together and are numbers."""
    points, weights = adapter.points, adapter.weights
    fits = points.shape == (words, SentenceModel.dimension) and weights.shape == (words, *adapter.image_mean.shape)
    if not (fits and weights.ndim == 2 and adapter.noise.shape == (words,) and len(adapter.words) == words):
        raise ValueError(f"its parts are not all for the same {words:,} words")
    numbers = (points, weights, adapter.noise, adapter.image_mean, np.array([adapter.gamma, adapter.word_share]))
    if not (all(np.isfinite(part).all() for part in numbers) and adapter.gamma > 0):
        raise ValueError("it holds NaN, infinity or a gamma that is not above 0")


def _dequantised(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Rows of bytes times the scale of each row."""
    with np.errstate(all="ignore"):  # what is no number is refused afterwards
        return tensors[name].astype(np.float32) * tensors[f"{name}_scale"].astype(np.float32)[:, None]
