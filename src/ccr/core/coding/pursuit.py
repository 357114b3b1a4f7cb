"""The rule of OMP and IP-OMP (METHOD 1): codes are least-squares coefficients on rows selected one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ccr.core import kernels
from ccr.core.coding.rules import ActiveEntries
from ccr.core.inputs import Embeddings
from ccr.errors import CCRError


@dataclass(frozen=True)
class PursuitRule:
    """At most `length` concepts an image; `information` selects by information gain (IP-OMP), else OMP."""

    length: int
    information: bool

    @property
    def threshold(self) -> float:
        return math.nan

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        raise CCRError("a pursuit does not code by scores alone: `apply_rule` gives its codes")

    def select(self, scores: np.ndarray) -> ActiveEntries:
        raise CCRError("a pursuit does not code by scores alone: `apply_rule` gives its codes")

    def nudged(self, mean_length: float) -> PursuitRule:
        return self

    def recalibrated(self, X: Embeddings, dictionary: np.ndarray) -> PursuitRule:
        return self

    def encoder(self, dictionary: np.ndarray) -> Callable[[torch.Tensor], ActiveEntries]:
        """The function from embeddings (b, d) to their codes."""
        rows = torch.tensor(dictionary, dtype=torch.float64)
        gram = (rows @ rows.T).numpy()

        def encode(x: torch.Tensor) -> ActiveEntries:
            x = x.double()
            counts = np.empty(len(x), np.int64)
            indices = np.empty(len(x) * self.length, np.int32)
            data = np.empty(len(x) * self.length, np.float32)
            scores, squares = (x @ rows.T).numpy(), (x**2).sum(dim=1).numpy()
            kernels.pursue(gram, scores, squares, self.information, self.length, indices, data, counts)
            written = (np.arange(self.length) < counts[:, None]).ravel() & (data != 0.0)
            pointers = np.concatenate([[0], np.cumsum(written.reshape(len(x), -1).sum(axis=1))]).astype(np.int32)
            return ActiveEntries(pointers, indices[written], data[written])

        return encode
