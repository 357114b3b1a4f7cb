"""Information pursuit (docs/method.md), its losses and their necessity, and the measurements behind the claims on them.

The estimator believes D and is answered by D*: coefficients come from D, answers are <d*_i, z>. An estimate is
thus `sum_i c_i <d*_i, z>`, the target `<x, z>`, and the loss `|sum_i c_i d*_i - x|^2`, in closed form and by drawing z.
An orthonormal dictionary eps away from the truth has a loss that grows with eps^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr_lab.theory.testbed import Testbed, Worlds, orthonormal_rows, row_distance

#: Below this part of |x| the target is explained; below this norm a concept has nothing new to ask.
STOP = 1e-6


@dataclass(frozen=True, eq=False)
class Pursuit:
    """Queries in the order asked (worlds, length), -1 once the target is explained, and their coefficients."""

    order: np.ndarray
    coefficients: np.ndarray

    def dense(self, n: int) -> np.ndarray:
        """Coefficients at their concepts' places (worlds, n)."""
        codes = np.zeros((len(self.order), n + 1))
        np.put_along_axis(codes, self.order, np.where(self.order < 0, 0.0, self.coefficients), axis=1)
        return codes[:, :n]  # the spare column took the queries never asked


def ip_omp(dictionary: np.ndarray, x: np.ndarray, *, length: int) -> Pursuit:
    """Ask at most `length` queries, each with the largest |<P d_i, P x>| / (|P d_i| |P x|); then least squares.

    dictionary (worlds, n, d), x (worlds, d); P projects away the rows already asked.
    """
    _check_length(length, dictionary.shape[1])
    rows, rest = np.array(dictionary, dtype=float), np.array(x, dtype=float)
    worlds, order = np.arange(len(rows)), np.full((len(rows), length), -1)
    tiny = STOP * np.linalg.norm(rest, axis=1)
    for step in range(length):
        best = _correlations(rows, rest).argmax(axis=1)
        alive = np.linalg.norm(rest, axis=1) > tiny
        alive &= np.linalg.norm(rows[worlds, best], axis=1) > STOP
        order[alive, step] = best[alive]
        _project_away(rows, rest, worlds[alive], best[alive])
    return Pursuit(order, least_squares(dictionary, x, order))


def top_k(dictionary: np.ndarray, x: np.ndarray, *, length: int) -> np.ndarray:
    """Mask of the concepts with the `length` largest |<d_i, x>|: (worlds, n, d) and (worlds, m, d) -> bool (worlds, m,
    n)."""
    _check_length(length, dictionary.shape[1])
    return largest(np.abs(x @ np.swapaxes(dictionary, -1, -2)), length)


def information_gain(dictionary: np.ndarray, x: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Conditional mutual information (nats) of every query with the target, given the queries `asked` (worlds, t).

    From covariances alone, as information pursuit defines it: q_i = <d_i, z>, y = <x, z>, z standard normal, so the
    joint covariance is the Gram matrix of the rows and x. Queries already determined gain nothing (-inf).
    """
    joint = np.concatenate((dictionary, x[:, None, :]), axis=1)
    covariance = joint @ np.swapaxes(joint, 1, 2)
    known = np.take_along_axis(covariance, asked[:, :, None], axis=1)
    inner = np.take_along_axis(known, asked[:, None, :], axis=2)
    left = covariance - np.swapaxes(known, 1, 2) @ np.linalg.solve(inner, known)
    query, target = np.diagonal(left, axis1=1, axis2=2)[:, :-1], left[:, -1:, -1]
    shared = query * target - left[:, :-1, -1] ** 2  # the determinant of the pair's conditional covariance
    both, rounding = query * target, np.finfo(float).eps ** 2
    gain = 0.5 * np.log(np.maximum(both, rounding) / np.maximum(shared, rounding * np.maximum(both, rounding)))
    return np.where(query > STOP**2, gain, -np.inf)


def least_squares(dictionary: np.ndarray, x: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Coefficients of x on the rows `order` (worlds, length) names; 0 where it says -1."""
    asked = order >= 0
    rows = np.take_along_axis(dictionary, np.maximum(order, 0)[:, :, None], axis=1) * asked[:, :, None]
    gram = rows @ np.swapaxes(rows, 1, 2) + np.where(asked, 0.0, 1.0)[:, :, None] * np.eye(order.shape[1])
    return np.linalg.solve(gram, rows @ x[:, :, None])[:, :, 0]


def largest(values: np.ndarray, length: int) -> np.ndarray:
    """True at the `length` largest entries along the last axis."""
    best = np.argpartition(values, -length, axis=-1)[..., -length:]
    chosen = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(chosen, best, True, axis=-1)
    return chosen


def _correlations(rows: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """|<P d_i, P x>| / |P d_i|, -1 for exhausted rows; |P x| is the same for all of them."""
    norms = np.linalg.norm(rows, axis=2)
    scores = np.abs(rows @ rest[:, :, None])[:, :, 0]
    return np.where(norms > STOP, scores / np.maximum(norms, STOP), -1.0)


def _project_away(rows: np.ndarray, rest: np.ndarray, worlds: np.ndarray, best: np.ndarray) -> None:
    """Take the direction of row `best` out of every row and of the rest, in place, in these worlds."""
    direction = rows[worlds, best]
    direction = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    rows[worlds] -= (rows[worlds] @ direction[:, :, None]) * direction[:, None, :]
    rows[worlds, best] = 0.0  # exactly, so that rounding cannot select it again
    rest[worlds] -= (rest[worlds] * direction).sum(axis=1, keepdims=True) * direction


def _check_length(length: int, n: int) -> None:
    if not 1 <= length <= n:
        raise CCRError(f"length must be in [1, {n}], got {length}: at most every concept is asked once")


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


#: Draws of z for each Monte Carlo loss, and queries compared with information pursuit.
DRAWS = 1000
COMPARED = 12


def information(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
    """Lead in squared correlation of the best query over the one IP-OMP asked, worst over the steps.

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
