"""A whole fit at ImageNet's shape from a file: time, peak memory, and the steps' share.

    python -m benchmarks.whole_fit [--rows 1281167] [--epochs N] [--weights-per-class 5] [--folder FOLDER]

Rows are float16 in a .npy file that is written first (1.3 GB at full size, left in the folder, used again if it is
there) and read as a memory map. They are made up: each lies near the direction of its class. One seed, default epochs
unless `--epochs` says otherwise. The peak is that of this process from start to end, files mapped into it included.
"""

from __future__ import annotations

import resource
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np

from benchmarks.measuring import machine
from ccr import ConceptClassifier, Concepts, HardThreshold, kernels
from ccr.geometry import unit_rows
from ccr.refine.loop import Trainer
from ccr.refine.measure import Epoch

CONCEPTS, CLASSES, DIMENSIONS, LENGTH, PIECE = 4523, 1000, 512, 47, 16_384
#: Length of the noise that a row adds to the unit direction of its class.
NOISE = 2.0


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_281_167, help="images (default: ImageNet's 1,281,167)")
    parser.add_argument("--epochs", type=int, help="passes over the rows (default: as many as `fit` takes)")
    parser.add_argument("--weights-per-class", type=int, help="a sparse head (default: all weights)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the rows are written")
    given = parser.parse_args()
    path = given.folder / f"ccr-whole-fit-{given.rows}.npy"
    if not path.exists():
        write_rows(path, given.rows)
    print(machine())
    print(report(given, path))


def labels(rows: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, CLASSES, rows)


def write_rows(path: Path, rows: int) -> None:
    """The rows as float16, a piece at a time; the file has its name once it is whole."""
    rng, y = np.random.default_rng(2), labels(rows)
    directions = unit_rows(rng.standard_normal((CLASSES, DIMENSIONS), dtype=np.float32))
    part = path.with_suffix(".part")
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=(rows, DIMENSIONS))
    for start in range(0, rows, PIECE):
        own = directions[y[start : start + PIECE]]
        noise = rng.standard_normal(own.shape, dtype=np.float32) * np.float32(NOISE / np.sqrt(DIMENSIONS))
        out[start : start + PIECE] = unit_rows(own + noise)
    out.flush()
    del out
    part.replace(path)


def report(given: Namespace, path: Path) -> str:
    """Fit, and say how it went."""
    X, y, rng = np.load(path, mmap_mode="r"), labels(given.rows), np.random.default_rng(3)
    names = [f"concept {number}" for number in range(CONCEPTS)]
    concepts = Concepts(names, rng.standard_normal((CONCEPTS, DIMENSIONS), dtype=np.float32))
    kernels.warm_up_before_timing("training")
    model = ConceptClassifier(
        concepts, coder=HardThreshold(length=LENGTH), max_iter=given.epochs,
        weights_per_class=given.weights_per_class, random_state=0,
    )  # fmt: skip
    steps, epochs = _watched(model, X, y)
    whole, history = steps.pop("fit"), model.history_
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    seconds = sum(steps.values())
    return (
        f"{given.rows:,} rows, {epochs} epochs: {whole:.1f} s in all, {seconds:.1f} s of them steps and reading "
        f"({100 * seconds / whole:.0f} %), {1e6 * seconds / epochs / given.rows:.1f} us per image and epoch; "
        f"peak memory {peak:.2f} GB, the file {path.stat().st_size / 1024**3:.2f} GB; validation accuracy "
        f"{100 * history[model.best_epoch_ - 1].validation_accuracy:.1f} %"
    )


def _watched(model: ConceptClassifier, X: np.ndarray, y: np.ndarray) -> tuple[dict[str, float], int]:
    """Fit the model; the seconds of each epoch's steps by its number, and of all under "fit"."""
    taken: dict[str, float] = {}
    plain = Trainer._epoch

    def timed(self: Trainer, number: int, epochs: int) -> float:
        start = time.perf_counter()
        loss = plain(self, number, epochs)
        taken[str(number)] = time.perf_counter() - start
        return loss

    def say(epoch: Epoch, of: int) -> None:
        print(
            f"epoch {epoch.epoch} of {of}: loss {epoch.train_loss:.3f}, {taken[str(epoch.epoch)]:.1f} s of steps",
            flush=True,
        )

    Trainer._epoch = timed  # type: ignore[method-assign]
    try:
        start = time.perf_counter()
        model.fit(X, y, callback=say)
        return {**taken, "fit": time.perf_counter() - start}, len(taken)
    finally:
        Trainer._epoch = plain  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
