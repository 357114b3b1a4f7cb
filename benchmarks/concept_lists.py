"""Proposed lists against hand-made ones and random words, at equal size and with the same settings.

    python -m benchmarks.concept_lists [--shared ../shared] [--fruits ccr-demo/store] [--data pets,cub] [--seeds 3]

Class names alone make the list: WordNet and the generic list propose, `choose` keeps as many as the hand-made list has,
on training images. Bundled texts, the defaults of `ccr fit`, 12 concepts per image. "Unrefined": concepts as their
texts say; "meaning gap": that minus the same with random words. "Refined": mean over seeds, the least and the largest.
On CUB, over those concepts of a list that people annotated as attributes: "AUC", how well the scores of their texts
tell the classes that have them; "truth", of those among the five largest contributions to a refined prediction, the
share that people saw in the image's class, and beside it the share that naming them at random would have.

    python -m benchmarks.concept_lists --draw 50

prints so many of WordNet's proposals for each data set (--data cifar10,fruits), drawn at random, for a person to read.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.attributes import phrase
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.core.geometry import unit_rows
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.store import EmbeddingStore
from ccr.data.vocab import embed_concepts, random_words, read_concepts
from ccr.data.vocab.check_texts import check_texts
from ccr.data.vocab.choose import choose
from ccr.data.vocab.propose import Proposals, WordNet, generic_proposals, label_texts, together, wordnet_proposals
from ccr.data.vocab.statistics import class_statistics
from ccr.study.experiments import Part
from ccr.study.experiments.attributes import auc_by_column, explanation_truth
from ccr.study.lists import list_worth

#: Data sets with class names.
DATA = ("fruits", "cifar10", "pets", "flowers", "cub")
#: Lists for data sets that have none of their own: as many as this, drawn from the published list for ImageNet.
DRAWN = 128
DEMO = Path(__file__).parents[1] / "src" / "ccr" / "data" / "demo_concepts.txt"


class Case(NamedTuple):
    """A data set: its name, training and test images, the hand-made list and what it is, and CUB's attributes: which
    class (in order of name) has which, by phrase."""

    name: str
    train: Part
    test: Part
    made: list[str]
    kind: str
    attributes: dict[str, np.ndarray]


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--fruits", type=Path, help="store of the demo's photos, made by `ccr demo`")
    parser.add_argument("--most", type=int, default=8000, help="training and test images of CIFAR-10, at most")
    parser.add_argument("--data", default=",".join(DATA), help="which data sets, joined by commas")
    parser.add_argument("--seeds", type=int, default=3, help="refined models per list")
    parser.add_argument("--draw", type=int, help="only print so many proposals, drawn at random")
    add_shared_option(parser)
    given = parser.parse_args()
    encoder, wordnet = load_encoder("bundled"), WordNet.open()
    if not given.draw:
        print(
            "| data | list | concepts | unrefined, % | meaning gap | refined, % | AUC (attributes) | truth (random) |"
        )
        print("|---|---|--:|--:|--:|--:|--:|--:|")
    for case in _cases(given.shared, given.fruits, given.most):
        if case.name in given.data.split(","):
            if given.draw:
                _draw(case, given.draw, encoder, wordnet)
            else:
                _measure(case, encoder, wordnet, range(given.seeds))


def _measure(case: Case, encoder: Encoder, wordnet: WordNet, seeds: range) -> None:
    """One row for each of the three lists."""
    words = embed_concepts(random_words(len(case.made), seed=0, exclude=_classes(case)), encoder)
    lists = {case.kind: case.made, "proposed and chosen": proposed(case, encoder, wordnet)}
    honest = without_class_names(case, wordnet)
    if len(honest) < len(case.made):
        lists[f"{case.kind}, without class names"] = honest
    for kind, names in lists.items():
        print(_row(case, kind, embed_concepts(names, encoder), words, seeds), flush=True)
    print(_row(case, "random words", words, words, seeds), flush=True)


def _draw(case: Case, count: int, encoder: Encoder, wordnet: WordNet) -> None:
    """So many of WordNet's proposals, with the class each is for: of several the first."""
    own = [item for item in candidates(case, encoder, wordnet).items if item.origins[0].source == "wordnet"]
    for row in np.random.default_rng(0).permutation(len(own))[:count]:
        origin = own[row].origins[0]
        print(f"{case.name}: {own[row].concept} ({origin.class_name}; {origin.sentence})")


def _cases(shared: Path, fruits: Path | None, most: int) -> Iterator[Case]:
    if fruits is not None:
        store = EmbeddingStore.open(require(fruits))
        train, test = store.select(rows=np.flatnonzero(store.splits != "test")), store.select("test")
        parts = Part(np.array(train.X), train.y), Part(np.array(test.X), test.y)
        yield Case("fruits", *parts, read_concepts(DEMO), "written by hand", {})
    for name in ("cifar10", "pets", "flowers", "cub"):
        data = np.load(require(shared / "embeddings" / f"{name}.npz"))
        labels = np.array([str(label) for label in data["names"]])[data["y"].astype(int)]
        train_rows = (
            data["is_train"] if "is_train" in data.files else np.random.default_rng(0).random(len(labels)) < 0.7
        )
        parts = (
            Part(data["X"][rows].astype(np.float32), labels[rows])
            for rows in (np.flatnonzero(train_rows)[:most], np.flatnonzero(~train_rows)[:most])
        )
        listed = shared / "concepts" / f"{name}.txt"
        made, kind = (
            read_concepts(require(listed if listed.exists() else listed.with_name("imagenet.txt"))),
            "published",
        )
        if not listed.exists():
            kind = "published for ImageNet, drawn"
            made = [made[row] for row in np.random.default_rng(0).permutation(len(made))[:DRAWN]]
        yield Case(name, *parts, made, kind, _attributes(data) if name == "cub" else {})


def _attributes(data: np.lib.npyio.NpzFile) -> dict[str, np.ndarray]:
    order = np.argsort([str(name) for name in data["names"]])
    truth = data["attributes"][order] >= 50
    used = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    return {_bare(phrase(str(data["attribute_names"][column]))): truth[:, column] for column in used}


def _bare(text: str) -> str:
    """A concept's words that matter, sorted: "a yellow beak" and "yellow bill color" are the same."""
    same = {"beak": "bill", "gray": "grey", "wings": "wing", "eyes": "eye"}
    left_out = {"a", "an", "the", "with", "color", "colour", "shape", "pattern", "primary"}
    words = (same.get(word, word) for word in text.lower().replace("-", " ").split())
    return " ".join(sorted(word for word in words if word not in left_out))


def _classes(case: Case) -> list[str]:
    return sorted({str(label) for label in case.train.y})


def candidates(case: Case, encoder: Encoder, wordnet: WordNet) -> Proposals:
    """What WordNet, its senses chosen by training images, and the generic list propose."""
    found, classes = class_statistics(case.train.X, case.train.y), _classes(case)
    photos = dict(zip(map(str, found.classes), unit_rows(found.means - found.mean), strict=True))
    known = wordnet_proposals(classes, wordnet, embed=encoder.embed_texts, photos=photos)
    leaking = label_texts(classes, known.senses)
    return together([known.proposals, generic_proposals()], leaking=leaking, unknown=known.unknown)


def proposed(case: Case, encoder: Encoder, wordnet: WordNet) -> list[str]:
    """As many concepts as the hand-made list has, from class names and training images."""
    found, names = class_statistics(case.train.X, case.train.y), candidates(case, encoder, wordnet).names
    control = encoder.embed_texts(random_words(64, seed=0, exclude=[*names, *_classes(case)]))
    rows = choose(found, encoder.embed_texts(names), size=len(case.made), control=control).rows
    return [names[row] for row in rows]


def without_class_names(case: Case, wordnet: WordNet) -> list[str]:
    """The hand-made list as it is held to the rule of proposals: nothing that gives a label away."""
    classes = _classes(case)
    leaking = label_texts(classes, wordnet_proposals(classes, wordnet).senses)
    found = check_texts(case.made, leaking=leaking)
    return [name for name, problems in zip(case.made, found, strict=True) if "label" not in {p.kind for p in problems}]


def _row(case: Case, kind: str, concepts: Concepts, words: Concepts, seeds: range) -> str:
    worth = list_worth(concepts, words, train=case.train, test=case.test)
    models = [
        ConceptClassifier(concepts, coder=HardThreshold(length=12), random_state=seed).fit(case.train.X, case.train.y)
        for seed in seeds
    ]
    refined = 100 * np.array([model.score(case.test.X, case.test.y) for model in models])
    gap = "" if concepts is words else f"{100 * worth.meaning_gap:+.1f}"
    accuracies = f"{refined.mean():.1f} ({refined.min():.1f} to {refined.max():.1f})"
    meaning = f"{_agreement(case, concepts)} | {_truth(case, models[0])}"
    return f"| {case.name} | {kind} | {len(concepts)} | {100 * worth.accuracy:.1f} | {gap} | {accuracies} | {meaning} |"


def _truth(case: Case, model: ConceptClassifier) -> str:
    """Of the concepts among the five largest contributions that are attributes, the share that people saw."""
    attributes = [case.attributes.get(_bare(name)) for name in model.concepts_.names]
    known = np.array([attribute is not None for attribute in attributes])
    if not known.any():
        return ""
    classes, y = np.unique(case.test.y, return_inverse=True)
    nothing = np.zeros(len(classes), dtype=bool)
    seen = np.stack([nothing if attribute is None else attribute for attribute in attributes], axis=1)
    codes = model.transform(case.test.X)
    named, true = (
        explanation_truth(codes, model.head_, y, table).seen.sum()
        for table in (np.broadcast_to(known, seen.shape), seen)
    )
    return f"{true / named:.3f} ({seen[y][:, known].mean():.3f})" if named else ""


def _agreement(case: Case, concepts: Concepts) -> str:
    """Mean AUC over those concepts that are attributes, by the scores of their texts on test images."""
    rows = [row for row, name in enumerate(concepts.names) if _bare(name) in case.attributes]
    if not rows:
        return ""
    found = class_statistics(case.test.X, case.test.y)
    scores = (found.means - found.mean) @ _centred(concepts.embeddings)[rows].T
    truth = np.stack([case.attributes[_bare(concepts.names[row])] for row in rows], axis=1)
    return f"{auc_by_column(scores, truth).mean():.3f} ({len(rows)})"


def _centred(rows: np.ndarray) -> np.ndarray:
    return unit_rows(rows - rows.mean(axis=0))


if __name__ == "__main__":
    main()
