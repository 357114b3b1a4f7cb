"""Rules: a coder's wish fitted to data, from embeddings to codes.

Every rule encodes. A score rule decides entry by entry what of the scores X D^T stays in the code, so that the
dictionary can be refined through it.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ccr import kernels
from ccr.errors import CCRError, CCRWarning
from ccr.inputs import CHUNK_VALUES, Embeddings
from ccr.kernels import Entries
from ccr.utils.arrays import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

log = logging.getLogger("ccr")

#: Thresholds are calibrated on at most this many rows: AEL is then right to about half a percent.
CALIBRATION_ROWS = 16_384
#: Strength of the threshold's correction by a batch's length; see `ThresholdRule.with_feedback`.
NUDGE = 0.05
#: Lower bounds of the search for a new threshold, as parts of the one before: `NEARER` first, by the kernels.
NEAR, NEARER = 0.9, 0.97


# Masks of active scores in torch, for the rules and for modules that are compiled or exported.
def threshold_mask(scores: torch.Tensor, threshold: torch.Tensor, positive: bool) -> torch.Tensor:
    """|s| >= threshold, or s > threshold when `positive`; zeros never (Algorithm 2, docs/method.md). The
    threshold is one number (), or one for each concept (n,)."""
    if positive:
        return scores > threshold
    return (scores.abs() >= threshold) & (scores != 0)


def top_mask(scores: torch.Tensor, length: int) -> torch.Tensor:
    """The `length` scores of largest absolute value in each row, of equals the first; zeros never."""
    size = scores.abs()
    bound = size.topk(length, dim=1).values[:, -1:]
    above, equal = size > bound, size == bound
    # Of equals the first ones, as the kernels take them; topk takes any.
    fits = equal & (equal.cumsum(dim=1) <= length - above.sum(dim=1, keepdim=True))
    return (above | fits) & (scores != 0)


#: From embeddings (b, d) to their codes.
Encode = Callable[["torch.Tensor"], Entries]

#: Screening scores in bytes pays while at most this part of them must then be computed in floats.
FEW = 0.2
#: Largest deviation of a row's norm from 1.
UNIT_TOLERANCE = 5e-6


class Panels:
    """A dictionary (n, d) packed for the kernels, which find the active entries of rows by it.

    `n_exact` is how many scores of a row could be active, if it is known. `pack` is called again when the rows moved.
    `seed` is that of the noise of a screening in bytes; None draws it afresh, so that rows cannot be built against it.
    The factors of the rule are packed too: later criteria may have another bound, but the same factors.
    """

    def __init__(
        self, dictionary: np.ndarray, rule: ScoreRule, n_exact: float | None = None, *, seed: int | None = None
    ) -> None:
        self.dictionary = dictionary
        self.wanted = screens(rule, len(dictionary), n_exact)
        self.expected = rule.expected_length
        self.screened = self.wanted and _is_unit(dictionary)
        # Numba would compile all kernels again for an array that cannot be written.
        writable = dictionary if dictionary.flags.writeable else dictionary.copy()
        self.packed = kernels.PackedConcepts(writable, screened=self.screened, seed=seed, factors=rule.concept_factors)

    def pack(self) -> None:
        self.packed.pack()

    def entries(self, x: np.ndarray, criterion: kernels.Criterion) -> Entries:
        """The active entries of rows x (b, d)."""
        return self.examined(x, criterion)[0]

    def encoder(self, criterion: kernels.Criterion) -> Encode:
        """The function from embeddings (b, d) to their codes under the criterion."""
        return lambda x: self.entries(x.contiguous().numpy(), criterion)

    def examined(self, x: np.ndarray, criterion: kernels.Criterion) -> tuple[Entries, int]:
        """The active entries of rows x (b, d), and how many scores were computed in floats to find them."""
        narrow = criterion._replace(bound=np.float32(criterion.bound))
        pointers = np.empty(len(x) + 1, np.int32)
        capacity = 64 + int(len(x) * min(self.expected * 1.25, len(self.dictionary)))
        while True:
            indices, data = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
            n_exact = kernels.code_rows(x, self.packed, narrow, Entries(pointers, indices, data))
            if pointers[-1] <= capacity:
                return Entries(pointers, indices[: pointers[-1]], data[: pointers[-1]]), n_exact
            capacity = int(pointers[-1])


def screens(rule: ScoreRule, n: int, n_exact: float | None = None) -> bool:
    """Whether to screen by a product in bytes first: `n_exact` of n scores, or as many as are expected to be active,
    must be computed in floats all the same."""
    expected = rule.expected_length if n_exact is None else n_exact
    return kernels.SCREENS and rule.criterion().kind != kernels.TOP and expected <= FEW * n


def _is_unit(dictionary: np.ndarray) -> bool:
    """Whether all rows have norm 1, on which the bound of the screening rests."""
    return bool((np.abs(np.linalg.norm(dictionary, axis=1) - 1.0) <= UNIT_TOLERANCE).all())


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
    """A rule that keeps scores as they are or drops them: codes have the gradient of scores.

    The methods that have a body here are those of a rule without a threshold, which stays as it is.
    """

    @property
    def target_length(self) -> float | None:
        """The mean length that the threshold is held to while the dictionary moves; None: it stays."""
        return None

    @property
    def concept_factors(self) -> np.ndarray | None:
        """Factors (n,) by which the criterion's bound is multiplied for each concept; None: all are 1."""
        return None

    @property
    def expected_length(self) -> float:
        """Active entries of a row, to make room for."""
        ...

    def select(self, scores: np.ndarray) -> np.ndarray:
        """Mask of the active entries of scores (b, n), float64."""
        ...

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        """The same in torch."""
        ...

    def criterion(self) -> kernels.Criterion:
        """The same for the kernels, with the `concept_factors`."""
        ...

    def encoder(self, dictionary: np.ndarray) -> Encode:
        return encode_selected(self, dictionary)

    def with_threshold(self, threshold: float) -> ScoreRule:
        """The rule at another threshold."""
        return self

    def of(self, rows: np.ndarray) -> ScoreRule:
        """The rule for these rows of the dictionary, at the same threshold."""
        return self

    def for_fewer(self, mean_length: float) -> ScoreRule | None:
        """The rule for some of the concepts, whose codes have this mean length; None if their codes depend on the
        others' scores."""
        return None

    def levels(self, codes: Entries) -> np.ndarray:
        """The sizes of these scores in the unit of the threshold: a score is active if its level passes it."""
        return np.abs(codes.data)

    def recalibrated_by(self, levels: np.ndarray, rows: int) -> tuple[ScoreRule, float] | None:
        """The rule fitted again to the `levels` of the scores of some rows, all that are active a little below its
        threshold (`nearby`), and the mean length that they have then; None if these do not decide it."""
        return None

    def nearby(self) -> kernels.Criterion:
        """The criterion with a threshold that is a little lower."""
        return self.criterion()

    def with_feedback(self, mean_length: float) -> ScoreRule:
        """The rule after a batch of this mean length was seen, kept on its requested length."""
        return self

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> ScoreRule:
        return self


def encode_selected(rule: ScoreRule, dictionary: np.ndarray) -> Encode:
    """The encoder of a score rule: scores are computed and selected by the kernels."""
    kernels.warm_up(log.info, group="coding")
    return Panels(np.ascontiguousarray(dictionary, np.float32), rule).encoder(rule.criterion())


@dataclass(frozen=True)
class ThresholdRule:
    """Keep scores with |s| >= threshold, or with s > threshold when `positive` (Algorithm 2, docs/method.md).

    `length`, when given, is the average number of active concepts that the threshold is held to. `factors` (n,), when
    given, make a threshold for each concept: the threshold of concept j is `threshold * factors[j]`, so that one number
    moves all of them where a length is held.
    """

    threshold: float
    positive: bool = False
    length: float | None = None
    factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.factors is not None:  # a list, from JSON
            object.__setattr__(self, "factors", tuple(self.factors))

    @classmethod
    def by_concept(cls, thresholds: np.ndarray, positive: bool, length: float | None = None) -> ThresholdRule:
        """The rule with a threshold (n,) for each concept; one rule for all if they are equal."""
        largest = float(np.max(thresholds))
        if largest == float(np.min(thresholds)):
            return cls(largest, positive, length)
        return cls(largest, positive, length, tuple((np.asarray(thresholds, np.float64) / largest).tolist()))

    @cached_property
    def bounds(self) -> np.ndarray:
        """The thresholds, float32 as the kernels compare: one for each concept (n,), or one for all, ()."""
        common = np.float32(self.threshold)
        return np.asarray(common) if self.factors is None else common * np.array(self.factors, np.float32)

    @property
    def fewest_concepts(self) -> int:
        return 1

    @property
    def target_length(self) -> float | None:
        return self.length

    def select(self, scores: np.ndarray) -> np.ndarray:
        bounds = self.bounds.astype(np.float64)  # of float32, as the kernels compare
        return np.asarray(scores > bounds if self.positive else (np.abs(scores) >= bounds) & (scores != 0))

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        return threshold_mask(scores, torch.tensor(self.bounds, device=scores.device), self.positive)

    def criterion(self) -> kernels.Criterion:
        return kernels.Criterion(kernels.ONE_SIDED if self.positive else kernels.TWO_SIDED, self.threshold, 0)

    @property
    def concept_factors(self) -> np.ndarray | None:
        return None if self.factors is None else np.array(self.factors, np.float32)

    @property
    def expected_length(self) -> float:
        return 32.0 if self.length is None else self.length

    def encoder(self, dictionary: np.ndarray) -> Encode:
        return encode_selected(self, dictionary)

    def with_threshold(self, threshold: float) -> ThresholdRule:
        return replace(self, threshold=threshold)

    def of(self, rows: np.ndarray) -> ThresholdRule:
        if self.factors is None:
            return self
        return replace(self, factors=tuple(self.factors[row] for row in np.asarray(rows).tolist()))

    def with_one_more(self) -> ThresholdRule:
        """The rule for one more concept, behind the others, whose threshold is the median of theirs."""
        if self.factors is None:
            return self
        return replace(self, factors=(*self.factors, float(np.median(self.factors))))

    def for_fewer(self, mean_length: float) -> ThresholdRule:
        return self if self.length is None else replace(self, length=mean_length)

    def levels(self, codes: Entries) -> np.ndarray:
        sizes = codes.data if self.positive else np.abs(codes.data)
        if self.factors is None:
            return sizes
        factors = np.array(self.factors, np.float32)[codes.indices]
        return np.divide(sizes, factors, out=np.full_like(sizes, np.inf), where=factors > 0)

    def recalibrated_by(self, levels: np.ndarray, rows: int) -> tuple[ThresholdRule, float] | None:
        active = len(levels) if self.length is None else round(rows * self.length)
        if self.length is None or not 0 < active < len(levels):
            return None
        place = len(levels) - active
        next_, last = np.partition(levels, (place - 1, place))[place - 1 : place + 1]
        if not np.isfinite(last):  # more scores than wanted are active at any threshold
            return None
        rule = replace(self, threshold=(float(next_) + float(last)) / 2)
        bound = np.float32(rule.threshold)  # as the kernels compare
        return rule, float(np.count_nonzero(levels > bound if self.positive else levels >= bound)) / rows

    def nearby(self) -> kernels.Criterion:
        return self.criterion()._replace(bound=NEARER * self.threshold)

    def with_feedback(self, mean_length: float) -> ThresholdRule:
        if self.length is None:
            return self
        # Relative steps make it independent of the scores' scale; the cap keeps one odd batch harmless.
        excess = min(mean_length / self.length, 2.0) - 1.0
        return replace(self, threshold=self.threshold * (1.0 + NUDGE * excess))

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> ThresholdRule:
        if self.length is None:
            return self
        threshold = calibrate(
            X,
            dictionary,
            length=self.length,
            positive=self.positive,
            near=self.threshold,
            warn=False,
            factors=self.factors,
        )
        return replace(self, threshold=threshold)


@dataclass(frozen=True)
class TopRule(ScoreRule):
    """Keep the `length` scores of largest absolute value in each row, of equals the first; zeros are never active."""

    length: int

    @property
    def threshold(self) -> float:
        return math.nan

    @property
    def fewest_concepts(self) -> int:
        return self.length

    @property
    def expected_length(self) -> float:
        return self.length

    def select(self, scores: np.ndarray) -> np.ndarray:
        # Stable: of equals the first, as the kernels take them.
        kept = np.argsort(-np.abs(scores), axis=1, kind="stable")[:, : self.length]
        active = np.zeros(scores.shape, bool)
        np.put_along_axis(active, kept, True, axis=1)
        return active & (scores != 0)

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        return top_mask(scores, self.length)

    def criterion(self) -> kernels.Criterion:
        return kernels.Criterion(kernels.TOP, 0.0, self.length)


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
    factors: Sequence[float] | None = None,
) -> float:
    """The threshold at which rows of X have `length` active concepts on average; with `factors` (n,), the number that
    makes it so as their common multiple.

    Halfway between the (m length)-th largest score and the next, so that rounding does not flip either. It is found
    faster if it is known to be `near` a number. `warn` if positive scores are too few for it.
    """
    rows = np.arange(len(X))
    if len(X) > CALIBRATION_ROWS:
        rows = np.linspace(0, len(X) - 1, CALIBRATION_ROWS).astype(np.int64)
    count = min(round(len(rows) * length), len(rows) * len(dictionary))
    largest = _largest_scores(X, rows, dictionary, count + 1, positive, NEAR * near, factors)
    if len(largest) <= count and near > 0.0:
        largest = _largest_scores(X, rows, dictionary, count + 1, positive, 0.0, factors)
    if len(largest) > count:
        return float(np.partition(largest, 1)[:2].sum()) / 2
    # Every usable score is wanted: two-sided that is all of them, one-sided all that are positive.
    if warn and positive and len(largest) < count * 0.95:
        warnings.warn(
            f"length {length:g} cannot be reached with positive scores alone: images have "
            f"{len(largest) / len(rows):.1f} on average; use sign='both' or a smaller length",
            CCRWarning,
            stacklevel=2,
        )
    return 0.0


def _largest_scores(
    X: Embeddings,
    rows: np.ndarray,
    dictionary: np.ndarray,
    count: int,
    positive: bool,
    floor: float,
    factors: Sequence[float] | None,
) -> np.ndarray:
    """The `count` largest usable |scores| of these rows above `floor`, in no order; fewer if there are fewer. With
    `factors` each is divided by that of its concept; a factor of 0 makes every usable score count as the largest."""
    transposed = torch.tensor(dictionary, dtype=torch.float32).T
    size = max(1, CHUNK_VALUES // len(dictionary))
    best = np.zeros(0, np.float32)
    for start in range(0, len(rows), size):
        scores = X.take(rows[start : start + size]) @ transposed
        sizes = (scores if positive else scores.abs()).numpy()
        if factors is not None:
            divisors = np.broadcast_to(np.array(factors, np.float32), sizes.shape)
            endless = np.where(sizes > 0, np.float32(np.finfo(np.float32).max), np.float32(0.0))
            sizes = np.divide(sizes, divisors, out=endless, where=divisors > 0)
        values = sizes.ravel()
        best = np.concatenate([best, values[values > floor]])
        if len(best) > count:
            best = np.partition(best, len(best) - count)[-count:]
            floor = float(best.min())
    return best


def exportable_rule(rule: Rule, target: str) -> ThresholdRule | TopRule:
    """The rule itself if `target`, such as "ONNX", can compute it; an error with the reason otherwise."""
    if isinstance(rule, (ThresholdRule, TopRule)):
        return rule
    raise CCRError(
        f"{target} takes codes that are a threshold or the top k of the scores, this model's are made by "
        f"{type(rule).__name__}, which solves a problem of its own for every image, concept after concept: fit with "
        "HardThreshold or TopK to export, or run this model in Python"
    )
