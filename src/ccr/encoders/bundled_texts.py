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

from ccr.encoders.assets import file_sha256
from ccr.encoders.hf import no_bars
from ccr.encoders.protocol import batches, unit, warn_cut
from ccr.errors import FormatError, MissingExtraError
from ccr.utils.threads import Workers

ADAPTER_FILE = Path(__file__).parent / "text_adapter.safetensors"
#: Rows of one product. Blocks are filled up to it: a product's rounding depends on its shape, and so a text's vector
#: would depend, in its last bits, on how many texts came with it.
BLOCK = 16
_LONGEST_TEXT = 256  # tokens; what all-MiniLM-L6-v2 was trained with


class SentenceModel:
    """all-MiniLM-L6-v2: texts to unit sentence vectors (n, 384), the mean over tokens."""

    dimension = 384

    def __init__(self, folder: os.PathLike[str]) -> None:
        try:
            import transformers
        except ImportError as error:
            raise MissingExtraError('texts need transformers: pip install "ccr-xai[bundled]"') from error
        with no_bars():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, local_files_only=True)
        self._model = model.float().eval()

    def embed(self, texts: Sequence[str], *, threads: int | None = None) -> np.ndarray:
        """Unit rows (n, 384). Texts of equal length in tokens share a product, so that none is padded."""
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return rows
        tokens = self._tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        warn_cut(texts, [len(own) for own in tokens], _LONGEST_TEXT)
        if any(len(own) > _LONGEST_TEXT for own in tokens):  # the last token ends a text, also one that is cut
            tokens = self._tokenizer(list(texts), truncation=True, max_length=_LONGEST_TEXT)["input_ids"]
        places: dict[int, list[int]] = {}
        for place, own in enumerate(tokens):
            places.setdefault(len(own), []).append(place)
        blocks = [block for same in places.values() for block in batches(same, BLOCK)]
        with Workers(threads) as workers:
            found = workers.map(lambda block: self._embed_block([tokens[place] for place in block]), blocks)
        for block, part in zip(blocks, found, strict=True):
            rows[block] = part
        return unit(rows)

    def _embed_block(self, tokens: list[list[int]]) -> np.ndarray:
        """Mean states of at most `BLOCK` texts of one length."""
        filled = torch.tensor(tokens + tokens[:1] * (BLOCK - len(tokens)))
        with torch.inference_mode():
            states = self._model(input_ids=filled, attention_mask=torch.ones_like(filled)).last_hidden_state
        return np.asarray(states.mean(dim=1)[: len(tokens)])


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
        needed = sorted({row for rows in known for row in rows})
        predicted = self.predict(np.concatenate([sentences, self.points[needed]]), threads=threads)
        missed = self.noise[needed, None] * self.weights[needed]
        corrections = missed + self.word_share * (predicted[len(texts) :] + missed)
        place = {row: number for number, row in enumerate(needed)}
        for number, rows in enumerate(known):
            if rows:
                predicted[number] += corrections[[place[row] for row in rows]].mean(axis=0)
        return unit(predicted[: len(texts)])

    def predict(self, sentences: np.ndarray, *, threads: int | None = None) -> np.ndarray:
        """f (n, 512) of sentence vectors (n, 384)."""
        size = -(-len(sentences) // BLOCK) * BLOCK
        filled = torch.zeros((size, self.points.shape[1]))
        filled[: len(sentences)] = torch.from_numpy(np.asarray(sentences, np.float32))
        points, weights = torch.from_numpy(self.points), torch.from_numpy(self.weights)

        def values(block: torch.Tensor) -> torch.Tensor:
            return torch.exp(2 * self.gamma * (block @ points.T - 1)) @ weights

        with Workers(threads) as workers, torch.inference_mode():
            found = workers.map(values, filled.split(BLOCK)) if size else []
        rows = torch.cat(found).numpy() if found else np.empty((0, self.weights.shape[1]), np.float32)
        return rows[: len(sentences)]

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
        """Words of the longest known phrase."""
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
        return TextAdapter(
            words={word: row for row, word in enumerate(words)},
            points=_restored(tensors, "points"),
            weights=_restored(tensors, "weights"),
            noise=tensors["noise"].astype(np.float32),
            image_mean=tensors["image_mean"].astype(np.float32),
            gamma=float(metadata["gamma"]),
            word_share=float(metadata["word_share"]),
            sha256=file_sha256(path),
        )
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise FormatError(
            f"{path} must be a text adapter as tools/train_text_adapter.py writes it: {error}; install ccr-xai again"
        ) from error


def _restored(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Rows of bytes times the scale of each row."""
    return tensors[name].astype(np.float32) * tensors[f"{name}_scale"].astype(np.float32)[:, None]
