"""The steps of a plan one after the other: Python leads from phase to phase, numba works within them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ccr.core.kernels.plain.arguments import (
    BatchPlan,
    Criterion,
    Dropout,
    Entries,
    Parameters,
    SortedEntries,
    StepSettings,
)
from ccr.core.kernels.plain.moving import move_bias, move_threshold, pace_of
from ccr.core.kernels.plain.scoring import PackedConcepts, scores_of
from ccr.core.kernels.plain.select import select_active, step_salt
from ccr.core.kernels.plain.step import head_slopes, move_concepts
from ccr.core.threads import Workers

#: Rows of a batch, and concepts, that a thread takes at once. What is summed up in which order, and so the result,
#: depends on these, not on the threads.
ROWS, CONCEPTS = 64, 64


class Coded(NamedTuple):
    """Some rows of a batch: their codes, the derivatives of the loss by score and by bias, its sum, and how many
    entries are active, left out ones included."""

    codes: Entries
    through: np.ndarray
    bias_slope: np.ndarray
    loss: float
    active: int


class Training:
    """Takes the steps of plans and moves the parameters."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    def restricted(self, classes: int) -> None:
        """Take note that other weights, of so many classes, may move now: nothing to do."""

    def take(
        self, plan: BatchPlan, settings: StepSettings, packed: PackedConcepts, workers: Workers, *, lasting: bool
    ) -> np.ndarray:
        """Take all steps of the plan. Returns, for each, its loss and the means per row of active scores and of scores
        computed in floats."""
        steps = range(len(plan.rates))
        return np.array([self._step(step, plan, settings, packed.factors, workers) for step in steps])

    def _step(
        self, step: int, plan: BatchPlan, settings: StepSettings, factors: np.ndarray, workers: Workers
    ) -> tuple[float, float, float]:
        batch, parameters = slice(step * plan.size, (step + 1) * plan.size), self.parameters
        rows, y, share = plan.rows[batch], plan.y[batch], plan.share[batch]
        salt = np.uint64(step_salt(settings.seed, parameters.steps[0]))
        slopes = np.empty((len(rows), len(parameters.bias)), np.float32)

        def code(part: slice) -> Coded:
            dropout = Dropout(part.start, settings.dropped, salt)
            x = plan.x[rows[part]]
            return _coded(x, y[part], share[part], dropout, parameters, settings, factors, slopes[part])

        coded = workers.map(code, list(_pieces(len(rows), ROWS)))
        entries = _sorted(coded, rows, len(parameters.dictionary))
        length = sum(piece.active for piece in coded) / len(rows)
        move_bias(sum(piece.bias_slope for piece in coded), plan.rates[step, 0], parameters, settings)
        move_threshold(length, parameters, settings)
        pace = pace_of(plan.rates[step], parameters, settings)

        def move(part: slice) -> None:
            move_concepts(part.start, part.stop, entries, slopes, plan.x, parameters, settings, pace)

        workers.map(move, list(_pieces(len(parameters.dictionary), CONCEPTS)))
        return sum(piece.loss for piece in coded), length, float(len(parameters.dictionary))


def _coded(
    x: np.ndarray,
    y: np.ndarray,
    share: np.ndarray,
    dropout: Dropout,
    parameters: Parameters,
    settings: StepSettings,
    factors: np.ndarray,
    slopes: np.ndarray,
) -> Coded:
    """Codes, loss and derivatives of rows x (b, d); those by the logits are written to `slopes` (b, W)."""
    scores = scores_of(x, parameters.dictionary)
    indices, data = np.empty(scores.size, np.int32), np.empty(scores.size, np.float32)
    criterion = Criterion(settings.kind, np.float32(parameters.threshold[0]), settings.length)
    pointers = np.empty(len(x) + 1, np.int32)
    active = select_active(scores, criterion, factors, dropout, Entries(pointers, indices, data))
    codes = Entries(pointers, indices[: pointers[-1]], data[: pointers[-1]] * np.float32(settings.keep))
    through, bias_slope = np.empty_like(codes.data), np.zeros_like(parameters.bias)
    loss = head_slopes(codes, y, share, parameters, settings, slopes, bias_slope, through)
    return Coded(codes, through, bias_slope, loss, active)


def _sorted(coded: list[Coded], sources: np.ndarray, n: int) -> SortedEntries:
    """The entries of a batch, whose row r is x[sources[r]], by concept."""
    concepts = np.concatenate([piece.codes.indices for piece in coded])
    order = np.argsort(concepts, kind="stable")
    lengths = np.concatenate([np.diff(piece.codes.pointers) for piece in coded])
    rows = np.repeat(np.arange(len(sources)), lengths)[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(concepts, minlength=n))])
    codes = np.concatenate([piece.codes.data for piece in coded])[order]
    through = np.concatenate([piece.through for piece in coded])[order]
    return SortedEntries(starts, rows, sources[rows], codes, through)


def _pieces(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
