"""The loop of METHOD 3: minibatch steps, the exact projection after each, the length held, the best epoch kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ccr.core.coding import Coder, Rule
from ccr.core.geometry import check_radius
from ccr.core.inputs import CHUNK_VALUES, Embeddings
from ccr.core.metrics import deviation
from ccr.core.refine.dense import DenseEngine, Engine, State, StepOptions
from ccr.core.refine.options import Training, resolve_device
from ccr.core.threads import threads_for
from ccr.errors import CCRError

EngineName = Literal["auto", "dense", "sparse"]
Callback = Callable[["Epoch", int], None]

#: Length, threshold and code size are measured on at most this many training rows: to about half a percent.
SAMPLE_ROWS = 4096


@dataclass(frozen=True)
class Epoch:
    """One line of the history, taken at the end of an epoch.

    `validation_accuracy` and `validation_loss` are NaN without validation data; `length` is the mean number of
    active concepts of the training images (at most 4,096 of them), `threshold` NaN where the coder has none.
    """

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    length: float
    mean_deviation: float
    max_deviation: float
    threshold: float


@dataclass(frozen=True, eq=False)
class Refinement:
    """The result: the state of the best epoch, and what happened on the way."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: Rule
    history: tuple[Epoch, ...]
    best_epoch: int


class Labelled(NamedTuple):
    """These `rows` of X with class numbers `y` and weights, all of the same length."""

    X: Embeddings
    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def sample(self, most: int) -> Embeddings:
        """At most this many of the rows, evenly spaced, prepared and in memory."""
        spaced = np.linspace(0, len(self.rows) - 1, min(most, len(self.rows))).astype(np.int64)
        return Embeddings(self.X.take(self.rows[spaced]), normalize=False)

    def batches(self, order: np.ndarray, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            y, weight = torch.from_numpy(self.y[chosen]), torch.from_numpy(self.weight[chosen])
            yield self.X.take(self.rows[chosen]), y, weight


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
) -> Refinement:
    """Minimise the mean cross-entropy of a linear head on the codes of X, over the head and over dictionaries
    whose unit rows stay within chord distance `radius` of where they start.

    `dictionary` (n, d) has unit rows, X (m, d) is read as unit rows, `y` (m,) holds class numbers. `validation` is
    the rows of X to hold out, or another (X, y), or None: then the last epoch is kept. With `radius=0` the
    dictionary stays and only the head is trained. `callback(epoch, epochs)` is called after each epoch.
    """
    check_radius(radius)
    rows = np.array(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
    X = X if isinstance(X, Embeddings) else Embeddings(X)
    X.check_dimension(rows.shape[1])
    if radius > 0 and not coder.differentiable:
        raise CCRError(f"{type(coder).__name__} cannot be refined through: use radius=0 or HardThreshold(length=12)")
    train, held_out = _split(X, np.asarray(y, np.int64), sample_weight, validation)
    classes = classes or int(train.y.max()) + 1
    training = training or Training()
    with threads_for(float(training.batch(len(train.y))) * rows.size):
        return Trainer(rows, train, held_out, coder, radius, classes, training, engine).run(callback)


class Best:
    """Which epoch to keep: the latest of those that validation cannot tell from the best (see `Training.tol`)."""

    def __init__(self, training: Training, n: int) -> None:
        self.training, self.n = training, n
        self.epoch, self.improved, self.record = 0, 0, -math.inf

    def offer(self, number: int, accuracy: float) -> bool:
        """Whether this epoch is now the one to keep; without validation data the last one always is."""
        if self.n == 0 or accuracy > self.record:
            self.improved = number
        if self.n:
            self.record = max(self.record, accuracy)
            if accuracy < self.record - self.training.tolerance(self.record, self.n):
                return False
        self.epoch = number
        return True


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
        engine: EngineName,
    ) -> None:
        self.train, self.held_out, self.training, self.radius = train, held_out, training, radius
        self.sample = train.sample(SAMPLE_ROWS)
        rule = coder.rule(self.sample, dictionary)
        bound = 1.0 / math.sqrt(len(dictionary))
        weights = np.random.default_rng([training.seed, 0]).uniform(-bound, bound, (len(dictionary), classes))
        self.start = State(dictionary, weights.astype(np.float32), np.zeros(classes, np.float32), rule)
        options = StepOptions(
            radius=radius,
            adaptive=training.optimizer == "adaptive",
            momentum=training.momentum,
            dropout=training.dropout,
            alpha=training.penalty(len(train.y)),
            scale=_code_size(rule, self.sample, dictionary),
            key=training.seed,
        )
        self.engine = _engine(engine, self.start, options, training)

    def run(self, callback: Callback | None = None) -> Refinement:
        m = len(self.train.y)
        epochs, patience = self.training.epochs(m), self.training.patience(m)
        history: list[Epoch] = []
        best, kept = Best(self.training, 0 if self.held_out is None else len(self.held_out.y)), self.start
        for number in range(1, epochs + 1):
            loss = self._epoch(number, epochs)
            if self.radius > 0:
                self.engine.rule = self.engine.rule.recalibrated(self.sample, self.engine.state().dictionary)
            state = self.engine.state()
            history.append(self._measure(number, loss, state))
            if callback is not None:
                callback(history[-1], epochs)
            if best.offer(number, history[-1].validation_accuracy):
                kept = state
            if number - best.improved >= patience:
                break
        return Refinement(kept.dictionary, kept.weights, kept.bias, kept.rule, tuple(history), best.epoch)

    def _epoch(self, number: int, epochs: int) -> float:
        """All batches once, in an order fixed by seed and epoch; the mean training loss."""
        training, m = self.training, len(self.train.y)
        order = np.random.default_rng([training.seed, number]).permutation(m)
        size = training.batch(m)
        head_rate, dictionary_rate = training.rates(self.radius)
        steps, total = math.ceil(m / size), 0.0
        for step, (x, y, weight) in enumerate(self.train.batches(order, size)):
            damping = training.damping((number - 1 + step / steps) / epochs)
            report = self.engine.step(
                x, y, weight, head_rate=head_rate * damping, dictionary_rate=dictionary_rate * damping
            )
            total += report.loss * len(y)
        if not math.isfinite(total):
            raise CCRError(f"training diverged in epoch {number}: lower head_rate or dictionary_rate")
        return total / m

    def _measure(self, number: int, loss: float, state: State) -> Epoch:
        moved = deviation(state.dictionary, self.start.dictionary)
        length = _mean_length(state, self.sample)
        missed, accuracy = (math.nan, math.nan) if self.held_out is None else _validate(state, self.held_out)
        return Epoch(number, loss, missed, accuracy, length, moved.mean, moved.max, state.rule.threshold)


def _engine(name: EngineName, start: State, options: StepOptions, training: Training) -> Engine:
    if name not in ("auto", "dense"):
        raise CCRError(f'engine must be "auto" or "dense", got {name!r}')
    return DenseEngine(start, options, resolve_device(training.device))


def _split(
    X: Embeddings, y: np.ndarray, weight: np.ndarray | None, validation: np.ndarray | tuple[Any, Any] | None
) -> tuple[Labelled, Labelled | None]:
    if len(y) != len(X):
        raise CCRError(f"there must be one label for each row of X, got {len(y)} labels and {len(X)} rows")
    weights = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
    everything = np.arange(len(y))
    if isinstance(validation, tuple):
        other, labels = validation
        other = other if isinstance(other, Embeddings) else Embeddings(other, mean=X.mean)
        ones = np.ones(len(labels), np.float32)
        return Labelled(X, everything, y, weights), Labelled(other, np.arange(len(labels)), np.asarray(labels), ones)
    if validation is None or len(validation) == 0:
        return Labelled(X, everything, y, weights), None
    rest = np.setdiff1d(everything, validation)
    return Labelled(X, rest, y[rest], weights[rest]), Labelled(X, validation, y[validation], weights[validation])


def _validate(state: State, held_out: Labelled) -> tuple[float, float]:
    dictionary, weights, bias = (torch.tensor(a) for a in (state.dictionary, state.weights, state.bias))
    loss, right = 0.0, 0
    size = max(1, CHUNK_VALUES // max(len(dictionary), weights.shape[1]))
    for x, y, weight in held_out.batches(np.arange(len(held_out.y)), size):
        scores = x @ dictionary.T
        logits = (scores * state.rule.mask(scores)) @ weights + bias
        loss += float((torch.nn.functional.cross_entropy(logits, y, reduction="none") * weight).sum())
        right += int((logits.argmax(dim=1) == y).sum())
    return loss / len(held_out.y), right / len(held_out.y)


def _mean_length(state: State, sample: Embeddings) -> float:
    dictionary = torch.tensor(state.dictionary)
    active = sum(int(state.rule.mask(chunk @ dictionary.T).sum()) for chunk in sample.chunks(len(dictionary)))
    return active / len(sample)


def _code_size(rule: Rule, sample: Embeddings, dictionary: np.ndarray) -> float:
    """Root mean square of active code entries; 1 when there are none."""
    squares, count = 0.0, 0
    for chunk in sample.chunks(len(dictionary)):
        scores = chunk @ torch.tensor(dictionary).T
        values = scores[rule.mask(scores)]
        squares += float((values.double() ** 2).sum())
        count += values.numel()
    return math.sqrt(squares / count) if count else 1.0
