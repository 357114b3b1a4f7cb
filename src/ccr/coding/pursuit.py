"""Pursuit rules: OMP, IP-OMP and non-negative lasso. Given the active concepts, codes are linear in the image."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr import kernels
from ccr.coding.rules import Encode, Rule
from ccr.errors import CCRWarning
from ccr.inputs import CHUNK_VALUES, Embeddings
from ccr.kernels import Entries
from ccr.utils.arrays import LazyModule
from ccr.utils.threads import Workers

# OMP and IP-OMP (Information pursuit, docs/method.md): codes are least-squares coefficients on rows selected one by
# one.

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

log = logging.getLogger("ccr")


@dataclass(frozen=True)
class PursuitRule:
    """At most `length` concepts per image; `information` selects by information gain (IP-OMP), else OMP."""

    length: int
    information: bool

    @property
    def threshold(self) -> float:
        return math.nan

    @property
    def fewest_concepts(self) -> int:
        return self.length

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> PursuitRule:
        return self

    def encoder(self, dictionary: np.ndarray) -> Encode:
        kernels.warm_up(log.info, group="pursuit")
        rows = torch.tensor(dictionary, dtype=torch.float32)
        exact = rows.double()
        gram = exact @ exact.T
        grams = gram.numpy(), gram.float().numpy()
        unit = bool(((gram.diagonal() - 1.0).abs() < 1e-5).all())

        def encode(x: torch.Tensor) -> Entries:
            shape = (len(x), self.length)
            indices, data, counts = np.empty(shape, np.int32), np.empty(shape, np.float32), np.full(len(x), -1)
            if unit:
                self._run(kernels.pursue_fast, grams[1], x, rows, indices, data, counts)
            hard = np.flatnonzero(counts < 0)
            if len(hard):
                again = [part[hard] for part in (indices, data, counts)]
                self._run(kernels.pursue, grams[0], x[hard].double(), exact, *again)
                indices[hard], data[hard], counts[hard] = again
            written = (np.arange(self.length) < counts[:, None]) & (data != 0.0)
            pointers = np.concatenate([[0], np.cumsum(written.sum(axis=1))]).astype(np.int32)
            return Entries(pointers, indices[written], data[written])

        return encode

    def _run(
        self, kernel: Any, gram: np.ndarray, x: torch.Tensor, rows: torch.Tensor, indices: np.ndarray, data: np.ndarray,
        counts: np.ndarray,
    ) -> None:  # fmt: skip
        scores, squares = (x @ rows.T).numpy(), (x**2).sum(dim=1).numpy()
        kernel(gram, scores, squares, self.information, self.length, indices.ravel(), data.ravel(), counts)


# Non-negative lasso (SpLiCE, Bhalla et al. 2024): codes are the few non-negative concept weights whose weighted sum
# approximates the image.

#: Optimality conditions hold to this part of an image's largest score.
TOLERANCE = 1e-6
#: Sweeps over an image's active concepts at most.
MOST_SWEEPS = 5000
#: alpha is calibrated on at most this many rows: AEL is then right to about a percent.
CALIBRATION_ROWS = 4096
#: Calibration ends when the length is right to this part, or after so many halvings of the bracket.
LENGTH_TOLERANCE, MOST_HALVINGS = 0.003, 30
#: The least alpha that calibration tries, as a part of the largest score.
LEAST_ALPHA = 1e-4


@dataclass(frozen=True)
class LassoRule:
    """The code of x is argmin_{s >= 0} |x - s D|^2 / 2 + alpha |s|_1.

    `length`, when given, is the average number of active concepts that alpha was calibrated to.
    """

    alpha: float
    length: float | None = None

    @property
    def threshold(self) -> float:
        """alpha: a code is empty unless some score exceeds it."""
        return self.alpha

    @property
    def fewest_concepts(self) -> int:
        return 1

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> LassoRule:
        if self.length is None:
            return self
        return LassoRule(calibrate_alpha(X, dictionary, length=self.length), self.length)

    def encoder(self, dictionary: np.ndarray) -> Encode:
        solver = Solver(dictionary)

        def encode(x: torch.Tensor) -> Entries:
            codes, unfinished = solver.codes(x, self.alpha)
            if unfinished:
                warnings.warn(
                    f"the codes of {unfinished} images are less exact than usual: alpha {self.alpha:g} is so small "
                    f"that {MOST_SWEEPS} sweeps did not reach the optimum; use a larger alpha or a smaller length",
                    CCRWarning,
                    stacklevel=2,
                )
            rows, columns = np.nonzero(codes)
            pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(codes)))]).astype(np.int32)
            return Entries(pointers, columns.astype(np.int32), codes[rows, columns])

        return encode


class Solver:
    """Lasso codes over one dictionary (n, d), whose Gram matrix is kept."""

    def __init__(self, dictionary: np.ndarray) -> None:
        kernels.warm_up(log.info, group="lasso")
        self.rows = torch.tensor(dictionary, dtype=torch.float64)
        self.gram = (self.rows @ self.rows.T).numpy()

    def scores(self, x: torch.Tensor) -> np.ndarray:
        return (x.double() @ self.rows.T).numpy()

    def codes(self, x: torch.Tensor, alpha: float) -> tuple[np.ndarray, int]:
        """Dense float32 codes (b, n) of the embeddings x (b, d), and how many of them are not optimal."""
        scores = self.scores(x)
        unfinished = kernels.nonnegative_lasso(self.gram, scores, float(alpha), TOLERANCE, MOST_SWEEPS)
        return scores.astype(np.float32), int(unfinished)


def calibrate_alpha(X: Embeddings, dictionary: np.ndarray, *, length: float) -> float:
    """The alpha at which rows of X have `length` active concepts on average, by bisection of its logarithm."""
    rows = np.arange(len(X))
    if len(X) > CALIBRATION_ROWS:
        rows = np.linspace(0, len(X) - 1, CALIBRATION_ROWS).astype(np.int64)
    size, solver = max(1, min(256, CHUNK_VALUES // max(dictionary.shape))), Solver(dictionary)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]

    def over_parts(function: Callable[[torch.Tensor], float]) -> list[float]:
        with Workers() as workers:
            return workers.map(lambda part: function(X.take(part)), parts)

    def measure(alpha: float) -> float:
        """Average length of the codes."""
        return sum(over_parts(lambda x: float(np.count_nonzero(solver.codes(x, alpha)[0])))) / len(rows)

    high = top = max(over_parts(lambda x: float(solver.scores(x).max())))
    if not top > 0.0:
        _warn_short(length, 0.0)
        return 1.0
    low = 0.5 * high
    # Downward by halves: short codes are found fastest, and most alphas that are tried are near the one wanted.
    while (reached := measure(low)) < length and low > LEAST_ALPHA * top:
        low, high = 0.5 * low, low
    if reached < length * (1.0 - LENGTH_TOLERANCE):
        if reached < length * 0.95:
            _warn_short(length, reached)
        return low
    best = (abs(reached - length), low)
    for _ in range(MOST_HALVINGS):
        if best[0] <= LENGTH_TOLERANCE * length:
            break
        middle = math.sqrt(low * high)
        reached = measure(middle)
        best = min(best, (abs(reached - length), middle))
        low, high = (middle, high) if reached >= length else (low, middle)
    return best[1]


def _warn_short(length: float, reached: float) -> None:
    warnings.warn(
        f"length {length:g} cannot be reached with non-negative codes: images have {reached:.1f} at the least penalty; "
        "use a smaller length or more concepts",
        CCRWarning,
        stacklevel=3,
    )


def active_rows(rule: Rule, dictionary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (a, d) and constants (a,) with code == rows @ x + constants, for an image x of the concepts' space whose
    active concepts have these rows of the dictionary (a, d).

    A score is a product with the concept itself. Pursuits and the lasso solve for all active concepts together: least
    squares coefficients, less what the lasso's penalty takes away.
    """
    rows = np.asarray(dictionary, np.float64)
    if not isinstance(rule, (PursuitRule, LassoRule)) or not len(rows):
        return rows, np.zeros(len(rows))
    inverse = np.linalg.pinv(rows @ rows.T, hermitian=True)
    penalty = rule.alpha if isinstance(rule, LassoRule) else 0.0
    return inverse @ rows, -penalty * inverse.sum(axis=1)
