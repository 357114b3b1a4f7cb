"""What is measured between epochs, part by part and by all threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from ccr.core.coding import (
    ActiveEntries,
    Encode,
    Panels,
    Rule,
    ScoreRule,
    Selection,
    as_it_falls,
    map_codes,
    root_mean_square,
)
from ccr.core.heads import entry_logits
from ccr.core.inputs import Embeddings
from ccr.core.metrics import Deviation, distances
from ccr.core.refine.data import Labelled
from ccr.core.refine.engine import Parameters
from ccr.core.refine.evidence import Candidates, largest
from ccr.core.threads import Workers

Result = TypeVar("Result")
#: Rows of the sample that a thread takes at once, a few hundred so that the kernels read a large dictionary seldom.
SPAN = 384


class Validation(NamedTuple):
    """Mean weighted loss and accuracy; NaN without validation data."""

    loss: float
    accuracy: float


def validate(
    state: Parameters, held_out: Labelled | None, workers: Workers | None = None, encode: Encode | None = None
) -> Validation:
    """Loss and accuracy on the held-out rows; `encode` is the state's encoder, if there is one already."""
    if held_out is None:
        return Validation(math.nan, math.nan)
    data = held_out

    def use(part: slice, codes: ActiveEntries) -> tuple[float, int]:
        logits, y = entry_logits(codes, state.weights, state.bias), data.y[part]
        right, top = logits.argmax(axis=1), logits.max(axis=1)
        true = logits[np.arange(len(y)), y].astype(np.float64)
        logits -= top[:, None]
        losses = np.log(np.exp(logits, out=logits).sum(axis=1, dtype=np.float64)) + top - true
        return float(losses @ data.weight[part]), int((right == y).sum())

    decide = None if encode is None else as_it_falls(encode)
    measured = map_codes(state.rule, data.X, state.dictionary, use, rows=data.rows, workers=workers, decide=decide)
    sums = np.array([(loss, right) for loss, right in measured], np.float64).reshape(-1, 2).sum(axis=0)
    loss, right = (float(value) / len(data.y) for value in sums)
    return Validation(loss, right)


def settle(rule: ScoreRule, panels: Panels, sample: Embeddings, workers: Workers | None) -> tuple[ScoreRule, float]:
    """The rule fitted again to a dictionary that moved, if it is held to a length, and its mean number of active
    concepts: both by one pass over the sample."""
    if rule.held is not None:
        found = _with_panels(panels, rule.nearby(), sample, workers, rule.levels)
        settled = rule.settled(np.concatenate(found), len(sample))
        if settled is not None:
            return settled
        rule = rule.recalibrated(sample, panels.dictionary)
    return rule, length_of(rule, panels, sample, workers)


def length_of(rule: ScoreRule, panels: Panels, sample: Embeddings, workers: Workers | None) -> float:
    """Mean number of active concepts, by a dictionary that is packed already."""
    counts = _with_panels(panels, rule.selection(), sample, workers, lambda codes: len(codes.data))
    return sum(counts) / len(sample)


def _with_panels(
    panels: Panels,
    selection: Selection,
    sample: Embeddings,
    workers: Workers | None,
    use: Callable[[ActiveEntries], Result],
) -> list[Result]:
    if workers is None:
        with Workers() as threads:
            return _with_panels(panels, selection, sample, threads, use)
    spans = [slice(start, start + SPAN) for start in range(0, len(sample), SPAN)]
    return workers.map(lambda part: use(panels.encoder(selection)(sample.span(part.start, part.stop))), spans)


def moved_by(dictionary: np.ndarray, center: np.ndarray, workers: Workers | None) -> Deviation:
    """`deviation` of the dictionary from its centres, by all threads."""
    spans = [slice(start, start + SPAN) for start in range(0, len(center), SPAN)]
    found = (workers or Workers(1)).map(lambda part: distances(dictionary[part], center[part]), spans)
    every = np.concatenate(found)
    return Deviation(float(every.mean()), float(every.max()))


def mean_length(state: Parameters, sample: Embeddings, workers: Workers | None = None) -> float:
    """Mean number of active concepts."""
    counts = map_codes(state.rule, sample, state.dictionary, lambda _, codes: len(codes.data), workers=workers)
    return sum(counts) / len(sample)


def strongest_weights(
    state: Parameters,
    sample: Embeddings,
    keep: int,
    candidates: Candidates | None = None,
    workers: Workers | None = None,
    *,
    preference: np.ndarray | None = None,
) -> np.ndarray:
    """The `strongest` weights (n, C) by the root mean square of the concepts' codes, times a `preference` (n, C)."""
    squares, one_sided = np.zeros(len(state.dictionary)), True

    def use(_: slice, codes: ActiveEntries) -> tuple[np.ndarray, bool]:
        powers = np.bincount(codes.indices, codes.data.astype(np.float64) ** 2, minlength=len(squares))
        return powers, bool((codes.data >= 0).all())

    for part, positive in map_codes(state.rule, sample, state.dictionary, use, workers=workers):
        squares, one_sided = squares + part, one_sided and positive
    weights = state.weights if preference is None else state.weights * preference
    return strongest(weights, np.sqrt(squares / len(sample)), keep, candidates, one_sided=one_sided)


def strongest(
    weights: np.ndarray, size: np.ndarray, keep: int, candidates: Candidates | None = None, *, one_sided: bool
) -> np.ndarray:
    """Which weights (n, C) are, for each class, among its `keep` of largest |weight| x size, for codes of these sizes
    (n,); weights without effect never are. Of one-sided codes, which say what an image shows, only positive weights
    are: a class keeps what speaks for it, and no image is left without a word. Where there are `candidates`, only their
    weights are, unless none of them speaks for the class."""
    worth = np.abs(weights) * size[:, None]
    speaking = np.where(weights > 0, worth, 0.0) if one_sided else worth.copy()
    if candidates is not None:
        mask = candidates.mask(one_sided=one_sided)
        others = ~mask & ((speaking > 0) & mask).any(axis=0)
        worth[others] = speaking[others] = 0.0
    if keep >= len(worth):
        return worth > 0
    return largest(speaking, keep) & (speaking > 0)


def sample_code_size(rule: Rule, sample: Embeddings, dictionary: np.ndarray, workers: Workers | None = None) -> float:
    """`code_size` of the codes of a sample."""

    def use(_: slice, codes: ActiveEntries) -> tuple[float, int]:
        return float((codes.data.astype(np.float64) ** 2).sum()), len(codes.data)

    measured = map_codes(rule, sample, dictionary, use, workers=workers)
    squares, count = (sum(column) for column in zip(*measured, strict=True))
    return root_mean_square(float(squares), int(count))
