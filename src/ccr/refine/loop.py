"""The loop of Algorithm 2 (docs/method.md): minibatch steps with the exact projection after each, the length held,
weights and concepts taken away, the best epoch kept. `refine` checks the problem, chooses an engine and runs a
`Trainer`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from ccr.coding import Coder, ScoreRule, apply_rule, code_size, is_differentiable
from ccr.coding.heads import LinearHead, fit_softmax, softmax_objective
from ccr.errors import CCRError
from ccr.geometry import check_radius, project_to_cap
from ccr.inputs import Embeddings
from ccr.kernels import StepSettings
from ccr.refine.data import Candidates, Labelled, Permitted, candidates_for, split
from ccr.refine.engines import DenseEngine, Engine, EngineName, SparseEngine, State, choose_engine
from ccr.refine.measure import (
    BestEpoch,
    Checkpoint,
    Epoch,
    Progress,
    Refinement,
    Stop,
    fingerprint,
    length_of,
    mean_length,
    measured_deviation,
    pack,
    recalibrate,
    sample_code_size,
    strongest,
    strongest_weights,
    unpack,
    validate,
)
from ccr.refine.options import Training
from ccr.utils.threads import Workers, resolve_device, threads_for


# Heads on fixed codes (docs/method.md): coders without a gradient make codes once, and the head, which alone is
# convex, is fitted to them.
def fit_head(problem: RefinementProblem) -> Refinement:
    """The best head on the coder's codes, penalised as in training; its history is one epoch."""
    dictionary, train, permitted = problem.dictionary, problem.train, problem.permitted
    rule = problem.coder.rule(train.X, dictionary)
    codes = apply_rule(rule, train.X, dictionary)[train.rows]
    head = solve_head(
        codes,
        train.y,
        classes=problem.classes,
        training=problem.training,
        sample_weight=train.weight,
        fixed=None if permitted is None else ~permitted.allowed.T,
        candidates=problem.candidates(),
    )
    loss, _ = softmax_objective(head, codes.astype(np.float64), train.y, alpha=0.0, weight=train.weight)
    weights, bias = head.astype(np.float32).transposed()
    everything = np.arange(len(dictionary))
    fitted = Refinement(dictionary, weights, bias, rule, everything, (), 1, engine="head", stopped="solved")
    measured = validate(fitted, problem.held_out)
    epoch = Epoch(1, loss, measured.loss, measured.accuracy, codes.nnz / len(train.y), 0.0, 0.0, rule.threshold)
    return replace(fitted, history=(epoch,))


def solve_head(
    codes: sparse.csr_matrix,
    y: np.ndarray,
    *,
    classes: int,
    training: Training,
    sample_weight: np.ndarray | None = None,
    start: LinearHead | None = None,
    fixed: np.ndarray | None = None,
    candidates: Candidates | None = None,
) -> LinearHead:
    """The best head on these codes (m, n), penalised and with as many weights per class as in training, of its
    `candidates` if there are any: solved again each time that weights are taken away. Weights that are `fixed`
    (classes, n) stay as in `start`, not counted."""
    alpha = training.penalty(len(y)) * code_size(codes) ** 2
    size = np.sqrt(np.asarray(codes.multiply(codes).mean(axis=0)).ravel())
    one_sided = bool((codes.data >= 0).all())
    free = np.ones((classes, codes.shape[1]), bool) if fixed is None else ~fixed
    solve = partial(fit_softmax, codes, y, classes=classes, alpha=alpha, sample_weight=sample_weight)
    head = solve(start=start, fixed=~free)
    for keep in training.fewer_weights(codes.shape[1]):
        few = strongest((head.coef * free).T, size, keep, candidates, one_sided=one_sided).T
        head = solve(start=LinearHead(head.coef * (few | ~free), head.intercept), fixed=~few)
    return head


#: Called with each epoch and the number of epochs.
Callback = Callable[[Epoch, int], None]

#: Revision of an engine's `state_dict`: a checkpoint of another one is not continued.
REVISION = 7
#: Length, threshold and code size are measured on at most this many training rows: to about half a percent.
SAMPLE_ROWS = 4096


class RefinementProblem(NamedTuple):
    """Optimisation problem of refinement: data, coder, and caps of `radius` around the rows of `dictionary` (n, d).
    `start` (n, d) are the initial rows, brought into their caps, None: the centres; only `permitted` weights may be
    nonzero, None: all."""

    dictionary: np.ndarray
    train: Labelled
    held_out: Labelled | None
    coder: Coder
    radius: float
    classes: int
    training: Training
    start: np.ndarray | None = None
    permitted: Permitted | None = None

    def candidates(self, workers: Workers | None = None) -> Candidates | None:
        """The concepts that may have a weight for each class, None: all."""
        return candidates_for(self.dictionary, self.train, self.classes, self.training, workers, self.permitted)


def initial_state(problem: RefinementProblem, sample: Embeddings) -> State:
    """The start of training: the dictionary inside its caps, the coder's rule for it, and small random weights."""
    assert is_differentiable(problem.coder)
    first = problem.dictionary
    if problem.start is not None:
        first = project_to_cap(np.asarray(problem.start, np.float32), problem.dictionary, problem.radius)
    n, classes = len(first), problem.classes
    bound = 1.0 / math.sqrt(n)
    weights = np.random.default_rng([problem.training.seed, 0]).uniform(-bound, bound, (n, classes))
    rule = problem.coder.rule(sample, first)
    return State(first, weights.astype(np.float32), np.zeros(classes, np.float32), rule)


class Trainer:
    """One training run: the engine that steps, the data, and what is measured between epochs.

    `make_engine` gives the engine for a start, settings and the caps' centres; `workers` are the threads that measure,
    None: each measurement has its own.
    """

    def __init__(
        self,
        problem: RefinementProblem,
        name: Literal["dense", "sparse"],
        make_engine: Callable[[State, StepSettings, np.ndarray], Engine],
        workers: Workers | None = None,
    ) -> None:
        self.problem, self.name, self.make_engine, self.workers = problem, name, make_engine, workers
        self.rows = np.arange(len(problem.dictionary))  # of the concepts that are left
        self.center = problem.dictionary  # their rows of it
        self.training, self.m = problem.training, len(problem.train.y)
        self.sample = problem.train.sample(SAMPLE_ROWS)
        self.start = initial_state(problem, self.sample)
        self.settings = StepSettings.of(
            radius=problem.radius,
            adaptive=self.training.optimizer == "adaptive",
            momentum=self.training.momentum,
            dropout=self.training.dropout,
            alpha=self.training.penalty(self.m),
            scale=sample_code_size(self.start.rule, self.sample, self.start.dictionary, workers),
            seed=self.training.seed,
            sparse_head=self.training.weights_per_class is not None or problem.permitted is not None,
        )
        self.engine = make_engine(self.start, self.settings, self.center)
        if problem.permitted is not None:  # from the first step on: concepts never adapt to a forbidden weight
            self.engine.restrict(problem.permitted.allowed)
        self.candidates = problem.candidates(workers)

    def run(self, callback: Callback | None = None, checkpoint: Checkpoint | None = None) -> Refinement:
        """All epochs, or as many as improve; the state of the best one."""
        epochs, patience = self.training.epochs(self.m), self.training.patience(self.m)
        run = "" if checkpoint is None else self._fingerprint()
        now = self._resumed(checkpoint, run)
        while now.number < epochs and now.number - now.best.improved < patience:
            now.number += 1
            final = self._restrict(now.number, epochs)
            loss = self._epoch(now.number, epochs)
            now.history.append(self._measure(now.number, loss))
            if now.best.offer(now.number, now.history[-1].validation_accuracy, final=final):
                now.kept = self.engine.state()
            if checkpoint is not None:
                checkpoint.save(run, now.number, pack(now, self.rows, self.engine.state_dict(), self.engine.rule))
            if callback is not None:
                callback(now.history[-1], epochs)
        return self._result(now, "max_iter" if now.number >= epochs else "no_change")

    def _restrict(self, number: int, epochs: int) -> bool:
        """Take weights away from classes that have too many for this epoch; whether they have no more than they may in
        the end. Then concepts without any leave, too, if the codes of the others do not depend on them, and the mean
        length of those in play is held from there on."""
        # Geometrically fewer, because concepts must have time to adapt to the weights that are left
        # (A sparse head, docs/method.md).
        n, weights = len(self.problem.dictionary), self.training.weights_per_class
        keep, before = (self.training.kept_weights(n, at, epochs) for at in (number, number - 1))
        final = weights is None or (keep or math.inf) <= weights
        if keep is not None and (number == 1 or keep != before):
            self.engine.restrict(self._strongest(keep))
            if final:  # once: what is kept from here on has these rows
                self._keep_rows(*self._in_play(self.engine.state(), least=keep))
        return final

    def _strongest(self, keep: int) -> np.ndarray:
        """Mask (n, C) of the weights that stay, `keep` for each class."""
        candidates = None if self.candidates is None else self.candidates.of(self.rows)
        preference = None if self.problem.permitted is None else self.problem.permitted.preference
        if preference is not None:
            preference = preference[self.rows]
        return strongest_weights(
            self.engine.state(), self.sample, keep, candidates, self.workers, preference=preference
        )

    def _in_play(self, state: State, *, least: float = 0.0) -> tuple[np.ndarray, ScoreRule]:
        """The rows of concepts with a weight, and the rule for them alone; all rows where that cannot be. If few are
        left, images would show none of them: their mean length is at least `least`, but no more than a quarter of them
        or than was asked for."""
        rows = np.flatnonzero(state.weights.any(axis=1))
        smaller = replace(
            state, dictionary=state.dictionary[rows], weights=state.weights[rows], rule=state.rule.of(rows)
        )
        if 0 < len(rows) < len(state.dictionary):
            length = mean_length(smaller, self.sample, self.workers)
            asked = math.inf if state.rule.target_length is None else state.rule.target_length
            rule = smaller.rule.for_fewer(max(length, min(least, len(rows) / 4, asked)))
            if rule is not None:
                return rows, rule.recalibrated(self.sample, smaller.dictionary)
        return np.arange(len(state.dictionary)), state.rule

    def _keep_rows(self, rows: np.ndarray, rule: ScoreRule) -> None:
        """Go on with these rows of the dictionary alone, under their rule."""
        if len(rows) == len(self.rows):
            return
        arrays = self.engine.state_dict()
        self.rows = self.rows[rows]
        # Momentum and running sizes of the rows that stay go on as if the others had never been there.
        self._rebuild_engine(
            {name: array[rows] if name in self.engine.by_concept else array for name, array in arrays.items()}
        )
        self.engine.rule = rule

    def _rebuild_engine(self, arrays: dict[str, np.ndarray]) -> None:
        """An engine for the rows that are left, in this state."""
        start = State(
            self.start.dictionary[self.rows], self.start.weights[self.rows], self.start.bias,
            self.start.rule.of(self.rows),
        )  # fmt: skip
        self.center = self.problem.dictionary[self.rows]
        self.engine = self.make_engine(start, self.settings, self.center)
        self.engine.load_state_dict(arrays)

    def _result(self, now: Progress, stopped: Stop) -> Refinement:
        state, kept = now.kept, self.rows
        if self.training.weights_per_class is not None:
            playing, rule = self._in_play(state)
            state = State(state.dictionary[playing], state.weights[playing], state.bias, rule)
            kept = kept[playing]
        return Refinement(
            state.dictionary, state.weights, state.bias, state.rule, kept, tuple(now.history), now.best.epoch,
            engine=self.name, stopped=stopped,
        )  # fmt: skip

    def _resumed(self, checkpoint: Checkpoint | None, run: str) -> Progress:
        """Progress of the run: at the start, or where its checkpoint left off."""
        held_out = self.problem.held_out
        now = Progress(BestEpoch(self.training, 0 if held_out is None else len(held_out.y)), self.start)
        saved = None if checkpoint is None else checkpoint.load(run)
        if saved is not None:
            self.rows, arrays, rule = unpack(saved, now, self.engine)
            self._rebuild_engine(arrays)
            self.engine.rule = rule
        return now

    def _fingerprint(self) -> str:
        problem, train, held_out = self.problem, self.problem.train, self.problem.held_out
        sampled = [self.sample] + ([] if held_out is None else [held_out.sample(SAMPLE_ROWS)])
        return fingerprint(
            REVISION, repr(self.training), repr(problem.coder), problem.radius, problem.classes,
            type(self.engine).__name__, problem.dictionary, self.start.dictionary,
            *(rows.take(np.arange(len(rows))).numpy() for rows in sampled), train.rows, train.y, train.weight,
            *(() if held_out is None else (held_out.rows, held_out.y, held_out.weight)),
            *(part for part in problem.permitted or () if part is not None),
        )  # fmt: skip

    def _epoch(self, number: int, epochs: int) -> float:
        """All batches once, in an order fixed by seed and epoch; the mean training loss."""
        training, m = self.training, self.m
        rng = np.random.default_rng([training.seed, number])
        size = training.batch(m)
        head_rate, dictionary_rate = training.rates(self.problem.radius)
        steps, done, total = math.ceil(m / size), 0, 0.0
        for window in self.problem.train.shuffled(rng, size, self.workers):
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

    def _measure(self, number: int, loss: float) -> Epoch:
        """Measurements at the end of an epoch, with its threshold set anew; nothing is computed twice or copied."""
        engine, panels = self.engine, self.engine.panels()
        if self.problem.radius > 0:
            engine.rule, length = recalibrate(engine.rule, panels, self.sample, self.workers)
        else:
            length = length_of(engine.rule, panels, self.sample, self.workers)
        state = engine.view()
        deviation = measured_deviation(state.dictionary, self.center, self.workers)
        measured = validate(state, self.problem.held_out, self.workers, panels.encoder(engine.rule.criterion()))
        return Epoch(
            number, loss, measured.loss, measured.accuracy, length, deviation.mean, deviation.max, engine.rule.threshold
        )


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
    left_out: np.ndarray | None = None,
    permitted: Permitted | None = None,
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
    left_out : rows of X that are not used, kept for later measurements.
    permitted : which weights (n, C) knowledge permits, and which of them it confirms; the others stay zero.
    engine : "sparse" (CPU, compiled), "dense" (torch, any device), "auto": sparse on a CPU; both take the same steps.
    callback : called with the epoch and the number of epochs after each.
    checkpoint : where a run that was interrupted continues, to the bit as if it had not been.
    """
    check_radius(radius)
    rows = np.array(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
    X = X if isinstance(X, Embeddings) else Embeddings(X)
    X.check_dimension(rows.shape[1])
    train, held_out = split(X, np.asarray(y, np.int64), sample_weight, validation, left_out)
    classes, training = classes or int(train.y.max()) + 1, training or Training()
    problem = RefinementProblem(rows, train, held_out, coder, radius, classes, training, start, permitted)
    return solve(problem, engine=engine, callback=callback, checkpoint=checkpoint)


def solve(
    problem: RefinementProblem, *, engine: EngineName, callback: Callback | None, checkpoint: Checkpoint | None
) -> Refinement:
    """The solution of a problem, by gradient steps; where the coder has no gradient, the best head."""
    if is_differentiable(problem.coder):
        return _train(problem, choose_engine(engine, problem.coder, problem.training), callback, checkpoint)
    if problem.radius > 0:
        raise CCRError(
            f"{type(problem.coder).__name__} has no gradient, so concepts cannot be refined with it: leave them as "
            "they are (fidelity=1, or radius=0), or use HardThreshold(length=12)"
        )
    fitted = fit_head(problem)
    if callback is not None:
        callback(fitted.history[0], 1)
    return fitted


def _train(
    problem: RefinementProblem,
    name: Literal["dense", "sparse"],
    callback: Callback | None,
    checkpoint: Checkpoint | None,
) -> Refinement:
    if name == "sparse":
        with Workers() as workers:
            sparse = lambda start, settings, center: SparseEngine(start, settings, workers, center)  # noqa: E731
            return Trainer(problem, name, sparse, workers).run(callback, checkpoint)
    device = resolve_device(problem.training.device)
    with threads_for(float(problem.training.batch(len(problem.train.y))) * problem.dictionary.size):
        dense = lambda start, settings, center: DenseEngine(start, settings, device, center)  # noqa: E731
        return Trainer(problem, name, dense).run(callback, checkpoint)


# weights_per_class="auto": the smallest number that is no worse than the best one on validation images.

#: Weights per class that are tried; None is all of them.
TRIED: tuple[int | None, ...] = (1, 2, 3, 5, 8, 12, None)


class PartedCheckpoint(Checkpoint, Protocol):
    """A checkpoint that has others below it."""

    def part(self, name: str) -> PartedCheckpoint:
        """Checkpoint of a part of the run."""
        ...


def solve_with_weights(
    problem: RefinementProblem,
    weights: int | Literal["auto"] | None,
    *,
    engine: EngineName,
    callback: Callback | None,
    checkpoint: PartedCheckpoint | None,
) -> Refinement:
    """The solution with so many weights per class; for "auto", of the solutions with each of `TRIED` the one with the
    fewest whose accuracy on the images held out is within a standard error of the best."""
    training = problem.training

    def with_weights(count: int | None, follow: Callback | None, kept: PartedCheckpoint | None) -> Refinement:
        sparse_problem = problem._replace(training=replace(training, weights_per_class=count))
        return solve(sparse_problem, engine=engine, callback=follow, checkpoint=kept)

    if weights != "auto":
        return with_weights(weights, callback, checkpoint)
    images = 0 if problem.held_out is None else len(problem.held_out.y)
    if not images:
        raise CCRError(
            'weights_per_class="auto" is chosen on validation images, and there are none: give validation=(X, y), a '
            "validation_fraction such as 0.1, or a number of weights"
        )
    done: list[Refinement] = []
    for number, tried in enumerate(TRIED):
        below = None if checkpoint is None else checkpoint.part(f"weights-{tried or 'all'}")
        done.append(with_weights(tried, _part(callback, number), below))
    accuracies = [result.history[result.best_epoch - 1].validation_accuracy for result in done]
    least = max(accuracies) - replace(training, tol=None).tolerance(max(accuracies), images)
    return next(result for result, accuracy in zip(done, accuracies, strict=True) if accuracy >= least)


def _part(callback: Callback | None, number: int) -> Callback | None:
    """Tells the epochs of all runs as those of one."""
    if callback is None:
        return None
    tell: Callable[[Epoch, int], None] = callback
    return lambda epoch, epochs: tell(replace(epoch, epoch=number * epochs + epoch.epoch), len(TRIED) * epochs)
