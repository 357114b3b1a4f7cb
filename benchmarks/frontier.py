"""Accuracy against fidelity, and against concepts in play, on CIFAR-10: two figures of `ccr figures`, for embeddings
that are no store.

    python -m benchmarks.frontier [--out docs/figures/cifar10] [--length 11] [--shared ../shared]

Bundled texts, the classifier's own settings otherwise. Test images choose nothing. Embeddings and the concept list are
read from the shared folder (docs/data.md). Finished fits are kept in OUT/runs: the same command goes on.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr.cli.common import fitting, write_files
from ccr.cli.common_data import chosen_coder
from ccr.encoders import load_encoder
from ccr.labels import Part
from ccr.vocab import embed_concepts, random_words, read_concepts
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.frontier import FrontierGrid, measure_frontier
from ccr_lab.experiments.task import ComparisonTask
from ccr_lab.plots.experiment_plots import frontier_files

#: Concepts per image of the other methods: pursuit and lasso are slow on this many images.
RIVAL_LENGTHS = (3, 5, 12)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/cifar10"))
    parser.add_argument("--length", type=float, default=11)
    add_shared_option(parser)
    given = parser.parse_args()
    grid = FrontierGrid({"coder": chosen_coder(given.length, None)}, rival_lengths=RIVAL_LENGTHS)
    with fitting() as tell:
        found = measure_frontier(cifar10(given.shared), grid, cache=RunCache(given.out / "runs"), tell=tell)
    print(f"In {given.out}: {', '.join(write_files(given.out, frontier_files(found)))}")


def cifar10(shared: Path) -> ComparisonTask:
    """Embedded CIFAR-10 with the published concepts and as many random words."""
    data = np.load(require(shared / "embeddings" / "cifar10.npz"))
    X, y, train = data["X"].astype(np.float32), data["names"][data["y"]], data["is_train"].astype(bool)
    names, encoder = read_concepts(require(shared / "concepts" / "cifar10.txt")), load_encoder("bundled")
    words = random_words(len(names), seed=0, exclude=[*names, *map(str, data["names"])])
    return ComparisonTask(
        embed_concepts(names, encoder),
        train=Part(X[train], y[train]),
        test=Part(X[~train], y[~train]),
        random_words=embed_concepts(words, encoder),
    )


if __name__ == "__main__":
    main()
