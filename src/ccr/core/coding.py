"""Coders: embeddings -> sparse codes (METHOD 1 and 3).

A coder says what the user wants (`HardThreshold(length=12)`); its `rule` is that wish fitted to data
(`ThresholdRule(0.153)`), which decides entry by entry what of the scores `X D^T` stays in the code.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator

from ccr.core import kernels
from ccr.core.inputs import CHUNK_VALUES, Embeddings
from ccr.errors import CCRError, CCRWarning

#: Thresholds are calibrated on at most this many rows: AEL is then right to about half a percent.
CALIBRATION_ROWS = 16_384
#: How strongly a batch's length corrects the threshold; see `ThresholdRule.nudged`.
NUDGE = 0.05

Sign = Literal["both", "positive"]


class ActiveEntries(NamedTuple):
    """The parts of a CSR matrix."""

    pointers: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class Rule(Protocol):
    """What of the scores stays in the code."""

    @property
    def threshold(self) -> float: ...

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        """Which entries of the scores (b, n) are active."""
        ...

    def select(self, scores: np.ndarray) -> ActiveEntries:
        """The active entries of the scores (b, n), as the parts of a CSR matrix."""
        ...

    def nudged(self, mean_length: float) -> Rule:
        """The rule after a batch of this mean length was seen, kept on its requested length."""
        ...

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> Rule:
        """The rule fitted again to a dictionary that moved."""
        ...


class Coder(Protocol):
    """A user's choice of coding. `differentiable`: the dictionary can be refined through it."""

    differentiable: bool

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> Rule: ...

    def encode(self, X: Any, dictionary: Any) -> sparse.csr_matrix: ...


@dataclass(frozen=True)
class ThresholdRule:
    """Keep scores with |s| >= threshold, or with s > threshold when `positive` (METHOD 3).

    `length`, when given, is the average number of active concepts that the threshold is held to.
    """

    threshold: float
    positive: bool = False
    length: float | None = None

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        if self.positive:
            return scores > self.threshold
        return (scores.abs() >= self.threshold) & (scores != 0)

    def select(self, scores: np.ndarray) -> ActiveEntries:
        counts = np.empty(len(scores), np.int32)
        kernels.count_active(scores, np.float32(self.threshold), self.positive, counts)
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        indices, data = np.empty(pointers[-1], np.int32), np.empty(pointers[-1], np.float32)
        kernels.fill_active(scores, np.float32(self.threshold), self.positive, pointers, indices, data)
        return ActiveEntries(pointers, indices, data)

    def nudged(self, mean_length: float) -> ThresholdRule:
        if self.length is None:
            return self
        # Relative steps make it independent of the scores' scale; the cap keeps one odd batch harmless.
        excess = min(mean_length / self.length, 2.0) - 1.0
        return replace(self, threshold=self.threshold * (1.0 + NUDGE * excess))

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> ThresholdRule:
        if self.length is None:
            return self
        return replace(self, threshold=calibrate(X, dictionary, length=self.length, positive=self.positive))


@dataclass(frozen=True)
class TopRule:
    """Keep the `length` scores of largest absolute value in each row; zeros are never active."""

    length: int

    @property
    def threshold(self) -> float:
        return math.nan

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        best = scores.abs().topk(self.length, dim=1).indices
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True)
        return chosen & (scores != 0)

    def select(self, scores: np.ndarray) -> ActiveEntries:
        counts = np.empty(len(scores), np.int32)
        indices = np.empty(len(scores) * self.length, np.int32)
        data = np.empty(len(scores) * self.length, np.float32)
        kernels.fill_top(scores, self.length, indices, data, counts)
        written = (np.arange(self.length) < counts[:, None]).ravel()
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return ActiveEntries(pointers, indices[written], data[written])

    def nudged(self, mean_length: float) -> TopRule:
        return self

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> TopRule:
        return self


class HardThreshold(BaseEstimator):
    """Codes are the scores `<x, d_i>` past a threshold, as they are; the rest is zero (METHOD 3).

    Give either `threshold`, or `length`: the average number of active concepts an image, to which the
    threshold is calibrated on the data at hand and held while the dictionary is refined.
    `sign="both"` keeps |s| >= threshold; `"positive"` keeps s > threshold, as the paper's released code does.
    """

    differentiable = True

    def __init__(self, *, threshold: float | None = None, length: float | None = None, sign: Sign = "both") -> None:
        self.threshold = threshold
        self.length = length
        self.sign = sign

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> ThresholdRule:
        """This coder fitted to X and the dictionary (n, d)."""
        if self.sign not in ("both", "positive"):
            raise CCRError(f'sign must be "both" or "positive", got {self.sign!r}')
        positive = self.sign == "positive"
        if (self.threshold is None) == (self.length is None):
            raise CCRError(
                f"give HardThreshold either a threshold or a length, got threshold={self.threshold} and "
                f"length={self.length}: length=12 asks for about 12 concepts an image"
            )
        if self.threshold is not None:
            if not (math.isfinite(self.threshold) and self.threshold >= 0):
                raise CCRError(f"threshold must be a number >= 0, got {self.threshold}: try length=12 instead")
            return ThresholdRule(float(self.threshold), positive)
        assert self.length is not None
        check_length(self.length, len(dictionary))
        length = float(self.length)
        return ThresholdRule(calibrate(X, dictionary, length=length, positive=positive), positive, length)

    def encode(self, X: Any, dictionary: Any) -> sparse.csr_matrix:
        """Codes (m, n) of the rows of X over the dictionary's unit rows (n, d); a length is calibrated on X."""
        return _encode(self, X, dictionary)


class TopK(BaseEstimator):
    """Codes keep each image's `length` scores of largest absolute value (METHOD 2)."""

    differentiable = True

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> TopRule:
        check_length(self.length, len(dictionary))
        if int(self.length) != self.length:
            raise CCRError(f"TopK keeps a whole number of concepts, got length={self.length}")
        return TopRule(int(self.length))

    def encode(self, X: Any, dictionary: Any) -> sparse.csr_matrix:
        """Codes (m, n) of the rows of X over the dictionary's unit rows (n, d)."""
        return _encode(self, X, dictionary)


def check_length(length: float, n: int) -> None:
    if not 1 <= length <= n:
        raise CCRError(
            f"length must be between 1 and the number of concepts, {n}, got {length}: it is how many concepts explain "
            "an image on average; try 12"
        )


def apply_rule(rule: Rule, X: Embeddings, dictionary: np.ndarray) -> sparse.csr_matrix:
    """Codes of X under a fitted rule, float32 CSR; memory beyond the codes does not grow with m x n."""
    pieces = list(code_chunks(rule, X, dictionary))
    return sparse.vstack(pieces, format="csr", dtype=np.float32) if len(pieces) > 1 else pieces[0]


def code_chunks(rule: Rule, X: Embeddings, dictionary: np.ndarray) -> Iterator[sparse.csr_matrix]:
    """Codes of some rows of X after the other, in order."""
    n = len(dictionary)
    transposed = torch.tensor(dictionary, dtype=torch.float32).T
    buffer = torch.empty(0)
    for chunk in X.chunks(n):
        if len(chunk) > len(buffer):
            # Used again by every chunk: fresh large blocks between small results would fragment the heap.
            buffer = torch.empty(len(chunk), n)
        scores = torch.mm(chunk, transposed, out=buffer[: len(chunk)])
        pointers, indices, data = rule.select(scores.numpy())
        yield sparse.csr_matrix((data, indices, pointers), shape=(len(chunk), n))


def calibrate(X: Embeddings, dictionary: np.ndarray, *, length: float, positive: bool = False) -> float:
    """The threshold at which rows of X have `length` active concepts on average.

    Halfway between the (m length)-th largest score and the next, so that rounding does not flip either.
    """
    rows = np.arange(len(X))
    if len(X) > CALIBRATION_ROWS:
        rows = np.linspace(0, len(X) - 1, CALIBRATION_ROWS).astype(np.int64)
    wanted = min(round(len(rows) * length), len(rows) * len(dictionary))
    largest = _largest_scores(X, rows, dictionary, wanted + 1, positive)
    if len(largest) > wanted:
        return float(largest[wanted - 1] + largest[wanted]) / 2
    # Every usable score is wanted: two-sided that is all of them, one-sided all that are positive.
    if positive and len(largest) < wanted * 0.95:
        warnings.warn(
            f"length {length:g} cannot be reached with positive scores alone: images have "
            f"{len(largest) / len(rows):.1f} on average; use sign='both' or a smaller length",
            CCRWarning,
            stacklevel=2,
        )
    return 0.0


def _largest_scores(X: Embeddings, rows: np.ndarray, dictionary: np.ndarray, count: int, positive: bool) -> np.ndarray:
    """The `count` largest usable |scores| of these rows, falling; fewer if there are fewer."""
    transposed = torch.tensor(dictionary, dtype=torch.float32).T
    size = max(1, CHUNK_VALUES // len(dictionary))
    best = np.zeros(0, np.float32)
    floor = 0.0
    for start in range(0, len(rows), size):
        scores = X.take(rows[start : start + size]) @ transposed
        values = (scores if positive else scores.abs()).numpy().ravel()
        best = np.concatenate([best, values[values > floor]])
        if len(best) > count:
            best = np.partition(best, len(best) - count)[-count:]
            floor = float(best.min())
    return np.sort(best)[::-1]


def _encode(coder: HardThreshold | TopK, X: Any, dictionary: Any) -> sparse.csr_matrix:
    if isinstance(dictionary, torch.Tensor):
        dictionary = dictionary.detach().cpu().numpy()
    rows = np.asarray(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
    embeddings = Embeddings(X, normalize=False)
    embeddings.check_dimension(rows.shape[1])
    return apply_rule(coder.rule(embeddings, rows), embeddings, rows)
