"""Refinement (Algorithm 2, docs/method.md): the problem is checked, an engine chosen, and a `Trainer` run."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ccr.core.coding import Coder, is_differentiable
from ccr.core.devices import resolve_device
from ccr.core.geometry import check_radius, project_to_cap
from ccr.core.inputs import Embeddings
from ccr.core.refine.choice import EngineName, choose_engine
from ccr.core.refine.data import split
from ccr.core.refine.dense import DenseEngine
from ccr.core.refine.evidence import Permitted
from ccr.core.refine.fixed import fit_head
from ccr.core.refine.options import Training
from ccr.core.refine.progress import Checkpoint, Refinement
from ccr.core.refine.sparse import SparseEngine
from ccr.core.refine.trainer import Callback, Problem, Trainer
from ccr.core.threads import Workers, threads_for
from ccr.errors import CCRError


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
    left_out : rows of X that are not looked at, for whoever wants to measure on them later.
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
    if is_differentiable(coder):
        first = None if start is None else project_to_cap(np.asarray(start, np.float32), rows, radius)
        problem = Problem(rows, train, held_out, coder, radius, classes, training, first, permitted)
        return _train(problem, choose_engine(engine, coder, training), callback, checkpoint)
    if radius > 0:
        raise CCRError(
            f"{type(coder).__name__} has no gradient, so concepts cannot be refined with it: leave them as they are "
            "(fidelity=1, or radius=0), or use HardThreshold(length=12)"
        )
    fitted = fit_head(rows, train, held_out, coder=coder, classes=classes, training=training, permitted=permitted)
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
