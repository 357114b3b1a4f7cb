"""The rule of OMP and IP-OMP (Information pursuit, docs/method.md): codes are least-squares coefficients on rows
selected one by one."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr import kernels
from ccr.coding.rules import Encode
from ccr.inputs import Embeddings
from ccr.kernels import Entries
from ccr.utils.lazy import LazyModule

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
