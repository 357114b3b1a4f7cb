"""The map, in closed form: a bridge from ViT-B/32 to ViT-B/16 texts, and kernel ridge regression on words."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from ccr.encoders.assets import MINILM
from ccr.encoders.bundled import TextAdapter, spelled
from ccr.encoders.registry import unit
from ccr.io.files import write_bytes
from tools.text_adapter.anchors import Anchors, Sentences, Texts


@dataclass(frozen=True)
class Settings:
    """What was chosen on held-out anchors."""

    gamma: float = 2.0
    ridge: float = 0.3  # noise of a word that the bridge carried over
    trust: float = 3.0  # by how much less noise a true ViT-B/16 word has
    word_share: float = 0.3
    bridge_ridge: float = 0.5
    bridge_kernel: float = 1.0  # share of the Gaussian kernel beside the linear one; 0: a linear bridge
    bridged_words: bool = True  # fit on words that have a ViT-B/32 vector alone, too
    known_words: bool = True  # correct a text by its known words


@dataclass(frozen=True)
class Bridge:
    """Kernel ridge regression from ViT-B/32 to ViT-B/16 directions, on texts that have both."""

    points: np.ndarray
    weights: np.ndarray
    gaussian: float

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        return unit(bridge_kernel(vectors, self.points, self.gaussian) @ self.weights)


def bridge_kernel(rows: np.ndarray, points: np.ndarray, gaussian: float) -> np.ndarray:
    """<x, p> + g exp(-2 (1 - <x, p>)): mostly linear, and a little that bends."""
    cosines = rows @ points.T
    return np.asarray(cosines + gaussian * np.exp(2 * (cosines - 1)) if gaussian else cosines)


def solve(kernel: np.ndarray, targets: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """(K + diag(noise))^-1 targets."""
    matrix = torch.from_numpy(kernel.astype(np.float32))
    matrix.diagonal().add_(torch.from_numpy(noise.astype(np.float32)))
    found = torch.cholesky_solve(torch.from_numpy(targets), torch.linalg.cholesky(matrix))
    return np.ascontiguousarray(found.numpy())  # it comes column by column, and a file is written row by row


def fit_bridge(anchors: Anchors, s: Settings, left_out: Set[str] = frozenset()) -> Bridge:
    """Learned from pairs of equal texts, without those whose spelling is in `left_out`."""
    place = {spelled(text): row for row, text in enumerate(anchors.words.names)}
    shared = [
        (place[form], row)
        for row, form in enumerate(map(spelled, anchors.true.names))
        if form in place and form not in left_out
    ]
    theirs, ours = map(list, zip(*shared, strict=True))
    points = anchors.words.vectors[theirs]
    noise = np.full(len(points), s.bridge_ridge)
    weights = solve(bridge_kernel(points, points, s.bridge_kernel), anchors.true.vectors[ours], noise)
    return Bridge(points, weights, s.bridge_kernel)


def known_texts(anchors: Anchors, s: Settings, left_out: Set[str]) -> tuple[Texts, np.ndarray]:
    """Words with ViT-B/16 directions, and the noise (n,) of each: true ones, and those that the bridge carries over."""
    true = anchors.true.only(lambda text: spelled(text) not in left_out)
    noise = np.full(len(true.names), s.ridge / s.trust)
    if not s.bridged_words:
        return true, noise
    taken = set(map(spelled, anchors.true.names)) | left_out
    more = anchors.words.only(lambda text: spelled(text) not in taken)
    carried = fit_bridge(anchors, s, left_out)(more.vectors)
    both = Texts(true.names + more.names, np.vstack([true.vectors, carried]))
    return both, np.concatenate([noise, np.full(len(more.names), s.ridge)])


def fit(
    anchors: Anchors, sentences: Sentences, s: Settings, image_mean: np.ndarray, left_out: Set[str] = frozenset()
) -> TextAdapter:
    """The adapter that saw no text whose spelling is in `left_out`."""
    texts, noise = known_texts(anchors, s, left_out)
    points = sentences(texts.names)
    weights = solve(np.exp(2 * s.gamma * (points @ points.T - 1)), texts.vectors, noise)
    words = {spelled(text): row for row, text in enumerate(texts.names)}
    return TextAdapter(
        words, points, weights, noise.astype(np.float32), image_mean, s.gamma, s.word_share, sha256="in memory"
    )


def write(path: Path, adapter: TextAdapter, s: Settings) -> None:
    """The file of an adapter: rows as bytes, each with a scale."""
    points, points_scale = quantised(adapter.points)
    weights, weights_scale = quantised(adapter.weights)
    words = "\n".join(sorted(adapter.words, key=adapter.words.__getitem__))
    tensors = {
        "words": np.frombuffer(words.encode(), np.uint8),
        "points": points,
        "points_scale": points_scale,
        "weights": weights,
        "weights_scale": weights_scale,
        "noise": adapter.noise,
        "image_mean": adapter.image_mean.astype(np.float32),
    }
    metadata = {
        "what": "text adapter: all-MiniLM-L6-v2 unit embedding x of a text -> unit direction from the mean of texts, "
        "OpenAI CLIP ViT-B/16 text space",
        "formula": "f(x) = sum_i exp(-2 gamma (1 - <x, points_i>)) weights_i; y_w = f(points_w) + noise_w weights_w; "
        "unit(f(x) + mean over known words w of (noise_w weights_w + word_share y_w))",
        "gamma": str(s.gamma),
        "word_share": str(s.word_share),
        "minilm_sha256": json.dumps([asset.sha256 for asset in MINILM]),
        "date": "2026-11-18",
        "made_by": "tools/train_text_adapter.py",
        "held_out": "CIFAR-10 (images, and every text with one of its class names or their plurals), CUB-200-2011, "
        "Oxford Pets, Oxford Flowers, the fruit photos, all images",
        "licence": "weights made by this project; derived from CLIP text vectors of words (Visual Genome, YouCook2, "
        "Broden, ImageNet's class names); see docs/bundled-encoder.md",
    }
    write_bytes(path, save(tensors, metadata))


def quantised(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -127 to 127, and the scale of each row."""
    scale = np.abs(rows).max(axis=1) / 127
    return np.round(rows / scale[:, None]).astype(np.int8), scale.astype(np.float32)
