"""The generative model (Testbed, docs/method.md): orthonormal truth, sparse coefficients, samples, and starts that are
a little wrong.

Everything carries a leading axis of worlds: `truth` is (worlds, n, d), `beta` (worlds, m, n), `X` (worlds, m, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from ccr.errors import CCRError

Signs = Literal["both", "positive"]
Where = Literal["ball", "sphere"]


@dataclass(frozen=True)
class Testbed:
    """The laws of a world: n orthonormal concepts in d dimensions, k of them in a sample, |beta| in [gamma, Gamma].

    Parameters
    ----------
    n, d : int
        Concepts and dimensions, 1 <= n <= d.
    k : int
        Concepts per sample, 1 <= k <= n.
    gamma, Gamma : float
        Nonzero coefficients have magnitudes uniform on [gamma, Gamma], 0 < gamma <= Gamma.
    signs : "both" or "positive"
        "both" is the theorems' model (mean 0); "positive" is not.
    """

    __test__ = False  # the name is not pytest's

    n: int
    d: int
    k: int
    gamma: float = 0.5
    Gamma: float = 1.0
    signs: Signs = "both"

    @property
    def variance(self) -> float:
        """sigma^2 of a nonzero coefficient."""
        second = (self.gamma**2 + self.gamma * self.Gamma + self.Gamma**2) / 3
        return second if self.signs == "both" else (self.Gamma - self.gamma) ** 2 / 12

    @property
    def theorem_radius(self) -> float:
        """Largest start error both convergence theorems allow: gamma / (8 sqrt(k) Gamma)."""
        return self.gamma / (8 * sqrt(self.k) * self.Gamma)

    @property
    def support_radius(self) -> float:
        """Below this row error the support is found, whatever the errors: gamma / (2 sqrt(k) Gamma)."""
        return self.gamma / (2 * sqrt(self.k) * self.Gamma)

    def draw(self, *, worlds: int = 1, samples: int = 1, random_state: int | np.random.Generator = 0) -> Worlds:
        """Independent worlds with `samples` samples each, reproducible by `random_state`."""
        self._check()
        if worlds < 1 or samples < 1:
            raise CCRError(f"worlds and samples must be at least 1, got {worlds} and {samples}: ask for one of each")
        rng = np.random.default_rng(random_state)
        truth = orthonormal_rows(self.n, self.d, worlds=worlds, random_state=rng)
        return Worlds(self, truth, self._coefficients(rng, (worlds, samples, self.n)))

    def _coefficients(self, rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
        ranks = rng.random(shape).argsort(axis=-1)
        sizes = rng.uniform(self.gamma, self.Gamma, shape)
        if self.signs == "both":
            sizes *= 1 - 2 * rng.integers(0, 2, shape)
        return np.where(ranks < self.k, sizes, 0.0)

    def _check(self) -> None:
        if not 1 <= self.n <= self.d:
            raise CCRError(f"n must be in [1, d], got n={self.n} and d={self.d}: n orthonormal rows need d >= n")
        if not 1 <= self.k <= self.n:
            raise CCRError(f"k must be in [1, n], got k={self.k} and n={self.n}: a sample has k of the n concepts")
        if not 0 < self.gamma <= self.Gamma < np.inf:
            raise CCRError(
                f"magnitudes need 0 < gamma <= Gamma, got gamma={self.gamma} and Gamma={self.Gamma}: swap or raise them"
            )
        if self.signs not in ("both", "positive"):
            raise CCRError(f"signs must be 'both' or 'positive', got {self.signs!r}: the theorems need 'both'")


@dataclass(frozen=True, eq=False)
class Worlds:
    """Worlds drawn from one testbed: `truth` (worlds, n, d) with orthonormal rows and `beta` (worlds, m, n)."""

    testbed: Testbed
    truth: np.ndarray
    beta: np.ndarray

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def X(self) -> np.ndarray:
        """Samples x = sum_i beta_i d*_i (worlds, m, d)."""
        return self.beta @ self.truth

    @property
    def support(self) -> np.ndarray:
        """Mask (worlds, m, n) of the concepts in each sample."""
        return self.beta != 0

    def take(self, chosen: np.ndarray) -> Worlds:
        """Only these worlds (bool mask or indices)."""
        return Worlds(self.testbed, self.truth[chosen], self.beta[chosen])

    def start(
        self, radius: float | np.ndarray, *, random_state: int | np.random.Generator = 0, where: Where = "ball"
    ) -> np.ndarray:
        """Truth plus row errors uniform in the ball (or on the sphere) of `radius`, one radius or one per world."""
        radii = per_world(radius)
        if not np.all(radii >= 0):
            raise CCRError(f"radius must not be negative, got {radius}: it is how wrong a row may start")
        rng = np.random.default_rng(random_state)
        errors = rng.standard_normal(self.truth.shape)
        errors /= np.linalg.norm(errors, axis=-1, keepdims=True)
        if where == "ball":
            errors *= rng.random((*errors.shape[:2], 1)) ** (1 / errors.shape[-1])
        return self.truth + radii * errors


@dataclass(frozen=True, eq=False)
class MappedWorlds(Worlds):
    """Worlds with n = d seen through a linear map: `samples` (worlds, m, d) and `truth` are not orthonormal any more,
    but scores are as before, <d*_i, x> = beta_i."""

    samples: np.ndarray

    @classmethod
    def of(cls, worlds: Worlds, images: np.ndarray, concepts: np.ndarray) -> MappedWorlds:
        """Samples times `images` (worlds, d, d), concepts times `concepts`, the transpose of its inverse."""
        return cls(worlds.testbed, worlds.truth @ concepts, worlds.beta, worlds.X @ images)

    @property
    def X(self) -> np.ndarray:
        return self.samples

    def take(self, chosen: np.ndarray) -> MappedWorlds:
        return MappedWorlds(self.testbed, self.truth[chosen], self.beta[chosen], self.samples[chosen])


def orthonormal_rows(n: int, d: int, *, worlds: int = 1, random_state: int | np.random.Generator = 0) -> np.ndarray:
    """Haar-uniform orthonormal rows (worlds, n, d), n <= d."""
    rng = np.random.default_rng(random_state)
    q, r = np.linalg.qr(rng.standard_normal((worlds, d, n)))
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)  # without them QR's convention biases the law
    return np.swapaxes(q * signs[:, None, :], 1, 2)


def row_distance(dictionary: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|D - D'|_{1,2}, the largest row distance: (..., n, d) twice -> (...)."""
    return np.linalg.norm(dictionary - other, axis=-1).max(axis=-1)


def per_world(value: float | np.ndarray) -> np.ndarray:
    """One number, or one per world, ready to meet (worlds, n, d)."""
    array = np.asarray(value, dtype=float)
    return array.reshape(-1, 1, 1) if array.ndim else array
