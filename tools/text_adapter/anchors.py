"""What the map is trained on and chosen by: classes that have images, and names that have text vectors of CLIP."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.text_adapter.texts import unit

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NEVER = {form for name in CIFAR10 for form in (name, name + "s")}
TRAINED_SETS = ("imagenet_sample", "tiny_imagenet", "scenes")
CHOICE_SETS = (*TRAINED_SETS, "pets")  # pets: measured, not trained on; its breeds only teach the map to tell breeds


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
