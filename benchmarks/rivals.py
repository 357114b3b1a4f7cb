"""CCR beside the other methods on the sets of images of `benchmarks.defaults`, at the concepts in play that CCR has.

    python -m benchmarks.rivals [--sets pets,flowers] [--shared ../shared]

CCR is as `ccr fit` makes it, at the data set's length; the others get as many concepts per image as it has in play, and
choose between their variants on a tenth of the training images (docs/results.md, The rules). One seed. Test images
choose nothing.
"""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

from benchmarks.defaults import SETS, both_kinds, read_images
from benchmarks.private_data import add_shared_option
from ccr.encoders import load_encoder
from ccr.labels import Part
from ccr_lab.experiments.compare import run_comparison
from ccr_lab.experiments.methods import methods_named
from ccr_lab.experiments.task import ComparisonTask

RIVALS = ("ip-omp", "omp", "splice", "label-free")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    add_shared_option(parser)
    given = parser.parse_args()
    encoder = load_encoder("bundled")
    print("| data | method | accuracy, % | in play | weights per class |\n|---|---|--:|--:|--:|")
    for name in given.sets.split(","):
        length, listed = SETS[name]
        X, y, train = read_images(name, given.shared, given.demo)
        listing = given.demo / "concepts.txt" if listed == "fruit" else given.shared / "concepts" / f"{listed}.txt"
        concepts, words = both_kinds(listing, encoder)
        parts = {"train": Part(X[train], y[train]), "test": Part(X[~train], y[~train])}
        task = ComparisonTask(concepts, **parts, length=length, random_words=words)
        playing = _measured(name, task, ("ccr",))
        _measured(name, replace(task, length=max(1.0, round(playing))), RIVALS)


def _measured(data: str, task: ComparisonTask, methods: tuple[str, ...]) -> float:
    """Print a row for each method; the concepts in play of the first."""
    runs = run_comparison(task, methods_named(methods), seeds=range(1)).runs
    for run in runs:
        print(
            f"| {data} | {run.method} | {100 * run.accuracy:.1f} | {run.in_play:.1f} | {run.weights_per_class:.0f} |",
            flush=True,
        )
    return float(runs[0].in_play or 1.0)


if __name__ == "__main__":
    main()
