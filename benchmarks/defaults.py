"""Why the defaults are what they are: what bounds concepts, and how many weights a class has, on six sets of images.

    python -m benchmarks.defaults [--sets cifar10,cub] [--seeds 3] [--settings "0.875/5,ball"] [--shared ../shared]
    python -m benchmarks.defaults --around                 # the defaults with one thing changed at a time

Bundled texts, one-sided codes unless a row says otherwise, defaults otherwise. Random words stand beside the concepts
at the same settings. Test images choose nothing; fidelity and concepts in play are theirs. Embeddings and concept lists
are read from the shared folder (docs/data.md), the fruit photos from the store that `ccr demo` leaves.
Pets and flowers have CUB's concept list, Tiny-ImageNet has CIFAR-10's.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold, Symmetric
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder, load_encoder
from ccr.vocab import embed_concepts, random_words, read_concepts
from ccr_lab.rivals import LinearProbe

#: Data sets, the concepts per image asked for, and whose concepts.
SETS: dict[str, tuple[float, str]] = {
    "fruit": (12, "fruit"),
    "cifar10": (12, "cifar10"),
    "cub": (20, "cub"),
    "pets": (12, "cub"),
    "flowers": (12, "cub"),
    "tiny_imagenet": (12, "cifar10"),
}
#: Share of the images that are trained on where there is no split.
TRAINED_ON = 0.7
SETTINGS: dict[str, dict[str, Any]] = {
    "two-sided ball": {"radius": 0.1, "weights_per_class": None, "sign": "both"},
    "ball": {"radius": 0.1, "weights_per_class": None},
    **{
        f"{least}/{weights or 'all'}": {"fidelity": least, "weights_per_class": weights}
        for least in (0.835, 0.875, 0.9, 0.935)
        for weights in (None, 5, 3, 1)
    },
}
#: The defaults with one thing changed.
AROUND: dict[str, dict[str, Any]] = {
    "defaults": {},
    "codes of both signs": {"sign": "both"},
    "undispersed": {"dispersion": None},
    "dispersed by 0.5": {"dispersion": Symmetric(0.5)},
    "dispersed by 1.0": {"dispersion": Symmetric(1.0)},
    "shrinkage 0.2": {"shrinkage": 0.2},
    "shrinkage 0.8": {"shrinkage": 0.8},
    "dropout 0.1": {"dropout": 0.1},
    **{f"candidates {times:g}": {"candidates": times} for times in (3, 2, 1)},
}


class Images(NamedTuple):
    """Embeddings (m, d), labels, and which are trained on."""

    X: np.ndarray
    y: np.ndarray
    train: np.ndarray


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--settings", default=None, help="some of the rows; default: all")
    parser.add_argument("--around", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=float, default=None, help="concepts per image; default: of the data set")
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    add_shared_option(parser)
    given = parser.parse_args()
    rows = AROUND if given.around else SETTINGS
    chosen = {name: rows[name] for name in (given.settings.split(",") if given.settings else rows)}
    encoder = load_encoder("bundled")
    print("| data, length | setting | accuracy, % | random words, % | fidelity, mean (least) | in play |")
    print("|---|---|--:|--:|--:|--:|")
    for name in given.sets.split(","):
        length, listed = SETS[name]
        length = given.length or length
        images = read_images(name, given.shared, given.demo)
        listing = given.demo / "concepts.txt" if listed == "fruit" else given.shared / "concepts" / f"{listed}.txt"
        named, words = both_kinds(listing, encoder)
        rest = ~images.train
        probe = LinearProbe().fit(images.X[images.train], images.y[images.train]).score(images.X[rest], images.y[rest])
        print(f"| {name}, {length:g} | linear probe | {100 * probe:.1f} | | | |", flush=True)
        for setting, options in chosen.items():
            ours, controls = (
                np.mean([measured(kind, length, options, seed, images) for seed in range(given.seeds)], axis=0)
                for kind in (named, words)
            )
            numbers = f"{100 * ours[0]:.1f} | {100 * controls[0]:.1f} | {ours[1]:.3f} ({ours[2]:.3f}) | {ours[3]:.1f}"
            print(f"| {name}, {length:g} | {setting} | {numbers} |", flush=True)


def read_images(name: str, shared: Path, demo: Path) -> Images:
    """A data set with its own split, or a fixed one, the same share of every class."""
    if name == "fruit":
        store = EmbeddingStore.open(demo / "store")
        return Images(np.asarray(store[:], np.float32), store.y, store.splits != "test")
    data = np.load(require(shared / "embeddings" / f"{name}.npz"))
    X, y = data["X"].astype(np.float32), data["y"]
    if "is_train" in data:
        return Images(X, y, data["is_train"].astype(bool))
    rng, train = np.random.default_rng(0), np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        train[rows[: round(TRAINED_ON * len(rows))]] = True
    return Images(X, y, train)


def both_kinds(path: Path, encoder: Encoder) -> tuple[Concepts, Concepts]:
    """The concepts of a list, and as many random words."""
    names = read_concepts(require(path))
    words = random_words(len(names), seed=0, exclude=names)
    return embed_concepts(names, encoder), embed_concepts(words, encoder)


def measured(
    concepts: Concepts, length: float, settings: dict[str, Any], seed: int, images: Images
) -> tuple[float, float, float, float]:
    """Accuracy, mean and least fidelity, and concepts in play, on the test images."""
    settings = dict(settings)
    coder = HardThreshold(length=length, sign=settings.pop("sign", "positive"))
    X, y, train = images
    model = ConceptClassifier(concepts, coder=coder, random_state=seed, **settings).fit(X[train], y[train])
    found = model.evaluate(X[~train], y[~train])
    return found.accuracy, found.fidelity.mean, found.fidelity.min, found.in_play


if __name__ == "__main__":
    main()
