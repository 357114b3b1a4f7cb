"""Information pursuit (docs/method.md): what a dictionary asks (IP-OMP, top-k, information pursuit) and the
coefficients it believes in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccr.errors import CCRError

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
    """Which concepts have the `length` largest |<d_i, x>|: (worlds, n, d) and (worlds, m, d) -> bool (worlds, m, n)."""
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
