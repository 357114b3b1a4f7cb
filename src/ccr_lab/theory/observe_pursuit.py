"""Measurements behind the claims about pursuit, losses and necessity (Information pursuit and Algorithm 1,
docs/method.md)."""

from __future__ import annotations

import numpy as np

from ccr_lab.theory.losses import (
    believed_codes,
    drawn_loss,
    estimator_loss,
    expected_loss,
    surrogate,
    surrogate_codes,
)
from ccr_lab.theory.necessity import eps_limit, loss_bound, rotated
from ccr_lab.theory.pursuit import information_gain, ip_omp, top_k
from ccr_lab.theory.testbed import Testbed, Worlds, orthonormal_rows, row_distance

#: Draws of z for each Monte Carlo loss, and queries compared with information pursuit.
DRAWS = 1000
COMPARED = 12


def information(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """How much squared correlation the best query had over the one IP-OMP asked, worst over the steps.

    The dictionaries are far from orthonormal, and their rows differ in norm.
    """
    worlds = bed.draw(worlds=count, random_state=rng)
    x, spread = worlds.X[:, 0], rng.uniform(0.1, 1.0, (count, 1, 1))
    noise = rng.standard_normal(worlds.truth.shape) / np.sqrt(bed.d)
    dictionary = (worlds.truth + spread * noise) * rng.uniform(0.5, 2.0, (count, bed.n, 1))
    order = ip_omp(dictionary, x, length=min(bed.k, COMPARED)).order
    return _information_gap(dictionary, x, order)[None]


def _information_gap(dictionary: np.ndarray, x: np.ndarray, order: np.ndarray) -> np.ndarray:
    worst = np.zeros(len(x))
    for step in range(order.shape[1]):
        open_ = order[:, step] >= 0  # the others have explained their target
        gains = information_gain(dictionary[open_], x[open_], order[open_, :step])
        correlation = -np.expm1(-2 * gains)
        chosen = np.take_along_axis(correlation, order[open_, step, None], axis=1)[:, 0]
        worst[open_] = np.maximum(worst[open_], correlation.max(axis=1, initial=0.0) - chosen)
    return worst


def orthonormal_selection(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Queries on which IP-OMP and top-k differ for an orthonormal dictionary that has nothing to do with x."""
    dictionary = orthonormal_rows(bed.n, bed.d, worlds=count, random_state=rng)
    x = rng.standard_normal((count, bed.d))
    asked = ip_omp(dictionary, x, length=bed.k).dense(bed.n) != 0
    return (asked != top_k(dictionary, x[:, None], length=bed.k)[:, 0]).sum(axis=1).astype(float)[None]


def truth_is_perfect(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Loss of f_{D*} relative to |x|^2 = E y^2: a missed supporting query would cost at least gamma^2."""
    worlds = bed.draw(worlds=count, random_state=rng)
    return (estimator_loss(worlds, worlds.truth) / (worlds.beta[:, 0] ** 2).sum(axis=1))[None]


def monte_carlo(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Standard errors between the drawn and the closed-form loss of f_D and of the surrogate."""
    worlds = bed.draw(worlds=count, samples=1, random_state=rng)
    start = worlds.start(rng.uniform(0.05, 1.0, count), random_state=rng)
    return np.stack([_deviations(worlds, codes(worlds, start), rng) for codes in (believed_codes, surrogate_codes)])


def _deviations(worlds: Worlds, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    exact = expected_loss(worlds, codes)
    drawn = drawn_loss(worlds, codes, draws=DRAWS, random_state=rng)
    return np.abs(drawn - exact) / (exact * np.sqrt(2 / DRAWS))  # a squared normal has variance 2


def gradient(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Relative difference between the gradient along a direction and central differences of the loss."""
    worlds = bed.draw(worlds=count, samples=4, random_state=rng)
    start = worlds.start(0.9 * bed.support_radius, random_state=rng)  # so near that S is constant
    length, X = bed.k, worlds.X
    slope = surrogate(start, X, worlds.beta, length=length).gradient
    direction = _unit(_unit(slope) + 0.5 * _unit(rng.standard_normal(slope.shape)))
    step = 1e-3 * bed.support_radius * direction
    up, down = (surrogate(start + way * step, X, worlds.beta, length=length).loss for way in (1, -1))
    exact = (slope * step).sum(axis=(1, 2))
    return (np.abs((up - down) / 2 - exact) / np.abs(exact))[None]


def _unit(arrays: np.ndarray) -> np.ndarray:
    """Each world's array at Frobenius norm 1."""
    return arrays / np.linalg.norm(arrays, axis=(1, 2), keepdims=True)


def rotation(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Departures of the rotated dictionary from orthonormal rows, and of its distance from 2 sin(theta / 2)."""
    worlds = bed.draw(worlds=count, random_state=rng)
    theta = rng.uniform(0, np.pi, count)
    turned = rotated(worlds, 2 * np.sin(theta / 2))
    gram = np.abs(turned @ np.swapaxes(turned, 1, 2) - np.eye(bed.n)).max(axis=(1, 2))
    return np.stack([gram, np.abs(row_distance(turned, worlds.truth) - 2 * np.sin(theta / 2))])


def necessity(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """The bound over the loss of the rotated dictionary; the loss's departure from eps^2 times the rotated part of
    |beta|^2; and the first again with answers by the believed features."""
    worlds = bed.draw(worlds=count, random_state=rng)
    eps = rng.uniform(0.01, 1.0, count) * eps_limit(bed)
    turned = rotated(worlds, eps)
    codes = believed_codes(worlds, turned)
    honest, fooled = expected_loss(worlds, codes), expected_loss(worlds, codes, answered_by=turned)
    moved = np.linalg.norm(turned - worlds.truth, axis=2) > 0
    exact = eps**2 * (np.where(moved, worlds.beta[:, 0], 0.0) ** 2).sum(axis=1)
    bound = loss_bound(bed, eps)
    return np.stack([bound / honest, np.abs(honest / exact - 1), bound / np.maximum(fooled, 1e-20 * bound)])


def support_recovery(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Largest |score| outside the support over the smallest inside, when every row errs along x.

    Radii: the lemma's gamma / (4 sqrt(k) Gamma); its double; and 5 % beyond the least that breaks this sample.
    """
    worlds = bed.draw(worlds=count, random_state=rng)
    beta = worlds.beta[:, 0]
    smallest = np.abs(np.where(beta == 0, np.inf, beta)).min(axis=1)
    breaking = smallest / (2 * np.linalg.norm(beta, axis=1))
    radii = (0.999 * bed.support_radius / 2, 0.999 * bed.support_radius, 1.05 * breaking)
    return np.stack([_score_ratio(worlds, np.broadcast_to(radius, (count,))) for radius in radii])


def _score_ratio(worlds: Worlds, radius: np.ndarray) -> np.ndarray:
    beta, x = worlds.beta[:, 0], worlds.X[:, 0]
    along = x / np.linalg.norm(x, axis=1, keepdims=True)
    sign = np.where(beta == 0, 1.0, -np.sign(beta))  # outside rows look more like x, supporting rows less
    dictionary = worlds.truth + radius[:, None, None] * sign[:, :, None] * along[:, None, :]
    scores = np.abs(dictionary @ x[:, :, None])[:, :, 0]
    inside = np.where(beta == 0, np.inf, scores).min(axis=1)
    return np.where(beta == 0, scores, 0.0).max(axis=1) / inside


def position(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """|b - a| / |c - a| for multiples of a vector with |c| >= |b| and bc > 0: first |a| <= |b|, then only a <= |b|."""
    v = rng.standard_normal((count, bed.d))
    c = rng.uniform(0.1, 3.0, count)
    b = c * rng.uniform(0.05, 0.999, count)
    side = rng.choice((-1.0, 1.0), count)
    near, far = b * rng.uniform(-1, 1, count), -c * rng.uniform(1.1, 3.0, count)

    def ratio(a: np.ndarray, side: np.ndarray | float) -> np.ndarray:
        ends = [(value * side - a)[:, None] * v for value in (b, c)]
        return np.linalg.norm(ends[0], axis=1) / np.linalg.norm(ends[1], axis=1)

    return np.stack([ratio(near, side), ratio(far, -1.0)])
