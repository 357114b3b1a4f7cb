"""Stability of every method's explanations: which concepts stay when it is fitted again on other training images.

    python -m benchmarks.stability [--demo ccr-demo] [--methods ccr,label-free] [--refits 5]

Each method is fitted on bootstrap samples of the demo's training photos, each with a seed of its own, with the demo's
table of knowledge, without it, and with a shuffled one, as `ccr compare --knowledge` does. Overlap: of the up to five
concepts that two refits show first for a test photo, shown by both / shown by either, the mean over photos and pairs of
refits; in brackets, where both predict the same class.
"""

from __future__ import annotations

from argparse import ArgumentParser
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import sparse

from ccr.data.store import EmbeddingStore
from ccr.encoders import load_encoder
from ccr.knowledge import Knowledge
from ccr.labels import Part
from ccr.metrics import SHOWN, largest_shown
from ccr_lab.experiments.methods import Method, methods_named, with_controls
from ccr_lab.experiments.task import ComparisonTask, store_task

METHODS = "ccr,ccr-angular,label-free,splice,ip-omp,omp"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--refits", type=int, default=5)
    given = parser.parse_args()
    task = store_task(
        EmbeddingStore.open(given.demo / "store"),
        given.demo / "concepts.txt",
        load_encoder("bundled"),
        knowledge=Knowledge.read(given.demo / "knowledge.csv"),
    )
    print("| method | overlap (same class) |\n|---|--:|")
    for method in methods_named(with_controls(given.methods.split(","), knowledge=True)):
        if not method.name.startswith("random"):
            overlap, same = stability(method, task, given.refits)
            print(f"| {method.title} | {overlap:.2f} ({same:.2f}) |", flush=True)


def stability(method: Method, task: ComparisonTask, refits: int) -> tuple[float, float]:
    """Mean overlap over test images and pairs of refits, and where both predict the same class."""
    found = [_refit(method, task, seed) for seed in range(refits)]
    overlaps, alike = [], []
    for (first, ours), (second, theirs) in combinations(found, 2):
        both, either = (ours & theirs).sum(axis=1), (ours | theirs).sum(axis=1)
        overlaps.append(np.where(either > 0, both / np.maximum(either, 1), 1.0))
        alike.append(first == second)
    overlap, same = np.concatenate(overlaps), np.concatenate(alike)
    return float(overlap.mean()), float(overlap[same].mean())


def _refit(method: Method, task: ComparisonTask, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Predicted classes (m,) of the test images and which concepts (m, n) are shown first for each."""
    train, validation = task.split(seed)
    rows = np.sort(np.random.default_rng(seed).integers(0, len(train.y), len(train.y)))
    X = train.X.select(rows=rows) if hasattr(train.X, "select") else train.X[rows]
    contender = method.fit(task, Part(X, train.y[rows]), validation, seed)
    codes = sparse.csr_matrix(contender.model.transform(task.test.X))
    first = largest_shown(codes, contender.head, SHOWN)
    names = {name: column for column, name in enumerate(task.concepts.names)}
    columns = np.array([names[name] for name in contender.model.model_.names])[codes.indices[first]]
    shown = np.zeros((codes.shape[0], len(names)), bool)
    shown[np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[first], columns] = True
    return contender.head.logits(codes).argmax(axis=1), shown


if __name__ == "__main__":
    main()
