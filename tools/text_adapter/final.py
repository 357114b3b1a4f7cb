"""Final tests, on what is never trained on and by which no choice is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from ccr.data.store import EmbeddingStore
from ccr.encoders.bundled import spelled
from ccr.encoders.registry import unit
from ccr.knowledge import Knowledge
from ccr.vocab import read_concepts
from tools.text_adapter.anchors import CIFAR10, load

TextMap = Callable[[Sequence[str]], np.ndarray]
ROOT = Path(__file__).parents[2]


def final_tests(embeddings: Path, text_map: TextMap, image_mean: np.ndarray, known: Set[str]) -> dict[str, float]:
    """All final tests of a text map that knows these words."""
    b16 = load(embeddings, "text_vit_b16_names")
    return (
        cifar10_tests(load(embeddings, "cifar10"), b16, text_map, image_mean)
        | cub_tests(load(embeddings, "cub"), text_map, known)
        | fruit_tests(text_map)
    )


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


def cub_tests(data: dict, text_map: TextMap, known: Set[str]) -> dict[str, float]:
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
    right = (images @ text_map([str(name) for name in data["names"]]).T).argmax(1) == data["y"]
    new = np.array([spelled(str(name)) not in known for name in data["names"]])[data["y"]]
    return scores | {
        "CUB names, 200-way zero-shot": float(right.mean()),
        f"CUB names, images of the {len(np.unique(data['y'][new]))} classes that are no known word": float(
            right[new].mean()
        ),
    }


def fruit_tests(text_map: TextMap) -> dict[str, float]:
    """Mean AUC of the demo's concepts over its 14 classes: cosine(text, class mean image) against the demo's table."""
    store = EmbeddingStore.open(ROOT / "src" / "ccr" / "data" / "demo_store")
    names = read_concepts(ROOT / "src" / "ccr" / "data" / "demo_concepts.txt")
    truth = Knowledge.read(ROOT / "src" / "ccr" / "data" / "demo_knowledge.csv").aligned(store.classes, names) > 0
    images, labels = np.asarray(store[:], np.float32), np.asarray(store.y)
    images = images - images.mean(0)
    means = unit(np.stack([images[labels == name].mean(0) for name in store.classes]))
    mixed = truth.any(0) & ~truth.all(0)
    rows = text_map(names)
    scores = means @ unit(rows - rows.mean(0)).T
    return {f"fruit AUC ({mixed.sum()} concepts), concepts centred": mean_auc(scores[:, mixed], truth[:, mixed])}


def mean_auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Mean over columns of the Mann-Whitney statistic."""
    positive = truth.sum(0)
    rank_sums = (rankdata(scores, axis=0) * truth).sum(0)
    return float(((rank_sums - positive * (positive + 1) / 2) / (positive * (len(truth) - positive))).mean())
