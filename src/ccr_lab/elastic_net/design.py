"""Codes as the solver sees them: measured from their mean, classes first, and only the columns that are needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ccr.errors import CCRError

#: Up to this many entries dense codes are worked on in float64.
SMALL = 2_000_000
#: Entries of a piece of dense codes.
PIECE = 1 << 19


class Moments(NamedTuple):
    """Weighted sums over the rows: `total` of the weights, `first` (a,) of w z, `second` (a, a) of w z z'."""

    total: float
    first: np.ndarray
    second: np.ndarray


class Design:
    """Codes (m, n), dense or CSR, from which the weighted mean of each column is subtracted in every product.

    Sums over rows are taken in float64, also where the codes are float32. Where a mean is large beside the spread,
    the codes are copied, so that no digits are lost; otherwise dense float32 codes stay where they are.
    """

    def __init__(self, codes: Any, share: np.ndarray) -> None:
        self.share = share
        self.codes = _as_codes(codes)
        self.offset = np.zeros(self.shape[1])
        self.mean, spread = self._mean_and_spread()
        if not sparse.issparse(self.codes) and (np.abs(self.mean) > 0.3 * spread).any():
            shift = self.mean.astype(self.dtype)
            self.codes = self.codes - shift
            self.offset, self.mean = shift.astype(np.float64), self._mean_and_spread()[0]

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])

    @property
    def dtype(self) -> Any:
        return self.codes.dtype

    @property
    def center(self) -> np.ndarray:
        """What is subtracted from the codes as they were given (n,)."""
        return self.offset + self.mean

    def logits(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """coef (classes, n) times the codes, plus the intercept: (classes, m)."""
        columns = np.flatnonzero(coef.any(axis=0))
        if 4 * len(columns) > self.shape[1]:  # copying columns costs more than multiplying by zeros
            columns = np.arange(self.shape[1])
        weights = coef[:, columns].astype(self.dtype)
        bias = (intercept - coef[:, columns] @ self.mean[columns]).astype(self.dtype)
        out = np.empty((len(coef), self.shape[0]), self.dtype)
        if sparse.issparse(self.codes):
            out[:] = (self.codes @ np.ascontiguousarray(coef.T)).T
        else:
            for rows in self._pieces():
                np.matmul(weights, self._columns(rows, columns).T, out=out[:, rows])
        out += bias[:, None]
        return out

    def slopes(self, residual: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """residual (classes, m) times these columns: (classes, len(columns)), float64."""
        if sparse.issparse(self.codes):
            chosen = self.codes if len(columns) == self.shape[1] else self.codes[:, columns]
            total = np.asarray((chosen.T @ np.ascontiguousarray(residual.T)).T, np.float64)
        else:
            total = np.zeros((len(residual), len(columns)))
            for rows in self._pieces():
                total += residual[:, rows] @ self._columns(rows, columns)
        return total - np.outer(residual.sum(axis=1, dtype=np.float64), self.mean[columns])

    def moments(self, weight: np.ndarray, columns: np.ndarray) -> Moments:
        """Sums over the rows with weights `weight` (m,) >= 0, of these columns measured from their mean."""
        total = float(weight.sum(dtype=np.float64))
        if sparse.issparse(self.codes):
            chosen = self.codes[:, columns].toarray() if len(columns) else np.zeros((self.shape[0], 0))
            raw, second = weight @ chosen, (chosen * weight[:, None]).T @ chosen
        else:
            raw, second = np.zeros(len(columns)), np.zeros((len(columns), len(columns)))
            for rows in self._pieces():
                part = self._columns(rows, columns)
                weighted = part * weight[rows, None]
                raw += weighted.sum(axis=0, dtype=np.float64)
                second += weighted.T @ part
        mean = self.mean[columns]
        cross = np.outer(raw, mean)
        return Moments(total, raw - total * mean, second - cross - cross.T + total * np.outer(mean, mean))

    def products(self, factors: np.ndarray, numbers: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Sums over the rows, by share, of v v', where v holds the factors (classes, m) of a row and then, for each
        pair of `numbers` and `columns`, the factor times the column measured from its mean. float64."""
        classes = len(factors)
        total = np.zeros((classes + len(columns), classes + len(columns)))
        step = max(64, PIECE // len(total))
        for start in range(0, self.shape[0], step):
            rows = slice(start, start + step)
            chosen = self.codes[rows][:, columns]
            part = np.asarray(chosen.toarray() if sparse.issparse(chosen) else chosen, np.float64) - self.mean[columns]
            factor = factors[:, rows].T.astype(np.float64)
            both = np.hstack([factor, part * factor[:, numbers]]) * np.sqrt(self.share[rows])[:, None]
            total += both.T @ both
        return total

    def _mean_and_spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean and root mean square of each column."""
        mean, square = np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for rows in self._pieces():
            part, share = self.codes[rows], self.share[rows].astype(self.dtype)
            mean += share @ part
            square += share @ (part.multiply(part).tocsr() if sparse.issparse(part) else part * part)
        return mean, np.sqrt(square)

    def _pieces(self) -> list[slice]:
        size = max(256, PIECE // self.shape[1])
        return [slice(start, start + size) for start in range(0, self.shape[0], size)]

    def _columns(self, rows: slice, columns: np.ndarray) -> np.ndarray:
        part = self.codes[rows]
        return part if len(columns) == self.shape[1] else part.take(columns, axis=1)


def _as_codes(codes: Any) -> Any:
    if sparse.issparse(codes):
        kept = sparse.csr_matrix(codes, dtype=np.float64)
        values = kept.data
    else:
        kept = np.asarray(codes)
        if kept.ndim != 2:
            raise CCRError(f"codes must be (images, concepts), got shape {kept.shape}")
        kept = np.ascontiguousarray(kept, np.float64 if kept.size <= SMALL else np.float32)
        values = kept
    if 0 in kept.shape:
        raise CCRError(f"codes must have at least one row and one column, got shape {kept.shape}")
    if not np.isfinite(values).all():
        raise CCRError("codes must be finite, got NaN or infinity: drop those images or encode them again")
    return kept
