"""The text side of the bundled encoder: a sentence model, and the map from its vectors to CLIP's text directions.

The map is kernel ridge regression on words whose CLIP directions y_i are known. With x the sentence vector of a text,
x_i those of the words, a_i the weights and e_i the noise that the fit allows word i:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from ccr.encoders.assets import file_sha256
from ccr.encoders.registry import batches, unit, warn_cut
from ccr.errors import FormatError, MissingExtraError
from ccr.utils.threads import Workers

ADAPTER_FILE = Path(__file__).parent / "text_adapter.safetensors"
#: Tokens, and texts of the ridge, in one product. Blocks are filled up to it: a product's rounding depends on its
#: shape, and so a text's vector would depend, in its last bits, on how many texts came with it.
TOKENS, BLOCK = 80, 48
_LONGEST_TEXT = 256  # tokens; what all-MiniLM-L6-v2 was trained with


class Product:
    """`x @ weight.T + bias` in single precision, by oneDNN where torch has it: it uses all vector units of a processor
    where torch's own product uses half of them on many (measured: twice as fast)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self._one_dnn = torch.backends.mkldnn.is_available()
        self._weight, self._bias = self._placed(weight), self._placed(bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        found = functional.linear(self._placed(x), self._weight, self._bias)
        return found.to_dense() if self._one_dnn else found

    def _placed(self, part: torch.Tensor) -> torch.Tensor:
        return part.to_mkldnn() if self._one_dnn else part


class SentenceModel:
    """all-MiniLM-L6-v2: texts to unit sentence vectors (n, 384), the mean over tokens.

    The model is a plain BERT of six layers, written out here: the same numbers as those of transformers, to rounding,
    without the seconds that importing it takes.
    """

    dimension, heads, layers = 384, 12, 6

    def __init__(self, folder: os.PathLike[str]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError('texts need tokenizers: pip install "ccr-xai[bundled]"') from error
        from safetensors.torch import load_file

        self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._weights = load_file(Path(folder) / "model.safetensors")
        self._products: dict[str, Product] = {}
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}."
            own = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
            self._products[f"{at}attention.self"] = self._product(*own)
            for part in ("attention.output.dense", "intermediate.dense", "output.dense"):
                self._products[f"{at}{part}"] = self._product(f"{at}{part}")

    def _product(self, *names: str) -> Product:
        """The product with these weights, one below the other."""
        weight, bias = (
            torch.cat([self._weights.pop(f"{name}.{kind}") for name in names]) for kind in ("weight", "bias")
        )
        return Product(weight, bias)

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
            found = workers.map(lambda block: self._embed_block([tokens[place] for place in block]), blocks)
        for block, part in zip(blocks, found, strict=True):
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
            seen = functional.scaled_dot_product_attention(query, key, value)
            seen = self._products[f"{at}attention.output.dense"](seen.transpose(1, 2).reshape(x.shape))
            x = self._norm(seen + x, f"{at}attention.output.")
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
        """What each known word adds to its texts, of those that were asked for."""
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
            found = workers.map(values, filled.split(BLOCK)) if size else []
        rows = torch.cat(found).numpy() if found else np.empty((0, self.weights.shape[1]), np.float32)
        return rows[: len(sentences)]

    @cached_property
    def _products(self) -> tuple[Product, Product]:
        """The cosines less 1 to all points, and the sum of the weights."""
        points, weights = torch.from_numpy(self.points), torch.from_numpy(self.weights).T.contiguous()
        return Product(points, torch.full((len(points),), -1.0)), Product(weights, torch.zeros(len(weights)))

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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
        words = tensors["words"].tobytes().decode().split("\n")
        adapter = TextAdapter(
            words={word: row for row, word in enumerate(words)},
            points=_restored(tensors, "points"),
            weights=_restored(tensors, "weights"),
            noise=tensors["noise"].astype(np.float32),
            image_mean=tensors["image_mean"].astype(np.float32),
            gamma=float(metadata["gamma"]),
            word_share=float(metadata["word_share"]),
            sha256=file_sha256(path),
        )
        _check_parts(adapter, len(words))
        return adapter
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise FormatError(
            f"{path} must be a text adapter as tools/train_text_adapter.py writes it: {error}; install ccr-xai again"
        ) from error


def _check_parts(adapter: TextAdapter, words: int) -> None:
    """A ValueError unless the parts belong together and are numbers."""
    points, weights = adapter.points, adapter.weights
    fits = points.shape == (words, SentenceModel.dimension) and weights.shape == (words, *adapter.image_mean.shape)
    if not (fits and weights.ndim == 2 and adapter.noise.shape == (words,) and len(adapter.words) == words):
        raise ValueError(f"its parts are not all for the same {words:,} words")
    numbers = (points, weights, adapter.noise, adapter.image_mean, np.array([adapter.gamma, adapter.word_share]))
    if not (all(np.isfinite(part).all() for part in numbers) and adapter.gamma > 0):
        raise ValueError("it holds NaN, infinity or a gamma that is not above 0")


def _restored(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Rows of bytes times the scale of each row."""
    with np.errstate(all="ignore"):  # what is no number is refused afterwards
        return tensors[name].astype(np.float32) * tensors[f"{name}_scale"].astype(np.float32)[:, None]
