"""`python -m benchmarks.division`: a step at three shapes with rows, and with concepts, shared among the threads when
they code. A training tries both ways and keeps the faster one (`ccr.kernels.x86.training`)."""

from __future__ import annotations

import sys

from benchmarks.measuring import machine, take_turns
from benchmarks.steps import SHAPES, Shape, random_problem, trainer_of
from ccr import kernels
from ccr.utils.threads import Workers


class Fixed:
    """Stands in for a `Division`, with one way alone; `concepts` says that they are shared."""

    def __init__(self, *, concepts: bool) -> None:
        self.concepts = concepts

    def owners(self, most: int) -> int:
        return most if self.concepts else 1

    def took(self, most: int, owners: int, seconds: float) -> None:
        """Nothing is learned from it."""


def main() -> None:
    if kernels.TIER == "plain":
        sys.exit("only the x86 kernels divide their work in two ways; this machine has the plain ones")
    print(machine())
    kernels.warm_up(lambda text: print(text, file=sys.stderr))
    for shape in SHAPES:
        seconds = _measure(shape)
        rows, concepts, tried = (seconds[way] / shape.rows * 1e6 for way in ("rows", "concepts", "tried"))
        print(
            f"{shape.name} shape, us per image: rows shared {rows:.2f}, concepts shared {concepts:.2f} "
            f"({concepts / rows:.2f} times the time), both tried first {tried:.2f}"
        )


def _measure(shape: Shape) -> dict[str, float]:
    _, problem = random_problem(shape)
    with Workers() as workers:
        trainers = {way: trainer_of(problem, workers) for way in ("rows", "concepts", "tried")}
        for way in ("rows", "concepts"):
            trainers[way].engine._kernels.division = Fixed(concepts=way == "concepts")
        return take_turns(
            {way: lambda own=own: own._epoch(1, 10) for way, own in trainers.items()}, rounds=shape.rounds
        )


if __name__ == "__main__":
    main()
