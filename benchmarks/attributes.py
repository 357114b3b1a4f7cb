"""Do codes and explanations mean what their names say? On CUB, against attributes that people saw.

    python -m benchmarks.attributes [--length 20] [--seeds 1] [--shared ../shared] [--rivals]

Concepts are CUB's own attributes in words. Truth: of the five largest positive contributions of concepts that a test
image shows, the share that half of the annotators saw in its class; its interval is over classes, and that of the
difference to the first row draws the same classes for both. AUC: how well a class's mean code tells the classes that
have an attribute from the others, mean over attributes; with its interval over attributes. Controls stand in for the
attributes one by one: unrelated words, random vectors. Test images choose nothing. `--rivals` measures the other
methods instead, on CUB's attributes and at the same length, beside CCR as `ccr fit` makes it; each chooses between its
variants on a tenth of the training images (docs/results.md, The rules).
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NamedTuple

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import random_unit_concepts
from ccr.encoders import load_encoder
from ccr.labels import Part
from ccr.metrics import in_play
from ccr.vocab import embed_concepts, random_words
from ccr_lab.experiments.attributes import (
    Truth,
    agreement_before_and_after,
    explanation_truth,
    model_truth,
    truth_difference,
)
from ccr_lab.experiments.methods import methods_named
from ccr_lab.experiments.task import ComparisonTask

#: Settings by name; codes are one-sided unless a `coder` says otherwise. The first row is what the others' truth is
#: compared with.
SETTINGS: dict[str, dict[str, Any]] = {
    "radius 0.1, both signs": {"radius": 0.1, "weights_per_class": None, "coder": {"sign": "both"}},
    "radius 0.1": {"radius": 0.1, "weights_per_class": None},
    "the defaults": {"coder": {}},
    **{f"the defaults, candidates {times:g}": {"coder": {}, "candidates": times} for times in (3, 2, 1)},
    **{
        f"fidelity {least:g}, all weights": {"fidelity": least, "weights_per_class": None}
        for least in (1.0, 0.955, 0.875)
    },
}
POSITIVE = {"sign": "positive"}
#: The other methods, and CCR in the ball of the paper, beside CCR itself.
RIVALS = ("ccr", "ccr-ball", "ip-omp", "splice", "label-free")
HEADINGS = (
    "concepts", "setting", "accuracy, %", "truth", "less the first", "AUC before", "AUC after", "fidelity", "in play"
)  # fmt: skip


class Birds(NamedTuple):
    """Both splits of CUB, and which class has which attribute (classes, attributes)."""

    train: Part
    test: Part
    seen: np.ndarray


class Row(NamedTuple):
    """Means over seeds of one setting; the truth is that of the first seed."""

    truth: Truth
    numbers: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=float, default=20, help="concepts per image")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rivals", action="store_true", help="the other methods instead of CCR's settings")
    add_shared_option(parser)
    given = parser.parse_args()
    birds, names = read_birds(np.load(require(given.shared / "embeddings" / "cub.npz")))
    base = birds.seen[birds.test.y].mean()
    print(f"{len(names)} attributes, {len(birds.test.y)} test images, length {given.length:g}")
    print(f"named at random, {base:.3f} would be true\n")
    if given.rivals:
        _rivals(names, birds, given.length)
        return
    print(f"| {' | '.join(HEADINGS)} |")
    print(f"|---|---|{'--:|' * (len(HEADINGS) - 2)}")
    first: Truth | None = None
    for kind, concepts in _kinds(names).items():
        for setting, options in SETTINGS.items():
            row = _measured(concepts, birds, given.length, range(given.seeds), **options)
            first = first or row.truth
            print(f"| {kind} | {setting} | {_cells(row, first)} |", flush=True)


def _rivals(names: list[str], birds: Birds, length: float) -> None:
    """A row for each of the other methods."""
    task = ComparisonTask(
        embed_concepts(names, load_encoder("bundled")), train=birds.train, test=birds.test, length=length
    )
    train, validation = task.split(0)
    print("| method | accuracy, % | truth | concepts named per image | in play |\n|---|--:|--:|--:|--:|")
    for method in methods_named(RIVALS):
        fitted = method.fit(task, train, validation, 0)
        codes = fitted.model.transform(birds.test.X)
        kept = [names.index(name) for name in fitted.model.model_.names]
        found = explanation_truth(codes, fitted.head, birds.test.y, birds.seen[:, kept])
        right = 100 * np.mean(fitted.head.logits(codes).argmax(axis=1) == birds.test.y)
        share = f"{found.share:.3f} ({found.interval.low:.3f} to {found.interval.high:.3f})"
        named, playing = found.named.sum() / len(birds.test.y), in_play(codes, fitted.head)
        print(f"| {method.title} | {right:.1f} | {share} | {named:.1f} | {playing:.1f} |", flush=True)


def read_birds(data: Any) -> tuple[Birds, list[str]]:
    """CUB with those attributes that half of the annotators saw in some classes and not in all, and their names."""
    seen = data["attributes"] >= 50
    used = np.flatnonzero(seen.any(axis=0) & ~seen.all(axis=0))
    X, y, train = data["X"], data["y"].astype(int), data["is_train"]
    names = [phrase(str(data["attribute_names"][column])) for column in used]
    return Birds(Part(X[train], y[train]), Part(X[~train], y[~train]), seen[:, used]), names


def phrase(name: str) -> str:
    """ "curved bill shape" for "has_bill_shape::curved_(up_or_down)"."""
    part, value = name.removeprefix("has_").split("::")
    value = re.sub(r"_?\(.*\)", "", value)
    return re.sub(r"[_-]", " ", f"{value} {part.replace('_color', '')}")


def _kinds(names: list[str]) -> dict[str, Concepts]:
    encoder = load_encoder("bundled")
    concepts = embed_concepts(names, encoder)
    return {
        "CUB's attributes": concepts,
        "random words": embed_concepts(random_words(len(names), seed=0, exclude=names), encoder),
        "random vectors": random_unit_concepts(concepts, seed=0),
    }


def _measured(
    concepts: Concepts, birds: Birds, length: float, seeds: range, *, coder: Any = POSITIVE, **options: Any
) -> Row:
    codes, test = HardThreshold(length=length, **coder), birds.test
    truths, numbers = [], []
    for seed in seeds:
        model = ConceptClassifier(concepts, coder=codes, random_state=seed, **options).fit(*birds.train)
        found = model.evaluate(*test)
        before, after = agreement_before_and_after(model, *test, birds.seen)
        truths.append(model_truth(model, *test, birds.seen))
        numbers.append([found.accuracy, before.auc, after.auc, found.fidelity.mean, found.in_play])
    return Row(truths[0], np.mean(numbers, axis=0))


def _cells(row: Row, first: Truth) -> str:
    accuracy, before, after, fidelity, playing = row.numbers
    share, (low, high) = row.truth.share, row.truth.interval
    apart, ends = truth_difference(row.truth, first)
    gained = "" if row.truth is first else f"{apart:+.3f} ({ends.low:+.3f} to {ends.high:+.3f})"
    cells = f"{100 * accuracy:.1f} | {share:.3f} ({low:.3f} to {high:.3f}) | {gained}"
    return f"{cells} | {before:.3f} | {after:.3f} | {fidelity:.3f} | {playing:.1f}"


if __name__ == "__main__":
    main()
