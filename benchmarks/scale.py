"""Fits at ImageNet's shape on one machine, with workers that share them, and a model of what clusters would take.

    python -m benchmarks.scale one [--rows 1281167]      # one process: time and peak memory, end to end
    python -m benchmarks.scale together [--rows 12811]   # an epoch by one process, and by two that share it
    python -m benchmarks.scale model                     # hours and node-hours of embed and fit, by size of the cluster

Rows are random, float16 on disk, 512 dimensions; 4,523 concepts, 1,000 classes, about 47 concepts active per image.
`--rows 12812` is a hundredth of ImageNet.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROWS, CONCEPTS, CLASSES, DIMENSIONS, LENGTH = 1_281_167, 4_523, 1_000, 512, 47
CHUNK = 65_536


def write_rows(path: Path, rows: int) -> np.ndarray:
    """Random float16 rows on disk, a piece at a time; their labels."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLASSES, DIMENSIONS)).astype(np.float32)
    y = rng.integers(CLASSES, size=rows)
    out = np.lib.format.open_memmap(path, "w+", np.float16, (rows, DIMENSIONS))
    for start in range(0, rows, CHUNK):
        part = slice(start, min(start + CHUNK, rows))
        noise = rng.standard_normal((part.stop - part.start, DIMENSIONS), np.float32)
        out[part] = centers[y[part]] + 2.0 * noise
    out.flush()
    return y


def classifier(epochs: int | None):  # type: ignore[no-untyped-def]
    from ccr import ConceptClassifier, Concepts, HardThreshold

    texts = np.random.default_rng(1).standard_normal((CONCEPTS, DIMENSIONS)).astype(np.float32)
    concepts = Concepts([f"concept {row}" for row in range(CONCEPTS)], texts)
    return ConceptClassifier(concepts, coder=HardThreshold(length=LENGTH), max_iter=epochs, random_state=0)


def one(rows: int, epochs: int | None) -> None:
    """A whole fit by one process."""
    folder = Path(tempfile.mkdtemp(prefix="ccr-scale-"))
    try:
        y = write_rows(folder / "x.npy", rows)
        X = np.load(folder / "x.npy", mmap_mode="r")
        started = time.perf_counter()
        model = classifier(epochs).fit(X, y, callback=lambda epoch, all_: print(f"epoch {epoch.epoch} of {all_}"))
        seconds = time.perf_counter() - started
    finally:
        shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{rows:,} rows, {len(model.history_)} epochs: {seconds:,.0f} s end to end, peak memory {peak:,.0f} MB")
    print("the paper: about 7,200 s on a V100 for 200 iterations")


def together(rows: int, workers: int) -> None:
    """The same fit by one process and by a team of workers on a local cluster: time by epoch, and bytes summed."""
    from ccr.core.refine.shared import SharedEngine
    from ccr.scale import connected, fit

    folder = Path(tempfile.mkdtemp(prefix="ccr-scale-"))
    try:
        y = write_rows(folder / "x.npy", rows)
        X = np.load(folder / "x.npy")
        times: dict[str, list[float]] = {"one": [], "together": []}
        classifier(3).fit(X, y, callback=lambda *_: times["one"].append(time.perf_counter()))
        with connected("local"):
            fit(
                classifier(3), X, y, storage=folder / "kept", workers=workers,
                callback=lambda *_: times["together"].append(time.perf_counter()),
            )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    alone, both = (float(np.diff(times[name]).mean()) for name in ("one", "together"))
    print(f"an epoch of {rows:,} rows: one process {alone:.2f} s, {workers} workers {both:.2f} s")
    print(f"ratio {both / alone:.2f}; all weights summed: {summed_bytes(None):,} bytes a step and worker, "
          f"five weights per class: {summed_bytes(5):,} ({SharedEngine.__name__})")  # fmt: skip


def summed_bytes(weights: int | None) -> int:
    """Bytes that each worker gives to the sums of a step: bias, head and dictionary in float32, loss and length."""
    head = CONCEPTS * CLASSES if weights is None else weights * CLASSES
    return 4 * (CLASSES + head + CONCEPTS * DIMENSIONS) + 16


class Cluster(NamedTuple):
    """What a node does: images embedded a second, seconds per image of a step's derivatives and of the part of a step
    that every worker repeats, and bytes of the network a second."""

    embedded: float
    per_image: float
    per_step: float
    network: float


def fit_hours(images: float, nodes: int, cluster: Cluster, *, batch: int = 2048, epochs: int = 10) -> float:
    """Hours of a fit: derivatives are shared, the step itself is not, sums take a ring twice around."""
    steps = epochs * images / batch
    dense, sparse = (summed_bytes(weights) for weights in (None, 5))
    share = 2 * (nodes - 1) / nodes
    sums = share * (0.4 * dense + 0.6 * sparse) / cluster.network  # weights go between a tenth and a half of the epochs
    return steps * (batch * cluster.per_image / nodes + cluster.per_step + sums) / 3600


def embed_hours(images: float, nodes: int, cluster: Cluster) -> float:
    """Hours of an embedding: as long as nodes have images, nothing is shared."""
    return images / cluster.embedded / nodes / 3600


def model(embedded: float, per_image: float, per_step: float) -> None:
    """The tables of docs/scale.md."""
    for gigabit in (10, 100):
        cluster = Cluster(embedded, per_image, per_step, gigabit * 1e9 / 8)
        print(f"\n{gigabit} Gbit/s: hours (node-hours)\n")
        print("| images | nodes | embed | fit |\n|--:|--:|--:|--:|")
        for images in (1.3e6, 50e6, 5e9):
            for nodes in (1, 4, 16, 64, 256):
                hours = embed_hours(images, nodes, cluster), fit_hours(images, nodes, cluster)
                cells = " | ".join(f"{value:,.2f} ({value * nodes:,.0f})" for value in hours)
                print(f"| {images:,.0f} | {nodes} | {cells} |")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("one", "together", "model"))
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--embedded", type=float, default=1000.0, help="images per second and node (one GPU)")
    parser.add_argument("--per-image", type=float, default=24e-6, help="seconds per image of a step, on two cores")
    parser.add_argument("--per-step", type=float, default=0.03, help="seconds of a step that every worker repeats")
    asked = parser.parse_args()
    if asked.what == "one":
        one(asked.rows or ROWS, asked.epochs)
    elif asked.what == "together":
        together(asked.rows or ROWS // 100, asked.workers)
    else:
        model(asked.embedded, asked.per_image, asked.per_step)


if __name__ == "__main__":
    main()
