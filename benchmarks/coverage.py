"""Do prediction sets hold the true class as often as was asked? And what does a temperature do to calibration?

    python -m benchmarks.coverage [--sets cifar10,cub,flowers] [--coverage 0.8,0.9] [--seeds 5] [--shared ../shared]

Each fit holds out a fifth of its training images, at random, to calibrate on, and is measured on the test images. Both
are draws: of n calibration and m test images, the number covered is beta-binomial, and its 95 % interval stands beside
what was found. Data, concepts and lengths are those of `benchmarks/defaults.py`. ECE: calibration error in points.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import betabinom

from benchmarks.defaults import SETS, Images, read_images
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.core.heads import LinearHead
from ccr.data.encoders import load_encoder
from ccr.data.vocab import embed_concepts, read_concepts


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="cifar10,cub,flowers")
    parser.add_argument("--coverage", default="0.8,0.9")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    add_shared_option(parser)
    given = parser.parse_args()
    encoder = load_encoder("bundled")
    print("| data | asked | covered | 95 % interval of one run | runs inside | mean set size | answered |", end="")
    print(" accuracy: all | answered | ECE before | after | settled by one concept |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in given.sets.split(","):
        length, listed = SETS[name]
        listing = given.demo / "concepts.txt" if listed == "fruit" else given.shared / "concepts" / f"{listed}.txt"
        concepts = embed_concepts(read_concepts(require(listing)), encoder)
        images = read_images(name, given.shared, given.demo)
        for asked in map(float, given.coverage.split(",")):
            print(row(name, concepts, length, asked, images, given.seeds), flush=True)


def row(name: str, concepts: Concepts, length: float, asked: float, images: Images, seeds: int) -> str:
    """One line of the table: means over the seeds."""
    runs = np.array([measured(concepts, length, asked, images, seed) for seed in range(seeds)])
    low, high, inside = runs[:, 0].mean(), runs[:, 1].mean(), int(runs[:, 2].sum())
    covered, size, answered, accuracy, right, before, after, settled = runs[:, 3:].mean(axis=0)
    return (
        f"| {name} | {asked:.0%} | {covered:.1%} | {low:.1%} to {high:.1%} | {inside} of {seeds} | {size:.2f} | "
        f"{answered:.1%} | {accuracy:.1%} | {right:.1%} | {100 * before:.1f} | {100 * after:.1f} | {settled:.1%} |"
    )


def measured(concepts: Concepts, length: float, asked: float, images: Images, seed: int) -> tuple[float, ...]:
    """One fit: the interval, whether coverage is inside, and everything else in the order of the table."""
    X, y, train = images
    settings = {"coder": HardThreshold(length=length), "coverage": asked, "random_state": seed}
    fitted = ConceptClassifier(concepts, **settings).fit(X[train], y[train])  # type: ignore[arg-type]
    sets, whole = fitted.evaluate_sets(X[~train], y[~train]), fitted.evaluate(X[~train], y[~train])
    n, t = fitted.calibration_.images, fitted.calibration_.temperature
    k = math.ceil((n + 1) * asked - 1e-9)
    low, high = np.array(betabinom.interval(0.95, sets.n, k, n + 1 - k)) / sets.n
    plain = replace(fitted.model_, head=LinearHead(fitted.coef_ * np.float32(t), fitted.intercept_ * np.float32(t)))
    before = plain.evaluate(X[~train], y[~train]).calibration_error
    open_rows = np.flatnonzero(fitted.predict_set(X[~train]).abstains)[:300]
    settled = np.mean([fitted.question(X[~train][at]) is not None for at in open_rows]) if len(open_rows) else math.nan
    return (
        low, high, low <= sets.covered <= high, sets.covered, sets.mean_size, sets.answered, whole.accuracy,
        sets.accuracy_answered, before, whole.calibration_error, settled,
    )  # fmt: skip


if __name__ == "__main__":
    main()
