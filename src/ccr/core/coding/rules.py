"""Rules: a coder's wish fitted to data, from embeddings to codes.

Every rule encodes. A score rule decides entry by entry what of the scores X D^T stays in the code, so that the
dictionary can be refined through it.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from ccr.core import kernels
from ccr.core.coding.entries import ActiveEntries, Selection
from ccr.core.coding.masks import threshold_mask, top_mask
from ccr.core.coding.scoring import Panels
from ccr.core.inputs import CHUNK_VALUES, Embeddings
from ccr.errors import CCRWarning

log = logging.getLogger("ccr")

#: Thresholds are calibrated on at most this many rows: AEL is then right to about half a percent.
CALIBRATION_ROWS = 16_384
#: How strongly a batch's length corrects the threshold; see `ThresholdRule.nudged`.
NUDGE = 0.05
#: A new threshold is looked for above this part of the one before, and first, by the kernels, above that.
NEAR, NEARER = 0.9, 0.97

#: From embeddings (b, d) to their codes.
Encode = Callable[[torch.Tensor], ActiveEntries]


class Rule(Protocol):
    """A coder fitted to data."""

    @property
    def threshold(self) -> float:
        """The number that decides what is active, NaN where there is none."""
        ...

    @property
    def fewest_concepts(self) -> int:
        """Concepts that a dictionary must have for its codes."""
        ...

    def encoder(self, dictionary: np.ndarray) -> Encode:
        """The function from embeddings (b, d) to their codes over the dictionary's rows (n, d)."""
        ...

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> Rule:
        """The rule fitted again to a dictionary that moved."""
        ...


class ScoreRule(Rule, Protocol):
    """A rule that keeps scores as they are or drops them: codes have the gradient of scores."""

    @property
    def held(self) -> float | None:
        """The mean length that the threshold is held to while the dictionary moves; None: it stays."""
        ...

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        """Which entries of the scores (b, n) are active."""
        ...

    def selection(self) -> Selection:
        """The same for the kernels."""
        ...

    def with_threshold(self, threshold: float) -> ScoreRule:
        """The rule at another threshold; one without a threshold stays."""
        ...

    def for_fewer(self, mean_length: float) -> ScoreRule | None:
        """The rule for some of the concepts, whose codes have this mean length; None if their codes depend on the
        others' scores."""
        ...

    def settled(self, scores: np.ndarray, rows: int) -> tuple[ScoreRule, float] | None:
        """The rule fitted again to the scores of some rows, all that are active a little below its threshold
        (`nearby`), and the mean length that they have then; None if these do not decide it."""
        ...

    def nearby(self) -> Selection:
        """What is active a little below the threshold."""
        ...

    def nudged(self, mean_length: float) -> ScoreRule:
        """The rule after a batch of this mean length was seen, kept on its requested length."""
        ...

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> ScoreRule: ...


def encode_selected(rule: ScoreRule, dictionary: np.ndarray) -> Encode:
    """The encoder of a score rule: scores are computed and selected by the kernels."""
    kernels.warm_up(log.info, group="coding")
    selection = rule.selection()
    panels = Panels(np.ascontiguousarray(dictionary, np.float32), selection)
    return panels.encoder(selection)


@dataclass(frozen=True)
class ThresholdRule:
    """Keep scores with |s| >= threshold, or with s > threshold when `positive` (Algorithm 2, docs/method.md).

    `length`, when given, is the average number of active concepts that the threshold is held to.
    """

    threshold: float
    positive: bool = False
    length: float | None = None

    @property
    def fewest_concepts(self) -> int:
        return 1

    @property
    def held(self) -> float | None:
        return self.length

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        return threshold_mask(scores, self.threshold, self.positive)

    def selection(self) -> Selection:
        kind = kernels.ONE_SIDED if self.positive else kernels.TWO_SIDED
        return Selection(kind, self.threshold, 0, 32.0 if self.length is None else self.length)

    def encoder(self, dictionary: np.ndarray) -> Encode:
        return encode_selected(self, dictionary)

    def with_threshold(self, threshold: float) -> ThresholdRule:
        return replace(self, threshold=threshold)

    def for_fewer(self, mean_length: float) -> ThresholdRule:
        return self if self.length is None else replace(self, length=mean_length)

    def settled(self, scores: np.ndarray, rows: int) -> tuple[ThresholdRule, float] | None:
        wanted = len(scores) if self.length is None else round(rows * self.length)
        if self.length is None or not 0 < wanted < len(scores):
            return None
        sizes = scores if self.positive else np.abs(scores)
        place = len(sizes) - wanted
        next_, last = np.partition(sizes, (place - 1, place))[place - 1 : place + 1]
        rule = replace(self, threshold=(float(next_) + float(last)) / 2)
        bound = np.float32(rule.threshold)  # as the kernels compare
        return rule, float(np.count_nonzero(sizes > bound if self.positive else sizes >= bound)) / rows

    def nearby(self) -> Selection:
        return self.selection()._replace(bound=NEARER * self.threshold)

    def nudged(self, mean_length: float) -> ThresholdRule:
        if self.length is None:
            return self
        # Relative steps make it independent of the scores' scale; the cap keeps one odd batch harmless.
        excess = min(mean_length / self.length, 2.0) - 1.0
        return replace(self, threshold=self.threshold * (1.0 + NUDGE * excess))

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> ThresholdRule:
        if self.length is None:
            return self
        threshold = calibrate(
            X, dictionary, length=self.length, positive=self.positive, near=self.threshold, warn=False
        )
        return replace(self, threshold=threshold)


@dataclass(frozen=True)
class TopRule:
    """Keep the `length` scores of largest absolute value in each row, of equals the first; zeros are never active."""

    length: int

    @property
    def threshold(self) -> float:
        return math.nan

    @property
    def fewest_concepts(self) -> int:
        return self.length

    @property
    def held(self) -> None:
        return None

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        return top_mask(scores, self.length)

    def selection(self) -> Selection:
        return Selection(kernels.TOP, 0.0, self.length, self.length)

    def encoder(self, dictionary: np.ndarray) -> Encode:
        return encode_selected(self, dictionary)

    def with_threshold(self, threshold: float) -> TopRule:
        return self

    def for_fewer(self, mean_length: float) -> None:
        return None

    def settled(self, scores: np.ndarray, rows: int) -> None:
        return None

    def nearby(self) -> Selection:
        return self.selection()

    def nudged(self, mean_length: float) -> TopRule:
        return self

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> TopRule:
        return self


def rule_at_length(rule: Rule, length: float, X: Embeddings, dictionary: np.ndarray) -> Rule:
    """The rule for another dictionary, at the threshold that gives the rows of X this mean length; one that is not held
    to a length stays as it is."""
    if isinstance(rule, ThresholdRule) and rule.length is not None:
        rule = replace(rule, length=max(length, 1 / len(X)))
    return rule.recalibrated(X, dictionary)


def calibrate(
    X: Embeddings,
    dictionary: np.ndarray,
    *,
    length: float,
    positive: bool = False,
    near: float = 0.0,
    warn: bool = True,
) -> float:
    """The threshold at which rows of X have `length` active concepts on average.

    Halfway between the (m length)-th largest score and the next, so that rounding does not flip either. It is found
    faster if it is known to be `near` a number. `warn` if positive scores are too few for it.
    """
    rows = np.arange(len(X))
    if len(X) > CALIBRATION_ROWS:
        rows = np.linspace(0, len(X) - 1, CALIBRATION_ROWS).astype(np.int64)
    wanted = min(round(len(rows) * length), len(rows) * len(dictionary))
    largest = _largest_scores(X, rows, dictionary, wanted + 1, positive, NEAR * near)
    if len(largest) <= wanted and near > 0.0:
        largest = _largest_scores(X, rows, dictionary, wanted + 1, positive, 0.0)
    if len(largest) > wanted:
        return float(np.partition(largest, 1)[:2].sum()) / 2
    # Every usable score is wanted: two-sided that is all of them, one-sided all that are positive.
    if warn and positive and len(largest) < wanted * 0.95:
        warnings.warn(
            f"length {length:g} cannot be reached with positive scores alone: images have "
            f"{len(largest) / len(rows):.1f} on average; use sign='both' or a smaller length",
            CCRWarning,
            stacklevel=2,
        )
    return 0.0


def _largest_scores(
    X: Embeddings, rows: np.ndarray, dictionary: np.ndarray, count: int, positive: bool, floor: float
) -> np.ndarray:
    """The `count` largest usable |scores| of these rows above `floor`, in no order; fewer if there are fewer."""
    transposed = torch.tensor(dictionary, dtype=torch.float32).T
    size = max(1, CHUNK_VALUES // len(dictionary))
    best = np.zeros(0, np.float32)
    for start in range(0, len(rows), size):
        scores = X.take(rows[start : start + size]) @ transposed
        values = (scores if positive else scores.abs()).numpy().ravel()
        best = np.concatenate([best, values[values > floor]])
        if len(best) > count:
            best = np.partition(best, len(best) - count)[-count:]
            floor = float(best.min())
    return best
