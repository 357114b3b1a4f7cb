"""What the text adapter is fitted on and chosen by: texts with CLIP vectors, and classes that have images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ccr.encoders.assets import WORDNET, fetch_group
from ccr.encoders.bundled import SentenceModel, spelled
from ccr.encoders.registry import unit

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NEVER = {form for name in CIFAR10 for form in (name, name + "s")}
#: CLIP ViT-B/16 vectors of bare words and phrases, under `text_b16`.
TRUE_WORDS = ("yc2_words", "broden_labels", "imagenet_names_bare")
#: Texts of several words that are never fitted on: ViT-B/16 vectors, and ViT-B/32 vectors that the bridge carries over.
PHRASES = ("semivl_concepts", "bridge_b32_moodboard296", "bridge_b32_menus1098", "bridge_b32_knots748")
CLASS_SETS = ("imagenet_sample", "tiny_imagenet", "scenes", "pets")
FUNCTION_WORDS = {"a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or"}
FUNCTION_WORDS |= {"over", "the", "to", "under", "with"}
#: Endings that WordNet's own lemmas do not have, and what stands in their place.
_ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("men", "man"), ("ing", ""), ("ing", "e"), ("ed", ""))
_ENDINGS += (("ed", "e"), ("er", ""), ("er", "e"), ("est", ""), ("est", "e"))


@dataclass(frozen=True)
class Texts:
    """Texts with unit CLIP vectors, directions from their mean."""

    names: list[str]
    vectors: np.ndarray

    def only(self, wanted: Callable[[str], bool]) -> Texts:
        keep = [i for i, name in enumerate(self.names) if wanted(name)]
        return Texts([self.names[i] for i in keep], self.vectors[keep])


@dataclass(frozen=True)
class ImageSet:
    """Images of named classes, centred on their own mean. `names[c]` are the lemmas of class c."""

    images: np.ndarray
    labels: np.ndarray
    names: list[list[str]]
    mean: np.ndarray


@dataclass(frozen=True)
class Anchors:
    """All that is fitted on, and what choices are made by."""

    true: Texts  # ViT-B/16
    words: Texts  # ViT-B/32, among them many of the above
    phrases: dict[str, Texts]
    sets: dict[str, ImageSet]
    imagenet: np.ndarray  # (1000, 512), unit rows: mean image of every class, from the mean of all


@dataclass(frozen=True)
class Sentences:
    """Sentence vectors of texts; each text is embedded once."""

    model: SentenceModel
    known: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        new = sorted(set(texts) - self.known.keys())
        self.known.update(zip(new, self.model.embed(new), strict=True))
        return np.stack([self.known[text] for text in texts])


def load(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{name}.npz") as file:
        return {key: file[key].astype(np.float32) if file[key].dtype == np.float16 else file[key] for key in file.files}


def allowed(text: str) -> bool:
    """Whether a text may be fitted on: no name of CIFAR-10 is among its words, nor a plural of one."""
    return not NEVER & set(spelled(text).split())


def directions(*parts: dict[str, np.ndarray]) -> Texts:
    """Names in small letters that may be fitted on, and vectors from the mean of all parts, which have one template:
    templates differ in their means."""
    names = [str(name).strip().lower() for part in parts for name in part["names"]]
    texts = Texts(names, unit(np.vstack([part["X"] for part in parts]))).only(allowed)
    return one_each(Texts(texts.names, unit(texts.vectors - texts.vectors.mean(0))))


def load_anchors(folder: Path) -> Anchors:
    in_wordnet = WordNetLemmas()
    true = directions(*(load(folder / "text_b16", name) for name in TRUE_WORDS)).only(wanted)
    words = directions(load(folder, "text_vit_b32_words")).only(lambda text: wanted(text) and in_wordnet(text))
    taken = set(map(spelled, true.names + words.names))
    phrases = {name: directions(load(folder / "text_b16", name)) for name in PHRASES}
    return Anchors(
        true,
        words,
        {
            name: texts.only(lambda text: " " in spelled(text) and spelled(text) not in taken)
            for name, texts in phrases.items()
        },
        {name: load_images(folder, name) for name in CLASS_SETS},
        class_means(load(folder / "text_b16", "image_imagenet_centroids")["mean_raw"]),
    )


def wanted(text: str) -> bool:
    """Words of letters alone; function words say nothing of a picture, and nearly every phrase has one."""
    return re.fullmatch(r"[a-z][a-z' -]*", text) is not None and text not in FUNCTION_WORDS


def one_each(texts: Texts) -> Texts:
    """The first of those that are spelled alike."""
    first = {spelled(name): row for row, name in reversed(list(enumerate(texts.names)))}
    keep = sorted(first.values())
    return Texts([texts.names[i] for i in keep], texts.vectors[keep])


class WordNetLemmas:
    """Says whether WordNet has a word, in this form or another: leaves out misspellings and words run together."""

    def __init__(self) -> None:
        folder = fetch_group(WORDNET)
        lines = (line for path in folder.glob("index.*") for line in path.read_text().splitlines())
        self._lemmas = {line.split(" ", 1)[0].replace("_", " ") for line in lines if not line.startswith(" ")}

    def __call__(self, text: str) -> bool:
        return any(form in self._lemmas for form in self._forms(text)) or (
            "-" in text and all(part in self._lemmas for part in text.split("-"))
        )

    @staticmethod
    def _forms(word: str) -> Iterable[str]:
        yield word
        for ending, lemma in _ENDINGS:
            if word.endswith(ending):
                stem = word.removesuffix(ending)
                yield stem + lemma
                if stem[-1:] == stem[-2:-1]:  # stopped, biggest
                    yield stem[:-1]


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


def class_means(raw: np.ndarray) -> np.ndarray:
    rows = unit(raw)
    return unit(rows - rows.mean(0))


def held(names: Iterable[str]) -> Set[str]:
    """Spellings of names and their plurals: what a fold leaves out of every set."""
    forms = {spelled(name) for name in names}
    return forms | {f"{form}s" for form in forms} | {form.removesuffix("s") for form in forms}
