"""What an epoch takes beyond its steps: the threshold set anew, length, deviation and validation, the state kept.

    python -m benchmarks.epochs [--rows 16384]

At ImageNet's shape, a tenth of the rows held out. Everything but the steps, as a share of a whole epoch of `refine`;
the steps' time is that of the same epochs, taken inside.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser

import numpy as np
import torch

from benchmarks.measuring import Line
from benchmarks.steps import trainer_of
from ccr import HardThreshold
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.refine.data import split
from ccr.refine.loop import RefinementProblem, Trainer
from ccr.refine.options import Training
from ccr.utils.threads import Workers

CONCEPTS, CLASSES, DIMENSIONS, LENGTH, EPOCHS, ROUNDS, WANTED = 4523, 1000, 512, 47, 4, 3, 0.15


def run(rows: int = 16_384) -> list[Line]:
    """The line of `make bench`."""
    steps, rest = measure(rows)
    share = rest / (steps + rest)
    return [
        Line(
            f"an epoch of {rows:,} images, ImageNet shape, of `refine`", f"{1e3 * rest:.0f} ms between the epochs",
            f"its steps: {1e3 * steps:.0f} ms", f"{100 * share:.0f} % of the epoch", f"at most {100 * WANTED:.0f} %",
            share <= WANTED,
        )
    ]  # fmt: skip


def measure(rows: int) -> tuple[float, float]:
    """The least seconds of an epoch's steps, and of what comes between epochs."""
    rng = np.random.default_rng(0)
    X, D = (unit_rows(rng.standard_normal((count, DIMENSIONS), dtype=np.float32)) for count in (rows, CONCEPTS))
    train, held_out = split(
        Embeddings.ready(torch.from_numpy(X)), rng.integers(0, CLASSES, rows), None, np.arange(0, rows, 10)
    )
    problem = RefinementProblem(
        D, train, held_out, HardThreshold(length=LENGTH), 0.1, CLASSES, Training(max_iter=EPOCHS)
    )
    whole, steps = [], []
    for _ in range(ROUNDS):
        with Workers() as workers:
            ends, taken = _timed(trainer_of(problem, workers))
        whole += list(np.diff(ends))
        steps += taken[1:]
    fastest = int(np.argmin(whole))
    return min(steps), max(whole[fastest] - steps[fastest], 0.0)


def _timed(trainer: Trainer) -> tuple[list[float], list[float]]:
    """When each epoch of a run ended, and the seconds that its steps took."""
    ends: list[float] = []
    taken: list[float] = []
    one_epoch = trainer._epoch

    def timed(number: int, epochs: int) -> float:
        start = time.perf_counter()
        loss = one_epoch(number, epochs)
        taken.append(time.perf_counter() - start)
        return loss

    trainer._epoch = timed  # type: ignore[method-assign]
    trainer.run(lambda epoch, of: ends.append(time.perf_counter()))
    return ends, taken


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16_384)
    print(run(parser.parse_args().rows)[0])


if __name__ == "__main__":
    main()
