"""The map, in closed form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tools.text_adapter.anchors import NEVER, TRAINED_SETS, Anchors, ImageSet, Texts
from tools.text_adapter.settings import Settings
from tools.text_adapter.texts import MiniLM, Pictures, unit


@dataclass(frozen=True)
class Adapter:
    """Sentences (n, 384) and pictures (n, 512) of texts -> unit rows (n, 512), see `tools.train_text_adapter`."""

    landmarks: np.ndarray
    kernel_weight: np.ndarray
    linear_weight: np.ndarray
    bias: np.ndarray
    picture_mean: np.ndarray
    picture_weight: np.ndarray
    settings: Settings

    def __call__(self, sentences: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        weight = np.vstack([self.kernel_weight, self.linear_weight, self.bias])
        meant = unit(features(sentences, self.landmarks, self.settings.gamma) @ weight)
        read = unit((pictures - self.picture_mean) @ self.picture_weight)
        return unit(self.settings.sentence_share * meant + self.settings.picture_share * read)


def features(rows: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    kernel = np.exp(-2 * gamma * (1 - rows @ landmarks.T))
    return np.hstack([kernel, rows, np.ones((len(rows), 1))]).astype(np.float32)


def ridge(inputs: np.ndarray, targets: np.ndarray, penalty: float, weights: np.ndarray | None = None) -> np.ndarray:
    """argmin_M sum_i w_i |inputs_i M - targets_i|^2 + penalty |M|^2."""
    left = inputs.T if weights is None else inputs.T * weights
    gram = (left @ inputs).astype(np.float64) + penalty * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, left @ targets).astype(np.float32)


@dataclass(frozen=True)
class WordMap:
    """The first step: words with ViT-B/32 directions, landmarks, and the matrix from `features` to such directions."""

    words: Texts
    landmarks: np.ndarray
    to_b32: np.ndarray


def fit_words(words: Texts, minilm: MiniLM, s: Settings, seed: int) -> WordMap:
    rows = minilm(words.names, s.templates)
    clean = [i for i, word in enumerate(words.names) if re.fullmatch(r"[a-z][a-z-]*", word)]
    landmarks = rows[np.random.default_rng(seed).permutation(clean)[: s.kernel_size]]
    return WordMap(words, landmarks, ridge(features(rows, landmarks, s.gamma), words.vectors, s.word_ridge))


def bridge_targets(image_set: ImageSet, general_mean: np.ndarray, s: Settings, within: np.ndarray) -> np.ndarray:
    """Class directions: S^-1 centroid with whitening (what tells it apart, as a CLIP text does), else the centroid."""
    centroids = image_set.centroids()
    if len(centroids) < 50:  # the mean of a few alike classes is part of what they are
        centroids = centroids + image_set.mean - general_mean
    if s.whitening is not None:
        centroids = np.linalg.solve(shrunk(within, s.whitening), centroids.T).T
    return unit(centroids)


def shrunk(within: np.ndarray, shrinkage: float) -> np.ndarray:
    return within + shrinkage * np.trace(within) / len(within) * np.eye(len(within))


def within_covariance(sets: Sequence[ImageSet], allowed: Callable[[list[str]], bool]) -> np.ndarray:
    """Mean over the sets of the covariance of images around their class centroid."""
    total = 0
    for image_set in sets:
        keep = np.array([allowed(names) for names in image_set.names])[image_set.labels]
        rest = (image_set.images - image_set.centroids()[image_set.labels])[keep]
        total = total + rest.T @ rest / len(rest) / len(sets)
    return total


@dataclass(frozen=True)
class Bridge:
    """Training rows of the second step: names of each anchor, its ViT-B/16 direction, its weight."""

    names: list[list[str]]
    targets: np.ndarray
    weights: np.ndarray


def allowed_by(held_names: Set[str]) -> Callable[[list[str]], bool]:
    """Whether a class with these names may be trained on."""
    return lambda names: not any(name.lower() in held_names | NEVER for name in names)


def bridge_rows(anchors: Anchors, s: Settings, held_names: Set[str]) -> Bridge:
    allowed = allowed_by(held_names)
    within = within_covariance(anchors.several(), allowed)
    names, targets, weights = [], [], []
    for image_set in (anchors.sets[name] for name in TRAINED_SETS):
        keep = [c for c, own in enumerate(image_set.names) if allowed(own)]
        names += [image_set.names[c] for c in keep]
        targets.append(bridge_targets(image_set, anchors.sets["imagenet_sample"].mean, s, within)[keep])
        weights += [1.0] * len(keep)
    texts = anchors.texts.without(held_names)
    names += [[name] for name in texts.names]
    weights += [s.text_weight] * len(texts.names)
    return Bridge(names, np.vstack([*targets, texts.vectors]), np.array(weights))


def fit_pictures(
    anchors: Anchors, pictures: Pictures, s: Settings, held_names: Set[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (512,) of pictures of names, and the matrix (512, 512) that tells classes apart."""
    allowed = allowed_by(held_names)
    names = [own[0] for name in TRAINED_SETS for own in anchors.sets[name].names if allowed(own)]
    mean = pictures(names, s.picture_template).mean(0)
    if s.picture_whitening is None:
        return mean, np.eye(len(mean), dtype=np.float32)
    weight = np.linalg.inv(shrunk(within_covariance(anchors.several(), allowed), s.picture_whitening))
    return mean, (weight / np.trace(weight) * len(weight)).astype(np.float32)


def fit(
    anchors: Anchors,
    first: WordMap,
    minilm: MiniLM,
    pictures: Pictures,
    s: Settings,
    held_names: Set[str] = frozenset(),
) -> Adapter:
    """The adapter with this first step, trained without anchors that have a name in `held_names`."""
    words = first.words
    known = dict(zip((word.lower() for word in words.names), words.vectors, strict=True)) if s.known_words else {}

    def b32(names: list[str]) -> np.ndarray:
        """An anchor's ViT-B/32 direction: its own where one of its names is a word, else the prediction."""
        own = [known[name.lower()] for name in names if name.lower() in known]
        if own:
            return np.mean(own, 0)
        return features(mean_text(minilm, names, s), first.landmarks, s.gamma)[0] @ first.to_b32

    rows = bridge_rows(anchors, s, held_names)
    inputs = unit(np.stack([b32(names) for names in rows.names]))
    bridge = ridge(inputs, rows.targets, s.bridge_ridge, rows.weights)
    kernel_weight, linear_weight, bias = np.split(first.to_b32 @ bridge, [len(first.landmarks), -1])
    mean, weight = fit_pictures(anchors, pictures, s, held_names)
    return Adapter(first.landmarks, kernel_weight, linear_weight, bias, mean, weight, s)


def mean_text(minilm: MiniLM, names: list[str], s: Settings) -> np.ndarray:
    """(1, 384): one row for all names of a class."""
    return unit(minilm(names, s.templates).mean(0, keepdims=True))
