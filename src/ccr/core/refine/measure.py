"""What is measured between epochs, part by part and by all threads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ccr.core.coding import ActiveEntries, Rule, map_codes, root_mean_square
from ccr.core.heads import entry_logits
from ccr.core.inputs import Embeddings
from ccr.core.refine.data import Labelled
from ccr.core.refine.engine import Parameters
from ccr.core.threads import Workers


class Validation(NamedTuple):
    """Mean weighted loss and accuracy; NaN without validation data."""

    loss: float
    accuracy: float


def validate(state: Parameters, held_out: Labelled | None, workers: Workers | None = None) -> Validation:
    """Loss and accuracy on the held-out rows."""
    if held_out is None:
        return Validation(math.nan, math.nan)
    data = held_out

    def use(part: slice, codes: ActiveEntries) -> tuple[float, int]:
        logits, y = entry_logits(codes, state.weights, state.bias), data.y[part]
        losses = logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
        return float(losses @ data.weight[part]), int((logits.argmax(axis=1) == y).sum())

    measured = map_codes(state.rule, data.X, state.dictionary, use, rows=data.rows, workers=workers)
    loss, right = (sum(column) for column in zip(*measured, strict=True))
    return Validation(loss / len(data.y), right / len(data.y))


def mean_length(state: Parameters, sample: Embeddings, workers: Workers | None = None) -> float:
    """Mean number of active concepts."""
    counts = map_codes(state.rule, sample, state.dictionary, lambda _, codes: len(codes.data), workers=workers)
    return sum(counts) / len(sample)


def strongest_weights(state: Parameters, sample: Embeddings, keep: int, workers: Workers | None = None) -> np.ndarray:
    """The `strongest` weights (n, C) by the root mean square of the concepts' codes."""
    squares, one_sided = np.zeros(len(state.dictionary)), True

    def use(_: slice, codes: ActiveEntries) -> tuple[np.ndarray, bool]:
        powers = np.bincount(codes.indices, codes.data.astype(np.float64) ** 2, minlength=len(squares))
        return powers, bool((codes.data >= 0).all())

    for part, positive in map_codes(state.rule, sample, state.dictionary, use, workers=workers):
        squares, one_sided = squares + part, one_sided and positive
    return strongest(state.weights, np.sqrt(squares / len(sample)), keep, one_sided=one_sided)


def strongest(weights: np.ndarray, size: np.ndarray, keep: int, *, one_sided: bool) -> np.ndarray:
    """Which weights (n, C) are, for each class, among its `keep` of largest |weight| x size, for codes of these sizes
    (n,); weights without effect never are. Of one-sided codes, which say what an image shows, only positive weights
    are: a class keeps what speaks for it, and no image is left without a word."""
    worth = np.abs(weights) * size[:, None]
    if keep >= len(worth):
        return worth > 0
    if one_sided:
        worth[weights < 0] = 0.0
    order = np.argsort(-worth, axis=0, kind="stable")[:keep]
    chosen = np.zeros(worth.shape, bool)
    np.put_along_axis(chosen, order, True, axis=0)
    return chosen & (worth > 0)


def sample_code_size(rule: Rule, sample: Embeddings, dictionary: np.ndarray, workers: Workers | None = None) -> float:
    """`code_size` of the codes of a sample."""

    def use(_: slice, codes: ActiveEntries) -> tuple[float, int]:
        return float((codes.data.astype(np.float64) ** 2).sum()), len(codes.data)

    measured = map_codes(rule, sample, dictionary, use, workers=workers)
    squares, count = (sum(column) for column in zip(*measured, strict=True))
    return root_mean_square(float(squares), int(count))
