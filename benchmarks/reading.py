"""Rows of a file: how long preparing them takes; and a fit from memory, from a small file and from one that stays one.

    python -m benchmarks.reading [--rows 30000]

Made-up rows of 512 numbers in float16, 128 concepts, 10 classes, the default bound in the images' metric. Preparing a
row is reading it, measuring it from the mean and multiplying it by the metric; the windows of a training are prepared
so. The least of several rounds, in turns.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import machine, take_turns
from ccr import ConceptClassifier, Concepts, inputs
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.kernels import warm_up_before_timing
from ccr.utils.threads import Workers

DIMENSIONS, CONCEPTS, CLASSES, ROUNDS = 512, 128, 10, 4
#: Rows that a training prepares together.
WINDOW = 16_384


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=30_000, help="images (default: 30,000)")
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows)
    directions = rng.standard_normal((CLASSES, DIMENSIONS), dtype=np.float32)
    noise = rng.standard_normal((rows, DIMENSIONS), dtype=np.float32)
    X = unit_rows(directions[y] + 2.0 * noise).astype(np.float16)
    warm_up_before_timing("training")
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", X)
        mapped = np.load(Path(folder) / "x.npy", mmap_mode="r")
        for title, works, per in (
            ("preparing, us per row", _preparing(mapped, rng), 1e6 / min(WINDOW, rows)),
            (f"a fit on {rows:,} rows, s", _fits(X, mapped, y, rng), 1.0),
        ):
            print(f"\n| {title} | |\n|---|--:|")
            for name, seconds in take_turns(works, rounds=ROUNDS).items():
                print(f"| {name} | {seconds * per:.2f} |")


def _preparing(mapped: np.ndarray, rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    """A window of scattered rows, by one thread and by all."""
    metric = np.eye(DIMENSIONS, dtype=np.float32) + 0.01 * rng.standard_normal((DIMENSIONS,) * 2, dtype=np.float32)
    embeddings = Embeddings(mapped, mean=mapped[:1000].mean(axis=0, dtype=np.float32), metric=metric)
    rows = np.sort(rng.permutation(len(mapped))[:WINDOW])

    def prepared(threads: int) -> None:
        with Workers(threads) as workers:
            embeddings.take(rows, workers)

    counts = sorted({1, torch.get_num_threads()})
    return {f"{count} thread{'s' * (count > 1)}": lambda count=count: prepared(count) for count in counts}  # type: ignore[misc]


def _fits(
    X: np.ndarray, mapped: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> dict[str, Callable[[], object]]:
    names = [f"concept {number}" for number in range(CONCEPTS)]
    concepts = Concepts(names, rng.standard_normal((CONCEPTS, DIMENSIONS), dtype=np.float32))

    def fitted(rows: np.ndarray, most: int) -> None:
        before, inputs.MAPPED_BYTES = inputs.MAPPED_BYTES, most
        try:
            ConceptClassifier(concepts, random_state=0).fit(rows, y)
        finally:
            inputs.MAPPED_BYTES = before

    return {
        "from memory": lambda: fitted(X, inputs.MAPPED_BYTES),
        "from a file, small enough to be prepared once": lambda: fitted(mapped, 4 * X.size),
        "from a file that is read in every epoch": lambda: fitted(mapped, 0),
    }


if __name__ == "__main__":
    main()
