"""Losses of the Testbed (docs/method.md): expected squared errors, in closed form and by drawing z; the surrogate's
gradient.

The estimator believes D and is answered by D*: coefficients come from D, answers are <d*_i, z>. An estimate is
thus `sum_i c_i <d*_i, z>`, the target `<x, z>`, and the loss `|sum_i c_i d*_i - x|^2`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccr_lab.theory.pursuit import ip_omp, largest
from ccr_lab.theory.testbed import Worlds


class Surrogate(NamedTuple):
    """Mean loss over samples (worlds,), its gradient (worlds, n, d), and the selection S (worlds, m, n)."""

    loss: np.ndarray
    gradient: np.ndarray
    selected: np.ndarray


def believed_codes(worlds: Worlds, dictionary: np.ndarray) -> np.ndarray:
    """Coefficients of f_D: IP-OMP with D, least squares on D, of every sample (worlds, m, n)."""
    X = worlds.X
    b, m, d = X.shape
    many = np.broadcast_to(dictionary[:, None], (b, m, *dictionary.shape[1:])).reshape(b * m, -1, d)
    pursuit = ip_omp(many, X.reshape(b * m, d), length=worlds.testbed.k)
    return pursuit.dense(dictionary.shape[1]).reshape(b, m, -1)


def surrogate_codes(worlds: Worlds, dictionary: np.ndarray) -> np.ndarray:
    """Coefficients of the surrogate: <d_i, x> at the k largest |<d_i, x>|, else 0 (worlds, m, n)."""
    scores = worlds.X @ np.swapaxes(dictionary, 1, 2)
    return np.where(largest(np.abs(scores), worlds.testbed.k), scores, 0.0)


def expected_loss(worlds: Worlds, codes: np.ndarray, *, answered_by: np.ndarray | None = None) -> np.ndarray:
    """Mean over samples of E_z (estimate - y)^2 for these coefficients, in closed form (worlds,).

    `answered_by` other than the truth is the trap of Information pursuit (docs/method.md): it lets every dictionary
    look perfect.
    """
    answers = worlds.truth if answered_by is None else answered_by
    return ((codes @ answers - worlds.X) ** 2).sum(axis=2).mean(axis=1)


def estimator_loss(worlds: Worlds, dictionary: np.ndarray) -> np.ndarray:
    """Loss of f_D (worlds,)."""
    return expected_loss(worlds, believed_codes(worlds, dictionary))


def drawn_loss(worlds: Worlds, codes: np.ndarray, *, draws: int, random_state: int | np.random.Generator) -> np.ndarray:
    """The same loss by Monte Carlo: draw z, ask the true features, estimate, compare with y (worlds,)."""
    rng = np.random.default_rng(random_state)
    z = rng.standard_normal((len(worlds), worlds.testbed.d, draws))
    answers = worlds.truth @ z
    errors = codes @ answers - worlds.X @ z
    return (errors**2).mean(axis=(1, 2))


def surrogate(dictionary: np.ndarray, X: np.ndarray, beta: np.ndarray, *, length: int) -> Surrogate:
    """`sum_{i in S} (<d_i, x> - beta_i)^2 + sum_{i not in S} beta_i^2`, mean over samples, for all worlds at once."""
    scores = X @ np.swapaxes(dictionary, 1, 2)
    selected = largest(np.abs(scores), length)
    error = np.where(selected, scores - beta, 0.0)
    missed = np.where(selected, 0.0, beta)
    m = X.shape[1]
    loss = ((error**2).sum(axis=(1, 2)) + (missed**2).sum(axis=(1, 2))) / m
    return Surrogate(loss, 2.0 / m * np.swapaxes(error, 1, 2) @ X, selected)
