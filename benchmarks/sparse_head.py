"""What a sparse head costs and saves in a training step at ImageNet's shape, measured side by side in one run.

    python -m benchmarks.sparse_head

4,523 random concepts, 47 active per image, 1,000 classes, batches of 2,048 images: steps with all weights, with the
mask that holds weights at zero, with five weights per class, and with the concepts gone that have none of them.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from ccr.coding import HardThreshold
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.kernels import StepSettings
from ccr.refine.data import Window
from ccr.refine.engines import SparseEngine, State
from ccr.utils.threads import Workers

CONCEPTS, CLASSES, DIMENSIONS, LENGTH, BATCH, STEPS, PER_CLASS, ROUNDS = 4523, 1000, 512, 47, 2048, 8, 5, 6


def main() -> None:
    rng = np.random.default_rng(0)
    images = BATCH * STEPS
    X, D = (unit_rows(rng.standard_normal((rows, DIMENSIONS), dtype=np.float32)) for rows in (images, CONCEPTS))
    rule = HardThreshold(length=LENGTH).rule(Embeddings.ready(torch.from_numpy(X)), D)
    weights = 0.01 * rng.standard_normal((CONCEPTS, CLASSES), dtype=np.float32)
    allowed = np.zeros((CONCEPTS, CLASSES), bool)
    np.put_along_axis(allowed, rng.integers(0, CONCEPTS, (PER_CLASS, CLASSES)), True, axis=0)
    left = np.flatnonzero(allowed.any(axis=1))
    window = Window(
        torch.from_numpy(X),
        np.arange(images),
        rng.integers(0, CLASSES, images),
        np.ones(images, np.float32),
        lasting=True,
    )
    with Workers() as workers:

        def engine(rows: np.ndarray, mask: np.ndarray | None) -> SparseEngine:
            config = StepSettings.of(
                radius=0.1, adaptive=True, momentum=0.9, dropout=0.0, alpha=1e-6, scale=0.15, seed=0,
                sparse_head=mask is not None,
            )  # fmt: skip
            made = SparseEngine(State(D[rows], weights[rows], np.zeros(CLASSES, np.float32), rule), config, workers)
            if mask is not None:
                made.restrict(mask[rows])
            return made

        everything = np.arange(CONCEPTS)
        engines = {
            "all weights": engine(everything, None),
            "all weights, masked": engine(everything, np.ones_like(allowed)),
            "five weights per class": engine(everything, allowed),
            f"five weights per class, {len(left):,} concepts left": engine(left, allowed),
        }
        best = dict.fromkeys(engines, np.inf)
        rates = np.tile([0.03, 0.005], (STEPS, 1))
        for _ in range(ROUNDS):
            for name, each in engines.items():
                start = time.perf_counter()
                each.steps(window, BATCH, rates)
                best[name] = min(best[name], time.perf_counter() - start)
    print("| head | us per image | ratio |\n|---|--:|--:|")
    for name, seconds in best.items():
        print(f"| {name} | {1e6 * seconds / images:.1f} | {seconds / best['all weights']:.2f} |")


if __name__ == "__main__":
    main()
