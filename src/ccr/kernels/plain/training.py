"""The steps of a plan one after the other: Python leads from phase to phase, numba works within them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ccr.kernels.compiling import compiled, fused
from ccr.kernels.plain.arguments import BatchPlan, Criterion, Dropout, Entries, SortedEntries, StepSettings, StepState
from ccr.kernels.plain.rows import (
    add_row,
    copy_into,
    dot,
    multiply,
    pace_of,
    update_bias,
    update_concept,
    update_threshold,
    update_weights,
)
from ccr.kernels.plain.select import DictionaryInFloats, scores_of, select_active, step_salt
from ccr.utils.threads import Workers

# One training step of Algorithm 2 on sparse codes: O(b k (C + d)) beyond the product X D^T, and one pass over the
# parameters.
ZERO = np.float32(0.0)


@fused
def logit_gradient(logits, y, share, total):  # type: ignore[no-untyped-def]
    """share * CE(logits, y); the logits become its derivatives by them, which are added to `total`."""
    top, true, mass = logits[0], logits[y], ZERO
    for column in range(len(logits)):
        top = max(top, logits[column])
    for column in range(len(logits)):
        power = np.exp(logits[column] - top)
        logits[column] = power
        mass += power
    factor = share / mass
    for column in range(len(logits)):
        grad = logits[column] * factor - (share if column == y else ZERO)
        logits[column] = grad
        total[column] += grad
    return share * (np.log(np.float64(mass)) + np.float64(top) - np.float64(true))


@compiled
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = S L + b for the codes S (b, n) and the head's weights L (n, C)."""
    for row in range(len(out)):
        copy_into(out[row], bias)
        for entry in range(pointers[row], pointers[row + 1]):
            add_row(out[row], data[entry], weights[indices[entry]])


@compiled
def head_gradients(codes, y, share, parameters, settings, grad_logits, grad_bias, grad_scores):  # type: ignore[no-untyped-def]
    """Loss `sum_i share_i CE(S L + b, y_i)` of the codes S, and its derivatives: by the logits into `grad_logits`
    (b, W), by the bias added to `grad_bias` (W,), by the scores, of which codes are `settings.keep` times as large,
    into `grad_scores` (entries,)."""
    pointers, indices, data = codes
    loss = 0.0
    logits(pointers, indices, data, parameters.weights, parameters.bias, grad_logits)
    for row in range(len(y)):
        loss += logit_gradient(grad_logits[row], y[row], share[row], grad_bias)
        if settings.refine:
            for entry in range(pointers[row], pointers[row + 1]):
                grad_scores[entry] = np.float32(settings.keep) * dot(
                    grad_logits[row], parameters.weights[indices[entry]]
                )
    return loss


@compiled
def update_concepts(first, last, entries, grad_logits, x, parameters, settings, pace):  # type: ignore[no-untyped-def]
    """Step the concepts first:last, each row of the head and, if it is refined, of the dictionary, by the batch's
    sorted entries, its derivatives by the logits `grad_logits` (b, W) and the rows x that it was made of."""
    grad_weights, grad = np.empty(grad_logits.shape[1], np.float32), np.empty(x.shape[1], np.float32)
    weights, weight_moment, weight_size = parameters.weights, parameters.weight_moment, parameters.weight_size
    dictionary, moment, size = parameters.dictionary, parameters.dictionary_moment, parameters.dictionary_size
    center, allowed = parameters.center, parameters.allowed
    for concept in range(first, last):
        start, stop = entries.starts[concept], entries.starts[concept + 1]
        grad_weights[:], grad[:] = ZERO, ZERO
        for entry in range(start, stop):
            add_row(grad_weights, entries.codes[entry], grad_logits[entries.rows[entry]])
        if len(allowed) > 0:
            multiply(grad_weights, allowed[concept])
        weight_size[concept] = update_weights(
            weights[concept], weight_moment[concept], weight_size[concept], grad_weights, settings, pace
        )
        if settings.refine:
            for entry in range(start, stop):
                add_row(grad, entries.grad_scores[entry], x[entries.sources[entry]])
            size[concept] = update_concept(
                dictionary[concept], moment[concept], size[concept], center[concept], grad, settings, pace
            )


#: Rows of a batch, and concepts, that a thread takes at once. What is summed up in which order, and so the result,
#: depends on these, not on the threads.
ROWS, CONCEPTS = 64, 64


class CodedRows(NamedTuple):
    """Coded rows of a batch: their codes, the derivatives of the loss by score and by bias, its sum, and how many
    entries are active, left out ones included."""

    codes: Entries
    grad_scores: np.ndarray
    grad_bias: np.ndarray
    loss: float
    active: int


class PlainSteps:
    """Takes the steps of plans and moves the parameters."""

    def __init__(self, parameters: StepState) -> None:
        self.parameters = parameters

    def restricted(self, classes: int) -> None:
        """Take note that other weights, of so many classes, may move now: nothing to do."""

    def take(
        self, plan: BatchPlan, settings: StepSettings, packed: DictionaryInFloats, workers: Workers, *, lasting: bool
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
        grad_logits = np.empty((len(rows), len(parameters.bias)), np.float32)

        def code(part: slice) -> CodedRows:
            dropout = Dropout(part.start, settings.dropped, salt)
            x = plan.x[rows[part]]
            return _coded(x, y[part], share[part], dropout, parameters, settings, factors, grad_logits[part])

        coded = workers.map(code, list(_pieces(len(rows), ROWS)))
        entries = _sorted(coded, rows, len(parameters.dictionary))
        length = sum(piece.active for piece in coded) / len(rows)
        update_bias(sum(piece.grad_bias for piece in coded), plan.rates[step, 0], parameters, settings)
        update_threshold(length, parameters, settings)
        pace = pace_of(plan.rates[step], parameters, settings)

        def update(part: slice) -> None:
            update_concepts(part.start, part.stop, entries, grad_logits, plan.x, parameters, settings, pace)

        workers.map(update, list(_pieces(len(parameters.dictionary), CONCEPTS)))
        return sum(piece.loss for piece in coded), length, float(len(parameters.dictionary))


def _coded(
    x: np.ndarray,
    y: np.ndarray,
    share: np.ndarray,
    dropout: Dropout,
    parameters: StepState,
    settings: StepSettings,
    factors: np.ndarray,
    grad_logits: np.ndarray,
) -> CodedRows:
    """Codes, loss and derivatives of rows x (b, d); those by the logits are written to `grad_logits` (b, W)."""
    scores = scores_of(x, parameters.dictionary)
    indices, data = np.empty(scores.size, np.int32), np.empty(scores.size, np.float32)
    criterion = Criterion(settings.kind, np.float32(parameters.threshold[0]), settings.length)
    pointers = np.empty(len(x) + 1, np.int32)
    active = select_active(scores, criterion, factors, dropout, Entries(pointers, indices, data))
    codes = Entries(pointers, indices[: pointers[-1]], data[: pointers[-1]] * np.float32(settings.keep))
    grad_scores, grad_bias = np.empty_like(codes.data), np.zeros_like(parameters.bias)
    loss = head_gradients(codes, y, share, parameters, settings, grad_logits, grad_bias, grad_scores)
    return CodedRows(codes, grad_scores, grad_bias, loss, active)


def _sorted(coded: list[CodedRows], sources: np.ndarray, n: int) -> SortedEntries:
    """The entries of a batch, whose row r is x[sources[r]], by concept."""
    concepts = np.concatenate([piece.codes.indices for piece in coded])
    order = np.argsort(concepts, kind="stable")
    lengths = np.concatenate([np.diff(piece.codes.pointers) for piece in coded])
    rows = np.repeat(np.arange(len(sources)), lengths)[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(concepts, minlength=n))])
    codes = np.concatenate([piece.codes.data for piece in coded])[order]
    grad_scores = np.concatenate([piece.grad_scores for piece in coded])[order]
    return SortedEntries(starts, rows, sources[rows], codes, grad_scores)


def _pieces(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
