"""Batches, rates, schedules and a last polish of the head: what each does to accuracy and to time.

    python -m benchmarks.schedules [--seeds 3] [--large] [--shared ../shared]

Each variant changes one thing of the default training. Accuracy is on test images, in percent, the mean over seeds with
the least and the most; time is that of one training against the default's, taken in turns. With --large: batches for
400,000 images, each a mixture of two training images of one class, tested on the real test images.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import HardThreshold
from ccr.coding import apply_rule, code_size
from ccr.coding.heads import LinearHead, fit_softmax
from ccr.encoders import load_encoder
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.refine import Refinement, Training, refine
from ccr.refine.options import STRIDE
from ccr.space import Space, Symmetric
from ccr.vocab import embed_concepts, read_concepts

RADIUS, LENGTHS = 0.1, {"cifar10": 11.0, "cub": 20.0}
LARGE, LARGE_BATCHES = 400_000, (256, 512, 1024, 2048, 4096)


class Task(NamedTuple):
    """A dictionary and prepared rows with class numbers: to train on, to stop by, to test on."""

    name: str
    dictionary: np.ndarray
    train: tuple[Embeddings, np.ndarray]
    validation: tuple[Embeddings, np.ndarray]
    test: tuple[Embeddings, np.ndarray]


@dataclass(frozen=True)
class WarmUp(Training):
    """Rates rise over the first part of training."""

    part: float = 0.05

    def damping(self, progress: float) -> float:
        return super().damping(progress) * min(1.0, (progress + 1e-3) / self.part)


def variants() -> dict[str, Training]:
    plain, step = Training(), STRIDE * RADIUS
    rates = {f"head rate x {f:g}": replace(plain, head_rate=0.03 * f) for f in (0.3, 3.0)}
    rates |= {f"dictionary rate x {f:g}": replace(plain, dictionary_rate=step * f) for f in (0.5, 2.0, 4.0)}
    return {
        "default": plain,
        **{f"batch {size}": replace(plain, batch_size=size) for size in (64, 128, 512, 1024, 2048)},
        "constant rates": replace(plain, schedule="constant"),
        "warm-up, 5 %": WarmUp(),
        "warm-up, 20 %": WarmUp(part=0.2),
        **rates,
        "plain SGD, released rates": replace(plain, optimizer="sgd"),
        "momentum 0": replace(plain, momentum=0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    add_shared_option(parser)
    given = parser.parse_args()
    print("| data | variant | test accuracy | least to most | time against the default |\n|---|---|--:|--:|--:|")
    for name in ("cifar10",) if given.large else LENGTHS:
        task = load(given.shared, name)
        if given.large:
            large(mixed(task), given.seeds)
        else:
            small(task, given.seeds)


def small(task: Task, seeds: int) -> None:
    settings, m = variants(), len(task.train[1])
    settings["half the epochs"] = replace(Training(), max_iter=Training().epochs(m) // 2)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in settings}
    results["default, head polished by L-BFGS"] = []
    for seed in range(seeds):
        for name, training in settings.items():
            seconds, model = timed(task, replace(training, seed=seed))
            results[name].append((accuracy(task, model), seconds))
            if name == "default":
                start = time.perf_counter()
                head = polished(task, model, training)
                seconds += time.perf_counter() - start
                results["default, head polished by L-BFGS"].append((accuracy(task, model, head), seconds))
    report(task.name, results, "default")


def large(task: Task, seeds: int) -> None:
    results: dict[str, list[tuple[float, float]]] = {f"batch {size}": [] for size in LARGE_BATCHES}
    for seed in range(seeds):
        for size in LARGE_BATCHES:
            seconds, model = timed(task, Training(batch_size=size, seed=seed))
            results[f"batch {size}"].append((accuracy(task, model), seconds))
    report(f"{task.name}, {len(task.train[1]):,} mixtures", results, f"batch {Training().batch(len(task.train[1]))}")


def report(data: str, results: dict[str, list[tuple[float, float]]], default: str) -> None:
    unit = min(seconds for _, seconds in results[default])
    for name, runs in results.items():
        values, seconds = [100 * value for value, _ in runs], min(time for _, time in runs)
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"| {data} | {name} | {np.mean(values):.2f} | {spread} | {seconds / unit:.2f} |", flush=True)


def timed(task: Task, training: Training) -> tuple[float, Refinement]:
    coder = HardThreshold(length=LENGTHS[task.name], sign="both")
    start = time.perf_counter()
    model = refine(
        task.dictionary, *task.train, coder=coder, radius=RADIUS, validation=task.validation, training=training
    )
    return time.perf_counter() - start, model


def polished(task: Task, model: Refinement, training: Training) -> LinearHead:
    """The head solved on the codes as they are now, with the penalty it was trained with."""
    codes = apply_rule(model.rule, task.train[0], model.dictionary)
    y = task.train[1]
    start = LinearHead(model.weights.T.astype(np.float64), model.bias.astype(np.float64))
    alpha = training.penalty(len(y)) * code_size(codes) ** 2
    return fit_softmax(codes, y, classes=len(model.bias), alpha=alpha, start=start, tol=1e-4)


def accuracy(task: Task, model: Refinement, head: LinearHead | None = None) -> float:
    codes = apply_rule(model.rule, task.test[0], model.dictionary)
    head = head or LinearHead(model.weights.T, model.bias)
    return float(np.mean(head.logits(codes).argmax(axis=1) == task.test[1]))


def load(shared: Path, name: str) -> Task:
    words = embed_concepts(read_concepts(require(shared / "concepts" / f"{name}.txt")), load_encoder("bundled"))
    images = np.load(require(shared / "embeddings" / f"{name}.npz"))
    X, y, is_train = images["X"].astype(np.float32), images["y"].astype(np.int64), images["is_train"].astype(bool)
    train = np.random.default_rng(0).permutation(np.flatnonzero(is_train))
    cut = len(train) // 10
    space = Space.fit(words.embeddings, X[train[cut:]], center="data", dispersion=Symmetric(0.9))
    parts = [
        (space.images(X[rows]).make_resident(), y[rows])
        for rows in (train[cut:], train[:cut], np.flatnonzero(~is_train))
    ]
    return Task(name, space.texts(words.embeddings), *parts)


def mixed(task: Task) -> Task:
    """The task with many more training rows."""
    rng = np.random.default_rng(0)
    rows, y = task.train[0].span(0, len(task.train[1])).numpy(), task.train[1]
    first = rng.integers(0, len(y), LARGE)
    second = np.empty_like(first)
    for number in np.unique(y):
        own = first[y[first] == number]
        second[y[first] == number] = rng.choice(np.flatnonzero(y == number), len(own))
    share = rng.uniform(0.5, 1.0, (LARGE, 1)).astype(np.float32)
    blend = unit_rows(share * rows[first] + (1 - share) * rows[second]).astype(np.float32)
    return task._replace(train=(Embeddings(blend, normalize=True).make_resident(), y[first]))


if __name__ == "__main__":
    main()
