"""A training step at three shapes: the sparse engine in both tiers of kernels, also with five weights per class and
with a threshold for each concept, the plain dense loop, and the bare product X D^T."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.measuring import Line, at_least, at_most, bare_products, least, on_threads, take_turns
from benchmarks.opponents import DenseLoop
from ccr import HardThreshold, kernels
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.kernels.tiers import choose_tier
from ccr.refine.data import Labelled
from ccr.refine.engines import SparseEngine
from ccr.refine.loop import RefinementProblem, Trainer
from ccr.refine.options import Training
from ccr.utils.threads import Workers

DIMENSION = 512
#: Weights of a class where the head is a sparse one.
PER_CLASS = 5
#: Of the time with one threshold, what a threshold for each concept may take.
THRESHOLDS = 1.1


class Shape(NamedTuple):
    """`images` are those of the data set, which decide on the batch; `rows` are timed, `dense_rows` by the opponent."""

    name: str
    images: int
    n: int
    classes: int
    length: int
    rows: int
    dense_rows: int
    rounds: int
    faster: float
    floor: float
    sparse_faster: float | None


SHAPES = (
    Shape("ImageNet", 1_281_167, 4523, 1000, 47, 16_384, 1000, 12, 15.0, 1.0, 20.0),
    Shape("CIFAR-100", 50_000, 824, 100, 20, 16_384, 4000, 30, 8.0, 1.2, None),
    Shape("CIFAR-10", 50_000, 128, 10, 11, 32_768, 10_000, 30, 8.0, 2.0, None),
)


def run() -> list[Line]:
    return [line for shape in SHAPES for line in _measure(shape)]


def random_problem(shape: Shape) -> tuple[torch.Tensor, RefinementProblem]:
    """Random rows and labels, and a training on them."""
    rng = np.random.default_rng(0)
    D = unit_rows(rng.standard_normal((shape.n, DIMENSION), dtype=np.float32))
    X = torch.from_numpy(unit_rows(rng.standard_normal((shape.rows, DIMENSION), dtype=np.float32)))
    y = rng.integers(0, shape.classes, shape.rows)
    data = Labelled(Embeddings.ready(X), np.arange(len(X)), y, np.ones(len(X), np.float32))
    training = Training(batch_size=Training().batch(shape.images))
    return X, RefinementProblem(
        D, data, None, HardThreshold(length=shape.length, sign="both"), 0.1, shape.classes, training
    )


def _measure(shape: Shape) -> list[Line]:
    X, problem = random_problem(shape)
    D, labels, threads = problem.dictionary, torch.from_numpy(problem.train.y), torch.get_num_threads()
    tiers = sorted({"plain", kernels.TIER})
    with Workers() as workers:
        trainers = {tier: _by_tier(tier, lambda: trainer_of(problem, workers))() for tier in tiers}
        threshold = trainers["plain"].start.rule.threshold
        dense = DenseLoop(torch.from_numpy(D), shape.classes, threshold, one_sided=False, dropout=0.1)
        order = torch.randperm(shape.rows)[: shape.dense_rows]  # as a training reads them
        works = {tier: _by_tier(tier, lambda own=trainers[tier]: own._epoch(1, 10)) for tier in tiers}
        each = _with_thresholds(problem, workers)
        works["thresholds"] = lambda: each._epoch(1, 10)
        if shape.sparse_faster is not None:
            few = _with_few_weights(problem, workers)
            works["five"] = lambda: few._epoch(1, 10)
        works |= {name: on_threads(threads, work) for name, work in bare_products(X, dense.center).items()}
        for count in sorted({1, threads}):
            # Torch's own threads wait for each other: on a busy machine one can be faster than two.
            works[f"dense {count}"] = on_threads(count, lambda: dense.epoch(X, labels, order))
        seconds = take_turns(works, rounds=shape.rounds)
    return _lines(shape, Training().batch(shape.images), seconds)


def trainer_of(problem: RefinementProblem, workers: Workers) -> Trainer:
    return Trainer(
        problem, "sparse", lambda start, settings, center: SparseEngine(start, settings, workers, center), workers
    )


def _with_thresholds(problem: RefinementProblem, workers: Workers) -> Trainer:
    """The same with a threshold for each concept, which differ by up to a tenth, at the same mean length."""
    coder = problem.coder
    assert isinstance(coder, HardThreshold)
    ratios = np.random.default_rng(2).uniform(0.95, 1.05, len(problem.dictionary))
    own = HardThreshold(threshold=ratios, length=coder.length, sign=coder.sign)
    return trainer_of(problem._replace(coder=own), workers)


def _with_few_weights(problem: RefinementProblem, workers: Workers) -> Trainer:
    """The same with weights for some classes only, PER_CLASS each, and all concepts."""
    few = problem._replace(training=replace(problem.training, weights_per_class=PER_CLASS))
    trainer, rng = trainer_of(few, workers), np.random.default_rng(1)
    allowed = np.zeros((len(problem.dictionary), problem.classes), bool)
    chosen = [rng.choice(len(allowed), PER_CLASS, replace=False) for _ in range(problem.classes)]
    np.put_along_axis(allowed, np.array(chosen).T, True, axis=0)
    trainer.engine.restrict(allowed)
    return trainer


def _by_tier(tier: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """The same work by the kernels of a tier."""
    names = ("SCREENS", "PackedConcepts", "StepKernels", "code_rows", "logits")

    def run() -> Any:
        before, chosen = {name: getattr(kernels, name) for name in names}, choose_tier(tier)
        for name in names:
            setattr(kernels, name, getattr(chosen, name))
        try:
            return work()
        finally:
            for name, value in before.items():
                setattr(kernels, name, value)

    return run


def _lines(shape: Shape, batch: int, seconds: dict[str, float]) -> list[Line]:
    ours, plain = (seconds[tier] / shape.rows * 1e6 for tier in (kernels.TIER, "plain"))
    floor = least(seconds, "floor") / shape.rows * 1e6
    dense = least(seconds, "dense") / shape.dense_rows * 1e6
    work = f"step, {shape.name} shape (n={shape.n}, C={shape.classes}, {shape.length} active), per image"
    mine, opponent = (
        f"{kernels.TIER} kernels: {ours:.2f} us, batch {batch}",
        f"plain dense loop, batch 100: {dense:.1f} us",
    )
    lines = [
        Line(work, mine, opponent, *at_least(dense / ours, shape.faster)),
        Line(work, mine, f"bare X D^T: {floor:.2f} us", *at_most(ours / floor, shape.floor)),
    ]
    if kernels.TIER != "plain":
        lines.append(Line(work, mine, f"plain kernels: {plain:.2f} us", f"{plain / ours:.1f} times faster", "", None))
    each = seconds["thresholds"] / shape.rows * 1e6
    own, one = f"a threshold for each concept: {each:.2f} us", f"one threshold: {ours:.2f} us"
    lines.append(Line(work, own, one, *at_most(each / ours, THRESHOLDS)))
    if shape.sparse_faster is not None:
        few = seconds["five"] / shape.rows * 1e6
        own = f"five weights per class, all concepts: {few:.2f} us"
        lines.append(Line(work, own, opponent, *at_least(dense / few, shape.sparse_faster)))
    return lines
