"""The loop of METHOD 3: minibatch steps, the exact projection after each, the length held, the best epoch kept."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ccr.core.coding import Coder
from ccr.core.devices import resolve_device
from ccr.core.geometry import check_radius
from ccr.core.inputs import Embeddings
from ccr.core.metrics import deviation
from ccr.core.refine.checkpoint import Checkpoint, fingerprint
from ccr.core.refine.choice import EngineName, choose_engine
from ccr.core.refine.data import Labelled, split
from ccr.core.refine.dense import DenseEngine
from ccr.core.refine.engine import Engine, State, StepConfig
from ccr.core.refine.fixed import fit_head
from ccr.core.refine.measure import code_size, mean_length, validate
from ccr.core.refine.options import Training
from ccr.core.refine.progress import Best, Epoch, Progress, Refinement, pack, unpack
from ccr.core.refine.sparse import SparseEngine
from ccr.core.threads import Workers, threads_for
from ccr.errors import CCRError

Folder = str | os.PathLike[str]
Callback = Callable[[Epoch, int], None]

#: Of what an engine remembers: a checkpoint of another one is not continued.
REVISION = 3
#: Length, threshold and code size are measured on at most this many training rows: to about half a percent.
SAMPLE_ROWS = 4096


def refine(
    dictionary: Any,
    X: Any,
    y: Any,
    *,
    coder: Coder,
    radius: float,
    classes: int | None = None,
    sample_weight: np.ndarray | None = None,
    validation: np.ndarray | tuple[Any, Any] | None = None,
    training: Training | None = None,
    engine: EngineName = "auto",
    callback: Callback | None = None,
    checkpoint: Folder | None = None,
) -> Refinement:
    """Minimise the mean cross-entropy of a linear head on the codes of X, over the head and over dictionaries
    whose unit rows stay within chord distance `radius` of where they start.

    `dictionary` (n, d) has unit rows, X (m, d) is read as unit rows, `y` (m,) holds class numbers. `validation` is
    the rows of X to hold out, or another (X, y), or None: then the last epoch is kept. With `radius=0` the
    dictionary stays and only the head is trained. `callback(epoch, epochs)` is called after each epoch.

    `engine`: "sparse" (CPU, compiled), "dense" (torch, any device), or "auto": sparse on a CPU; both take the same
    steps. X behind a file (a memmap, a store) is read through a window of fixed size. `checkpoint` is a folder: a run
    that was interrupted continues there, to the bit as if it had not been.
    """
    check_radius(radius)
    rows = np.array(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
    X = X if isinstance(X, Embeddings) else Embeddings(X)
    X.check_dimension(rows.shape[1])
    if radius > 0 and not coder.differentiable:
        raise CCRError(f"{type(coder).__name__} cannot be refined through: use radius=0 or HardThreshold(length=12)")
    train, held_out = split(X, np.asarray(y, np.int64), sample_weight, validation)
    classes = classes or int(train.y.max()) + 1
    training = training or Training()
    if not coder.differentiable:
        found = fit_head(rows, train, held_out, coder=coder, classes=classes, training=training)
        if callback is not None:
            callback(found.history[0], 1)
        return found
    choice = choose_engine(engine, coder, training)
    with Workers() if choice == "sparse" else threads_for(float(training.batch(len(train.y))) * rows.size) as workers:
        trainer = Trainer(rows, train, held_out, coder, radius, classes, training, workers)
        return trainer.run(callback, checkpoint)


class Trainer:
    """One training run: the engine that steps, the data, and what is measured between epochs."""

    def __init__(
        self,
        dictionary: np.ndarray,
        train: Labelled,
        held_out: Labelled | None,
        coder: Coder,
        radius: float,
        classes: int,
        training: Training,
        workers: Workers | None,
    ) -> None:
        self.workers = workers
        self.coder, self.classes = coder, classes
        self.train, self.held_out, self.training, self.radius = train, held_out, training, radius
        self.sample = train.sample(SAMPLE_ROWS)
        rule = coder.rule(self.sample, dictionary)
        bound = 1.0 / math.sqrt(len(dictionary))
        weights = np.random.default_rng([training.seed, 0]).uniform(-bound, bound, (len(dictionary), classes))
        self.start = State(dictionary, weights.astype(np.float32), np.zeros(classes, np.float32), rule)
        config = StepConfig(
            radius=radius,
            adaptive=training.optimizer == "adaptive",
            momentum=training.momentum,
            dropout=training.dropout,
            alpha=training.penalty(len(train.y)),
            scale=code_size(rule, self.sample, dictionary, workers),
            seed=training.seed,
        )
        self.engine: Engine
        if workers is None:
            self.engine = DenseEngine(self.start, config, resolve_device(training.device))
        else:
            self.engine = SparseEngine(self.start, config, workers)

    def run(self, callback: Callback | None = None, checkpoint: Folder | None = None) -> Refinement:
        m = len(self.train.y)
        epochs, patience = self.training.epochs(m), self.training.patience(m)
        book = None if checkpoint is None else Checkpoint(checkpoint, self._fingerprint())
        now = self._resumed(book)
        while now.number < epochs and now.number - now.best.improved < patience:
            now.number += 1
            loss = self._epoch(now.number, epochs)
            if self.radius > 0:
                self.engine.rule = self.engine.rule.recalibrated(self.sample, self.engine.state().dictionary)
            state = self.engine.state()
            now.history.append(self._measure(now.number, loss, state))
            if now.best.offer(now.number, now.history[-1].validation_accuracy):
                now.kept = state
            if book is not None:
                book.save(now.number, *pack(now, self.engine.state_dict(), self.engine.rule))
            if callback is not None:
                callback(now.history[-1], epochs)
        kept = now.kept
        return Refinement(kept.dictionary, kept.weights, kept.bias, kept.rule, tuple(now.history), now.best.epoch)

    def _resumed(self, book: Checkpoint | None) -> Progress:
        """Where the run stands: at the start, or where its checkpoint left off."""
        now = Progress(Best(self.training, 0 if self.held_out is None else len(self.held_out.y)), self.start)
        saved = None if book is None else book.load()
        if saved is not None:
            memory, self.engine.rule = unpack(saved, now)
            self.engine.load_state_dict(memory)
        return now

    def _fingerprint(self) -> str:
        held_out = () if self.held_out is None else (self.held_out.rows, self.held_out.y, self.held_out.weight)
        return fingerprint(
            REVISION, repr(self.training), repr(self.coder), self.radius, self.classes, type(self.engine).__name__,
            self.start.dictionary, self.sample.take(np.arange(len(self.sample))).numpy(),
            self.train.rows, self.train.y, self.train.weight, *held_out,
        )  # fmt: skip

    def _epoch(self, number: int, epochs: int) -> float:
        """All batches once, in an order fixed by seed and epoch; the mean training loss."""
        training, m = self.training, len(self.train.y)
        rng = np.random.default_rng([training.seed, number])
        size = training.batch(m)
        head_rate, dictionary_rate = training.rates(self.radius)
        steps, done, total = math.ceil(m / size), 0, 0.0
        for window in self.train.shuffled(rng, size):
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
        moved = deviation(state.dictionary, self.start.dictionary)
        length = mean_length(state, self.sample, self.workers)
        missed, accuracy = validate(state, self.held_out, self.workers)
        return Epoch(number, loss, missed, accuracy, length, moved.mean, moved.max, state.rule.threshold)
