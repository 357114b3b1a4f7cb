"""How long `choose` takes, and how much memory: thousands of candidates, a hundred thousand images on disk.

    python -m benchmarks.choosing [--images 100000] [--candidates 5000] [--classes 200] [--size 1024]

Numbers are random (time does not depend on them), the images a memory-mapped file as a store has them. Texts are taken
as embedded: `ccr concepts choose` embeds new ones first, and keeps them.
"""

from __future__ import annotations

import resource
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np

from ccr.geometry import unit_rows
from ccr.vocab.choose import choose, class_statistics

DIMENSION = 512


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--size", type=int, default=1024, help="how many to choose")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    y = rng.integers(0, given.classes, given.images)
    texts = rng.normal(size=(given.candidates, DIMENSION)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        X = _images(Path(folder) / "images.npy", y, given.classes, rng)
        before, start, used = _peak(), time.perf_counter(), time.process_time()
        found = class_statistics(X, y)
        read = time.perf_counter()
        chosen = choose(found, texts, size=given.size)
        done, used = time.perf_counter(), time.process_time() - used
    print(f"{len(chosen.rows)} of {given.candidates} candidates, {given.images} images, {given.classes} classes")
    print(f"{read - start:.1f} s to read the images, {done - read:.1f} s to choose, {used:.1f} s of a processor")
    print(f"at most {_peak() - before:.1f} GB more")


def _images(path: Path, y: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Unit rows around the means of their classes, written in parts and mapped from the disk."""
    means = rng.normal(size=(classes, DIMENSION)).astype(np.float32)
    written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(y), DIMENSION))
    for start in range(0, len(y), 10_000):
        part = y[start : start + 10_000]
        written[start : start + len(part)] = unit_rows(means[part] + 3 * rng.normal(size=(len(part), DIMENSION)))
    written.flush()
    return np.load(path, mmap_mode="r")


def _peak() -> float:
    """The most memory that this process had, in GB; mapped files count while they are read."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
