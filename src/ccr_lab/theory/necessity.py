"""Necessity (docs/method.md): an orthonormal dictionary eps away from the truth whose loss grows with eps^2."""

from __future__ import annotations

import numpy as np

from ccr.errors import CCRError
from ccr_lab.theory.testbed import Testbed, Worlds


def eps_limit(testbed: Testbed) -> float:
    """The theorem covers eps in (0, 1 / sqrt(1 + 16 Gamma^2 / gamma^2))."""
    return float(1 / np.sqrt(1 + 16 * (testbed.Gamma / testbed.gamma) ** 2))


def loss_bound(testbed: Testbed, eps: float | np.ndarray) -> np.ndarray:
    """81 k eps^2 gamma^2 / 200, with k - 1 for odd k: what the rotated dictionary loses at least."""
    paired = testbed.k - testbed.k % 2
    return 81 * paired * np.asarray(eps) ** 2 * testbed.gamma**2 / 200


def rotated(worlds: Worlds, eps: float | np.ndarray) -> np.ndarray:
    """Truth with its first sample's supporting rows rotated in pairs (i, i + k/2) by theta, eps = 2 sin(theta/2).

    Odd k leaves one row out; k = 1 rotates nothing. `eps` in [0, 2] is one number, or one per world.
    """
    size = np.broadcast_to(np.asarray(eps, dtype=float), (len(worlds),))
    if not np.all((size >= 0) & (size <= 2)):
        raise CCRError(f"eps must be in [0, 2], got {eps}: two unit vectors are no farther apart")
    half = worlds.testbed.k // 2
    active = np.argsort(~worlds.support[:, 0], axis=1, kind="stable")
    first, second = active[:, :half, None], active[:, half : 2 * half, None]
    theta = 2 * np.arcsin(size / 2)[:, None, None]
    a, b = (np.take_along_axis(worlds.truth, rows, axis=1) for rows in (first, second))
    turned = worlds.truth.copy()
    np.put_along_axis(turned, first, np.cos(theta) * a + np.sin(theta) * b, axis=1)
    np.put_along_axis(turned, second, -np.sin(theta) * a + np.cos(theta) * b, axis=1)
    return turned
