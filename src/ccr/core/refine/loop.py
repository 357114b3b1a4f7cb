"""The loop of Algorithm 2 (docs/method.md): minibatch steps, the exact projection after each, the length held, the best
epoch kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ccr.core.coding import Coder, ScoreCoder, is_differentiable
from ccr.core.devices import resolve_device
from ccr.core.geometry import check_radius, project_to_cap
from ccr.core.inputs import Embeddings
from ccr.core.metrics import deviation
from ccr.core.refine.choice import EngineName, choose_engine
from ccr.core.refine.data import Labelled, split
from ccr.core.refine.dense import DenseEngine
from ccr.core.refine.engine import Engine, State, StepConfig
from ccr.core.refine.fixed import fit_head
from ccr.core.refine.measure import mean_length, sample_code_size, strongest_weights, validate
from ccr.core.refine.options import Training
from ccr.core.refine.progress import (
    BestEpoch,
    Checkpoint,
    Epoch,
    Progress,
    Refinement,
    Stop,
    fingerprint,
    pack,
    unpack,
)
from ccr.core.refine.sparse import SparseEngine
from ccr.core.threads import Workers, threads_for
from ccr.errors import CCRError

Callback = Callable[[Epoch, int], None]

#: Of an engine's `state_dict`: a checkpoint of another one is not continued.
REVISION = 4
#: Length, threshold and code size are measured on at most this many training rows: to about half a percent.
SAMPLE_ROWS = 4096


class Problem(NamedTuple):
    """What is minimised: over caps of which radius around which dictionary (n, d), on which data, through which coder;
    `start` (n, d) is where its rows start inside their caps, None: at their centres."""

    dictionary: np.ndarray
    train: Labelled
    held_out: Labelled | None
    coder: ScoreCoder
    radius: float
    classes: int
    training: Training
    start: np.ndarray | None = None


def refine(
    dictionary: Any,
    X: Any,
    y: Any,
    *,
    coder: Coder,
    radius: float,
    start: Any = None,
    classes: int | None = None,
    sample_weight: np.ndarray | None = None,
    validation: np.ndarray | tuple[Any, Any] | None = None,
    training: Training | None = None,
    engine: EngineName = "auto",
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Refinement:
    """Minimise the mean cross-entropy of a linear head on the codes of X, over the head and over dictionaries
    whose unit rows stay within chord distance `radius` of those given.

    Parameters
    ----------
    dictionary : (n, d), unit rows.
    X : (m, d), read as unit rows; behind a file (a memmap, a store) through a window of fixed size.
    y : class numbers (m,).
    coder : how codes are made; only through a differentiable one can the dictionary be refined.
    radius : in [0, 2]; 0 leaves the dictionary as it is and trains the head alone.
    start : (n, d), where the rows start; they are brought within `radius` first. None: where they are.
    classes : how many there are; by default one more than the largest number in `y`.
    sample_weight : how much each row counts (m,), of mean 1.
    validation : rows of X to hold out, or another (X, y), or None: then the last epoch is kept.
    engine : "sparse" (CPU, compiled), "dense" (torch, any device), "auto": sparse on a CPU; both take the same steps.
    callback : called with the epoch and the number of epochs after each.
    checkpoint : where a run that was interrupted continues, to the bit as if it had not been.
    """
    check_radius(radius)
    rows = np.array(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
    X = X if isinstance(X, Embeddings) else Embeddings(X)
    X.check_dimension(rows.shape[1])
    train, held_out = split(X, np.asarray(y, np.int64), sample_weight, validation)
    classes, training = classes or int(train.y.max()) + 1, training or Training()
    if is_differentiable(coder):
        first = None if start is None else project_to_cap(np.asarray(start, np.float32), rows, radius)
        problem = Problem(rows, train, held_out, coder, radius, classes, training, first)
        return _train(problem, choose_engine(engine, coder, training), callback, checkpoint)
    if radius > 0:
        raise CCRError(f"{type(coder).__name__} cannot be refined through: use radius=0 or HardThreshold(length=12)")
    fitted = fit_head(rows, train, held_out, coder=coder, classes=classes, training=training)
    if callback is not None:
        callback(fitted.history[0], 1)
    return fitted


def _train(
    problem: Problem, name: Literal["dense", "sparse"], callback: Callback | None, checkpoint: Checkpoint | None
) -> Refinement:
    if name == "sparse":
        with Workers() as workers:
            trainer = Trainer(problem, name, lambda start, config: SparseEngine(start, config, workers), workers)
            return trainer.run(callback, checkpoint)
    device = resolve_device(problem.training.device)
    with threads_for(float(problem.training.batch(len(problem.train.y))) * problem.dictionary.size):
        trainer = Trainer(problem, name, lambda start, config: DenseEngine(start, config, device))
        return trainer.run(callback, checkpoint)


class Trainer:
    """One training run: the engine that steps, the data, and what is measured between epochs.

    `make_engine` gives the engine for a start and a configuration; `workers` are the threads that measure, None: each
    measurement has its own.
    """

    def __init__(
        self,
        problem: Problem,
        name: Literal["dense", "sparse"],
        make_engine: Callable[[State, StepConfig], Engine],
        workers: Workers | None = None,
    ) -> None:
        self.problem, self.name, self.workers = problem, name, workers
        self.training, self.m = problem.training, len(problem.train.y)
        self.sample = problem.train.sample(SAMPLE_ROWS)
        first = problem.dictionary if problem.start is None else problem.start
        rule = problem.coder.rule(self.sample, first)
        n, classes = len(first), problem.classes
        bound = 1.0 / math.sqrt(n)
        weights = np.random.default_rng([self.training.seed, 0]).uniform(-bound, bound, (n, classes))
        self.start = State(first, weights.astype(np.float32), np.zeros(classes, np.float32), rule)
        config = StepConfig(
            radius=problem.radius,
            adaptive=self.training.optimizer == "adaptive",
            momentum=self.training.momentum,
            dropout=self.training.dropout,
            alpha=self.training.penalty(self.m),
            scale=sample_code_size(rule, self.sample, first, workers),
            seed=self.training.seed,
            sparse_head=self.training.weights_per_class is not None,
            center=problem.dictionary,
        )
        self.engine = make_engine(self.start, config)

    def run(self, callback: Callback | None = None, checkpoint: Checkpoint | None = None) -> Refinement:
        """All epochs, or as many as improve; the state of the best one."""
        epochs, patience = self.training.epochs(self.m), self.training.patience(self.m)
        run = "" if checkpoint is None else self._fingerprint()
        now = self._resumed(checkpoint, run)
        while now.number < epochs and now.number - now.best.improved < patience:
            now.number += 1
            final = self._restrict(now.number, epochs)
            loss = self._epoch(now.number, epochs)
            if self.problem.radius > 0:
                self.engine.rule = self.engine.rule.recalibrated(self.sample, self.engine.state().dictionary)
            state = self.engine.state()
            now.history.append(self._measure(now.number, loss, state))
            if now.best.offer(now.number, now.history[-1].validation_accuracy, final=final):
                now.kept = state
            if checkpoint is not None:
                checkpoint.save(run, now.number, pack(now, self.engine.state_dict(), self.engine.rule))
            if callback is not None:
                callback(now.history[-1], epochs)
        return self._result(now, "max_iter" if now.number >= epochs else "no_change")

    def _restrict(self, number: int, epochs: int) -> bool:
        """Take weights away from classes that have too many for this epoch; whether they have no more than they may in
        the end."""
        keep = self.training.kept_weights(len(self.problem.dictionary), number, epochs)
        if keep is not None:
            self.engine.restrict(strongest_weights(self.engine.state(), self.sample, keep, self.workers))
        return self.training.weights_per_class is None or (keep or math.inf) <= self.training.weights_per_class

    def _result(self, now: Progress, stopped: Stop) -> Refinement:
        state, kept = now.kept, np.arange(len(self.problem.dictionary))
        if self.training.weights_per_class is not None:
            playing = np.flatnonzero(state.weights.any(axis=1))
            smaller = replace(state, dictionary=state.dictionary[playing], weights=state.weights[playing])
            rule = state.rule.for_fewer(mean_length(smaller, self.sample, self.workers)) if len(playing) else None
            if rule is not None:
                state, kept = replace(smaller, rule=rule), playing
        return Refinement(
            state.dictionary, state.weights, state.bias, state.rule, kept, tuple(now.history), now.best.epoch,
            engine=self.name, stopped=stopped,
        )  # fmt: skip

    def _resumed(self, checkpoint: Checkpoint | None, run: str) -> Progress:
        """Where the run stands: at the start, or where its checkpoint left off."""
        held_out = self.problem.held_out
        now = Progress(BestEpoch(self.training, 0 if held_out is None else len(held_out.y)), self.start)
        saved = None if checkpoint is None else checkpoint.load(run)
        if saved is not None:
            engine, threshold = unpack(saved, now)
            self.engine.load_state_dict(engine)
            self.engine.rule = self.engine.rule.with_threshold(threshold)
        return now

    def _fingerprint(self) -> str:
        problem, train, held_out = self.problem, self.problem.train, self.problem.held_out
        return fingerprint(
            REVISION, repr(self.training), repr(problem.coder), problem.radius, problem.classes,
            type(self.engine).__name__, problem.dictionary, self.start.dictionary,
            self.sample.take(np.arange(len(self.sample))).numpy(), train.rows, train.y, train.weight,
            *(() if held_out is None else (held_out.rows, held_out.y, held_out.weight)),
        )  # fmt: skip

    def _epoch(self, number: int, epochs: int) -> float:
        """All batches once, in an order fixed by seed and epoch; the mean training loss."""
        training, m = self.training, self.m
        rng = np.random.default_rng([training.seed, number])
        size = training.batch(m)
        head_rate, dictionary_rate = training.rates(self.problem.radius)
        steps, done, total = math.ceil(m / size), 0, 0.0
        for window in self.problem.train.shuffled(rng, size):
            count = math.ceil(len(window.rows) / size)
            damping = [training.damping((number - 1 + step / steps) / epochs) for step in range(done, done + count)]
            report = self.engine.steps(window, size, np.outer(damping, (head_rate, dictionary_rate)))
            done += count
            weights = np.full(count, size)
            weights[-1] = len(window.rows) - size * (count - 1)
            total += float(report.losses @ weights)
        if not math.isfinite(total):
            raise CCRError(f"training diverged in epoch {number}: lower head_rate or dictionary_rate")
        return total / m

    def _measure(self, number: int, loss: float, state: State) -> Epoch:
        moved = deviation(state.dictionary, self.problem.dictionary)
        length = mean_length(state, self.sample, self.workers)
        measured = validate(state, self.problem.held_out, self.workers)
        return Epoch(
            number, loss, measured.loss, measured.accuracy, length, moved.mean, moved.max, state.rule.threshold
        )
