"""CCR with CLIP's real words: no stand-in for the text tower anywhere.

    python -m benchmarks.real_words [--sets cifar10,cub] [--seeds 3] [--shared ../shared]

Concepts are words and phrases that CLIP ViT-B/16's own text tower embedded (`text_b16` in docs/data.md), bare,
without a template; left out are function words, names of ImageNet's classes, which are kinds of things and nothing that
can be seen on one, the data set's class names and phrases with one. The list of CIFAR-10 and of CUB: the words that
occur in their published concept lists. Of the others: as many as `SIZE` that `choose` takes, on training images.
Controls, at the same settings: as many of the other words, drawn at random for each seed, and random vectors. Means
over seeds; test images choose nothing.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.defaults import Images, measured, read_images
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import random_unit_concepts
from ccr.geometry import unit_rows
from ccr.vocab import read_concepts
from ccr.vocab.choose import choose, class_statistics
from ccr_lab.experiments.protocol import REPORTED
from ccr_lab.rivals import LinearProbe

FILES, KINDS = ("yc2_words", "broden_labels"), "imagenet_names_bare"
#: Data sets, and concepts per image.
SETS = {"cifar10": 12.0, "cub": 20.0, "pets": 12.0, "flowers": 12.0, "tiny_imagenet": 12.0}
#: Words chosen for a data set that has no published list.
SIZE = 128
SETTINGS: dict[str, dict[str, Any]] = {
    "one weight, fidelity 0.955": {"fidelity": 0.955, "weights_per_class": 1},
    "five weights, fidelity 0.955": {"fidelity": 0.955, "weights_per_class": 5},
    "the defaults": {},
}


def parts_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


FUNCTION_WORDS = frozenset(
    parts_of(
        "a all an and are around as at both but by each for from has have in into is it its like of on one or other "
        "over that the their thing this to two three four under up very which with"
    )
)


class Task(NamedTuple):
    """A data set: images, class names, the words of its list, and other words that could stand in their place."""

    name: str
    images: Images
    classes: list[str]
    listed: Concepts
    others: Concepts


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    add_shared_option(parser)
    given = parser.parse_args()
    names, seeds = given.sets.split(","), range(given.seeds)
    real = real_words(given.shared)
    print(f"{len(real)} real words\n")
    print(
        "| data | words | setting | accuracy, % | random real words, % | random vectors, % | fidelity, mean (least) "
        "| in play |\n|---|--:|---|--:|--:|--:|--:|--:|"
    )
    tasks = [task(name, real, given.shared) for name in names]
    for one in tasks:
        print_rows(one, seeds)
    print("\nThe released settings, on these words\n\n| data | words | | accuracy, % | AEL | ASR, % | ACED |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for one in (one for one in tasks if one.name in REPORTED):
        print_paper(one, seeds)
    for one in (one for one in tasks if len(one.classes) <= 10):
        print_one_word_each(one)


def real_words(shared: Path) -> Concepts:
    """All words that may be concepts, in small letters, as the text tower embedded them."""
    files = {name: np.load(require(shared / "embeddings" / "text_b16" / f"{name}.npz")) for name in (*FILES, KINDS)}
    rows: dict[str, np.ndarray] = {}
    for name in FILES:
        for text, row in zip(files[name]["names"], files[name]["X"].astype(np.float32), strict=True):
            rows.setdefault(" ".join(parts_of(str(text))), row)
    kinds = {" ".join(parts_of(str(text))) for text in files[KINDS]["names"]}
    kept = [word for word in rows if not says_nothing(word) and word not in kinds]
    return Concepts(kept, unit_rows(np.stack([rows[word] for word in kept])))


def task(name: str, real: Concepts, shared: Path) -> Task:
    with np.load(require(shared / "embeddings" / f"{name}.npz")) as data:
        classes = [str(label) for label in data["names"]]
    lemmas = [lemma for label in classes for lemma in label.split(",")]
    pool = real.subset([row for row, word in enumerate(real.names) if not names_a_class(word, lemmas)])
    images = read_images(name, shared, Path())
    published = shared / "concepts" / f"{name}.txt"
    if published.exists():
        own = words_within(read_concepts(published), set(pool.names))
        listed = [row for row, word in enumerate(pool.names) if word in own]
    else:
        found = class_statistics(images.X[images.train], images.y[images.train])
        listed = choose(found, pool.embeddings, size=SIZE).rows.tolist()
    others = sorted(set(range(len(pool))) - set(listed))
    return Task(name, images, classes, pool.subset(listed), pool.subset(others))


def says_nothing(word: str) -> bool:
    return all(part in FUNCTION_WORDS for part in word.split())


def names_a_class(word: str, classes: Iterable[str]) -> bool:
    """Whether the word is a class name, or a phrase with one, in singular or plural."""
    padded = f" {word} "
    names = (" ".join(parts_of(name)) for name in classes)
    return any(f" {form} " in padded for name in names if name for form in (name, f"{name}s", name.removesuffix("s")))


def words_within(texts: Sequence[str], words: set[str]) -> set[str]:
    """The words that occur in the texts, the longest where several start at one place."""
    found, longest = set(), max(word.count(" ") + 1 for word in words)
    for text in texts:
        parts = parts_of(text)
        while parts:
            phrases = (" ".join(parts[:length]) for length in range(longest, 0, -1))
            word = next((phrase for phrase in phrases if phrase in words), "")
            found.add(word)
            parts = parts[word.count(" ") + 1 :]
    return found - {""}


def drawn(others: Concepts, count: int, seed: int) -> Concepts:
    return others.subset(np.random.default_rng(seed).permutation(len(others))[:count])


def print_rows(one: Task, seeds: range) -> None:
    """The linear probe, and every setting with both controls."""
    name, images, _, listed, others = one
    X, y, train = images
    probe = LinearProbe().fit(X[train], y[train]).score(X[~train], y[~train])
    print(f"| {name} | | linear probe | {100 * probe:.1f} | | | | |", flush=True)
    for setting, options in SETTINGS.items():
        kinds = [
            [measured(kind(seed), SETS[name], options, seed, images) for seed in seeds]
            for kind in (
                lambda _: listed,
                lambda seed: drawn(others, len(listed), seed),
                lambda seed: random_unit_concepts(listed, seed=seed),
            )
        ]
        ours, words, vectors = np.mean(kinds, axis=1)
        accuracies = " | ".join(f"{100 * kind[0]:.1f}" for kind in (ours, words, vectors))
        print(
            f"| {name} | {len(listed)} | {setting} | {accuracies} | {ours[1]:.3f} ({ours[2]:.3f}) | {ours[3]:.1f} |",
            flush=True,
        )


def print_paper(one: Task, seeds: range) -> None:
    """The released settings beside what the paper reports, which has another list."""
    name, (X, y, train), _, listed, others = one
    for kind in ("real words", "random real words"):
        found = []
        for seed in seeds:
            concepts = listed if kind == "real words" else drawn(others, len(listed), seed)
            model = ConceptClassifier.paper(name, concepts=concepts, random_state=seed).fit(X[train], y[train])
            at = model.evaluate(X[~train], y[~train])
            found.append((100 * at.accuracy, at.length, 100 * at.sparsity, at.deviation.mean))
        accuracy, length, sparsity, deviation = np.mean(found, axis=0)
        numbers = f"{accuracy:.1f} | {length:.2f} | {sparsity:.2f} | {deviation:.3f}"
        print(f"| {name} | {len(listed)} | {kind} | {numbers} |", flush=True)
    reported = REPORTED[name]
    numbers = f"{reported.length:.2f} | {100 * reported.sparsity:.2f} | {reported.deviation:.3f}"
    print(f"| {name} | {round(reported.length / reported.sparsity)} | the paper | | {numbers} |")


def print_one_word_each(one: Task) -> None:
    """The single word by which each class is recognised, seed 0."""
    X, y, train = one.images
    coder, options = HardThreshold(length=SETS[one.name]), SETTINGS["one weight, fidelity 0.955"]
    model = ConceptClassifier(one.listed, coder=coder, random_state=0, **options).fit(X[train], y[train])
    words = (model.concepts_.names[int(np.abs(row).argmax())] for row in model.coef_)
    said = "; ".join(f"{label}: {word}" for label, word in zip(one.classes, words, strict=True))
    print(f"\n{one.name}, one word for each class: {said}")


if __name__ == "__main__":
    main()
