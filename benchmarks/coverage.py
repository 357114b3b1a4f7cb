"""Do prediction sets hold the true class as often as was asked? And what does a temperature do to calibration?

    python -m benchmarks.coverage [--sets cifar10,cub,flowers] [--coverage 0.8,0.9] [--seeds 5] [--shared ../shared]

First table: each fit holds out a fifth of its training images, at random, to calibrate on, and is measured on the test
images. Both are draws. Two intervals stand beside what was found: the *binomial* one is that of m test images if sets
had exactly the coverage that was asked for; they have it on average over draws of the n calibration images, so that the
number covered in one run is *beta-binomial*, which is wider.

Second table: one model, its calibration and test images thrown together and divided anew, at random, into as many of
each, --splits times, without fitting again. Then they are exchangeable by construction, the mean must be k / (n + 1),
k = ceil((n + 1) coverage), and 95 % of the divisions must lie in the beta-binomial interval. "alike" asks whether they
were exchangeable as they came: the p-value of a Kolmogorov-Smirnov test that the probabilities of the true classes are
distributed alike on calibration and test images.

Data, concepts and lengths are those of `benchmarks/defaults.py`. ECE: calibration error in points.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import betabinom, binom, ks_2samp

from benchmarks.defaults import SETS, Images, read_images
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.calibration import least_probability
from ccr.coding.heads import LinearHead
from ccr.encoders import load_encoder
from ccr.vocab import embed_concepts, read_concepts

#: Share of the training images that the second table calibrates on, as a fit does.
HELD_OUT = 0.2


class Interval(NamedTuple):
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.1%} to {self.high:.1%}"

    def holds(self, share: float) -> bool:
        return bool(self.low <= share <= self.high)


class Intervals(NamedTuple):
    """Where 95 % of the shares of m test images lie, with n calibration images and with infinitely many."""

    run: Interval
    plain: Interval

    @classmethod
    def of(cls, n: int, m: int, asked: float) -> Intervals:
        k = rank(n, asked)
        run, plain = betabinom.interval(0.95, m, k, n + 1 - k), binom.interval(0.95, m, asked)
        return cls(*(Interval(low / m, high / m) for low, high in (run, plain)))


def rank(n: int, asked: float) -> int:
    """Which of the n calibration images' probabilities a class must reach."""
    return math.ceil((n + 1) * asked - 1e-9)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="cifar10,cub,flowers")
    parser.add_argument("--coverage", default="0.8,0.9")
    parser.add_argument("--seeds", type=int, default=5, help="fits of the first table; 0 leaves it out")
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    add_shared_option(parser)
    given = parser.parse_args()
    encoder, second = load_encoder("bundled"), []
    if given.seeds:
        print("| data | asked | covered | one run: beta-binomial | runs inside | binomial | runs inside |", end="")
        print(" mean set size | answered | accuracy: all | answered | ECE before | after | settled by one concept |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in given.sets.split(","):
        length, listed = SETS[name]
        listing = given.demo / "concepts.txt" if listed == "fruit" else given.shared / "concepts" / f"{listed}.txt"
        concepts = embed_concepts(read_concepts(require(listing)), encoder)
        images = read_images(name, given.shared, given.demo)
        for asked in map(float, given.coverage.split(",")):
            if given.seeds:
                print(row(name, concepts, length, asked, images, given.seeds), flush=True)
            second.append(divided(name, concepts, length, asked, images, given.splits))
    print("\n| data | asked | calibration, test images | covered as they came | alike, p | expected | ", end="")
    print(f"mean of {given.splits} divisions | divisions inside: beta-binomial | binomial |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    print("\n".join(second))


def row(name: str, concepts: Concepts, length: float, asked: float, images: Images, seeds: int) -> str:
    """One line of the first table: means over the seeds."""
    runs = [measured(concepts, length, asked, images, seed) for seed in range(seeds)]
    means = np.mean([numbers for _, numbers in runs], axis=0)
    covered, size, answered, accuracy, right, before, after, settled = means
    cells = []
    for kind in Intervals._fields:
        inside = sum(getattr(found, kind).holds(numbers[0]) for found, numbers in runs)
        cells.append(f"{getattr(runs[0][0], kind)} | {inside} of {seeds}")
    return (
        f"| {name} | {asked:.0%} | {covered:.1%} | {' | '.join(cells)} | {size:.2f} | {answered:.1%} | {accuracy:.1%} "
        f"| {right:.1%} | {100 * before:.1f} | {100 * after:.1f} | {settled:.1%} |"
    )


def measured(
    concepts: Concepts, length: float, asked: float, images: Images, seed: int
) -> tuple[Intervals, tuple[float, ...]]:
    """One fit: the intervals, and what was found in the order of the table."""
    X, y, train = images
    settings = {"coder": HardThreshold(length=length), "coverage": asked, "random_state": seed}
    fitted = ConceptClassifier(concepts, **settings).fit(X[train], y[train])  # type: ignore[arg-type]
    sets, whole = fitted.evaluate_sets(X[~train], y[~train]), fitted.evaluate(X[~train], y[~train])
    n, t = fitted.calibration_.images, fitted.calibration_.temperature
    plain = replace(fitted.model_, head=LinearHead(fitted.coef_ * np.float32(t), fitted.intercept_ * np.float32(t)))
    before = plain.evaluate(X[~train], y[~train]).calibration_error
    open_rows = np.flatnonzero(fitted.predict_set(X[~train]).abstains)[:300]
    settled = np.mean([fitted.question(X[~train][at]) is not None for at in open_rows]) if len(open_rows) else math.nan
    return Intervals.of(n, sets.n, asked), (
        sets.covered, sets.mean_size, sets.answered, whole.accuracy, sets.accuracy_answered, before,
        whole.calibration_error, settled,
    )  # fmt: skip


def divided(name: str, concepts: Concepts, length: float, asked: float, images: Images, splits: int) -> str:
    """One line of the second table: a model fitted on four fifths of the training images, which is not fitted again."""
    X, y, train = images
    rng, rows = np.random.default_rng(0), np.flatnonzero(train)
    held = rng.permutation(rows)[: round(HELD_OUT * len(rows))]
    kept = np.setdiff1d(rows, held)
    model = ConceptClassifier(concepts, coder=HardThreshold(length=length), random_state=0).fit(X[kept], y[kept]).model_
    pool = np.concatenate([held, np.flatnonzero(~train)])
    numbers = np.searchsorted(model.classes, y[pool])
    own = model.predict_proba(X[pool])[np.arange(len(pool)), numbers]
    n, m = len(held), len(pool) - len(held)
    came = np.mean(own[n:] >= least_probability(own[:n], asked))
    alike = ks_2samp(own[:n], own[n:]).pvalue
    found, intervals = np.empty(splits), Intervals.of(n, m, asked)
    for at in range(splits):
        mixed = rng.permutation(own)
        found[at] = np.mean(mixed[n:] >= least_probability(mixed[:n], asked))
    inside = [np.mean([interval.holds(share) for share in found]) for interval in intervals]
    return (
        f"| {name} | {asked:.0%} | {n:,}, {m:,} | {came:.1%} | {alike:.2f} | {rank(n, asked) / (n + 1):.2%} | "
        f"{found.mean():.2%} | {inside[0]:.1%} | {inside[1]:.1%} |"
    )


if __name__ == "__main__":
    main()
