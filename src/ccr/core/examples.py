"""A concept from photos that show it and photos that do not: a discriminant direction, and how far it can be trusted.

In the images' metric (The images' metric, docs/method.md) the direction between the means of the two kinds is Fisher's
discriminant. It is drawn toward the concept's text, where there is one, the more the fewer the photos: the grounding of
a concept by answers about photos alone (`ccr.core.grounding`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ccr.core.geometry import unit_rows
from ccr.core.grounding import Groups, contrasts, evidence, ground
from ccr.core.knowledge import NO, YES
from ccr.errors import CCRError

#: Of the images' covariance.
SHRINKAGE = 0.5


class Learned(NamedTuple):
    """`direction` (d,), a unit vector whose product with an image's unit embedding, as it is, is its score; the
    `threshold` of that score between the two kinds; `error`, the share of photos on the wrong side when each is left
    out of learning in turn; and that for each photo, those that show it first."""

    direction: np.ndarray
    threshold: float
    error: float
    wrong: np.ndarray


def learn_direction(
    shows: Any,
    lacks: Any,
    *,
    text: np.ndarray | None = None,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
) -> Learned:
    """The direction that tells photos that show something from photos that do not.

    Parameters
    ----------
    shows, lacks : (p, d) and (q, d), embeddings of at least two photos each.
    text : (d,), the concept's text as images meet it: a direction from the mean of texts. None: photos alone.
    mean, covariance : (d,) and (d, d), of many images of the same kind as the photos. None: photos are not measured
        from a mean, and spread the same in all directions.
    """
    rows, p = _checked(shows, lacks)
    d = rows.shape[1]
    _check_shape("text", text, (d,))
    _check_shape("mean", mean, (d,))
    _check_shape("covariance", covariance, (d, d))
    origin = np.zeros(d) if mean is None else np.asarray(mean, np.float64)
    rows = rows - origin
    whiten, color = _metric(covariance, d)
    own = None if text is None else unit_rows((np.asarray(text, np.float64) @ color)[None])[0]
    rows = rows @ whiten
    kinds = np.arange(len(rows)) < p
    wrong = np.array([_is_wrong(rows, kinds, own, at) for at in range(len(rows))])
    direction, threshold = _direction(rows, kinds, own)
    back = direction @ whiten
    size = np.linalg.norm(back)
    unit = back / size
    return Learned(unit, float(threshold / size + unit @ origin), float(wrong.mean()), wrong)


def _checked(shows: Any, lacks: Any) -> tuple[np.ndarray, int]:
    kinds = [np.atleast_2d(np.asarray(rows, dtype=np.float64)) for rows in (shows, lacks)]
    for name, rows in zip(("shows", "lacks"), kinds, strict=True):
        if rows.ndim != 2 or len(rows) < 2:
            raise CCRError(f"a concept is learned from at least 2 photos in {name}=, got {len(rows)}: add some")
        if not np.isfinite(rows).all() or not rows.any(axis=1).all():
            raise CCRError(f"embeddings of {name} must be finite and not zero: embed those photos again")
    if kinds[0].shape[1] != kinds[1].shape[1]:
        raise CCRError(f"photos must have the same dimensions, got {kinds[0].shape[1]} and {kinds[1].shape[1]}")
    return unit_rows(np.concatenate(kinds)), len(kinds[0])


def _check_shape(name: str, given: np.ndarray | None, shape: tuple[int, ...]) -> None:
    """An error where something that goes with photos of d dimensions has others, or is not finite."""
    if given is None:
        return
    values = np.asarray(given)
    if values.shape != shape:
        raise CCRError(f"{name} must have the photos' dimensions, shape {shape}, got {values.shape}")
    if not np.isfinite(np.asarray(values, np.float64)).all():
        raise CCRError(f"{name} must be finite, got NaN or infinity: measure it again")


def _metric(covariance: np.ndarray | None, d: int) -> tuple[np.ndarray, np.ndarray]:
    """S^(-1/2) and S^(1/2) of the shrunk covariance; both symmetric."""
    if covariance is None:
        return np.eye(d), np.eye(d)
    values, vectors = np.linalg.eigh(covariance)
    values = (1.0 - SHRINKAGE) * np.maximum(values, 0.0) + SHRINKAGE * max(values.mean(), 1e-12)
    whiten, color = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
    return whiten, color


def _direction(rows: np.ndarray, kinds: np.ndarray, text: np.ndarray | None) -> tuple[np.ndarray, float]:
    """The unit direction in the metric, and the threshold halfway between the two means on it."""
    answers = np.where(kinds, YES, NO)[:, None]
    found = evidence(answers, Groups(rows, np.ones(len(rows), np.int64)))
    seen = contrasts(found)
    if not seen.known[0]:
        raise CCRError("the photos that show it and those that do not have the same mean: give other photos")
    direction = seen.direction[0] if text is None else ground(text[None], found)[0]
    return direction, float(direction @ (seen.shown[0] + seen.lacking[0]) / 2.0)


def _is_wrong(rows: np.ndarray, kinds: np.ndarray, text: np.ndarray | None, left_out: int) -> bool:
    """Whether a photo falls on the wrong side of what the other photos teach."""
    others = np.arange(len(rows)) != left_out
    direction, threshold = _direction(rows[others], kinds[others], text)
    return bool((rows[left_out] @ direction > threshold) != kinds[left_out])
