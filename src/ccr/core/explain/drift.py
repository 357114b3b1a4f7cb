"""Drift audit: do refined concepts still see what their names say (Honest evaluation, docs/method.md)?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.concepts import Concepts
from ccr.core.explain.images import ImageActivation, TopCandidates
from ccr.core.explain.terms import plain, plain_fields
from ccr.core.inputs import CHUNK_VALUES
from ccr.core.metrics import Deviation, Fidelity, deviation

#: As in `metrics.retention`: cosines this close are a tie, and a tie is not a loss.
TIE = 1e-6
#: A concept of less fidelity is flagged: its text explains less than half of how its scores vary.
FAITHFUL = math.sqrt(1 / 2)
#: A concept whose images overlap less than this with those of its text is flagged.
OVERLAP = 1 / 3

#: What a flag says.
FLAGS = {
    "fidelity": f"its scores correlate with those of its own text by less than {FAITHFUL:.2f}: the text explains less "
    "than half of how they vary",
    "images": "of the images that show it by its own text or by the model, less than a third show it by both",
}


@dataclass(frozen=True)
class Neighbour:
    """Another concept and the cosine to it."""

    concept: str
    cosine: float


@dataclass(frozen=True)
class ConceptDrift:
    """One concept: does it still see what its text sees?

    `fidelity` is the correlation of its scores with those of its own text, None if nobody knows. With data: how many
    images show it by its own text (`active_before`) and by the model (`active_after`), their `overlap` (by both / by
    either), how many were `gained` and `lost`, and those of largest code among them. `flags` are keys of `FLAGS`.

    Where it lies: `deviation` is how far refinement moved it, `own_cosine` is to its starting place; `retained`: no
    other starting place is nearer. `nearest_before` are the other concepts' starting places nearest to its own,
    `nearest_after` those nearest to where it is now.
    """

    concept: str
    fidelity: float | None
    flags: tuple[str, ...]
    deviation: float
    own_cosine: float
    retained: bool
    nearest_before: tuple[Neighbour, ...]
    nearest_after: tuple[Neighbour, ...]
    active_before: int | None = None
    active_after: int | None = None
    overlap: float | None = None
    gained: int | None = None
    lost: int | None = None
    gained_images: tuple[ImageActivation, ...] = ()
    lost_images: tuple[ImageActivation, ...] = ()

    @property
    def flagged(self) -> bool:
        return bool(self.flags)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


@dataclass(frozen=True)
class Audit:
    """Every concept's drift, flagged ones first, then the least faithful; `n` images were looked at.

    `fidelity` is None if nobody knows it; `retention` is the share of concepts whose nearest starting place is their
    own.
    """

    fidelity: Fidelity | None
    deviation: Deviation
    retention: float
    n: int
    concepts: tuple[ConceptDrift, ...]

    @property
    def flagged(self) -> tuple[ConceptDrift, ...]:
        return tuple(drift for drift in self.concepts if drift.flagged)

    @property
    def footnote(self) -> str:
        """Where concepts lie, in a sentence."""
        return (
            f"Refinement moved concepts by {self.deviation.mean:.3f} on average, {self.deviation.max:.3f} at most; "
            f"{self.retention:.0%} are still nearest to their own starting place."
        )

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """Plain types only, ready for JSON; `top` keeps that many concepts."""
        return {
            "fidelity": None if self.fidelity is None else plain(self.fidelity._asdict()),
            "images": self.n,
            "flagged": len(self.flagged),
            "deviation": {"mean": self.deviation.mean, "max": self.deviation.max},
            "retention": self.retention,
            "concepts": plain(self.concepts[:top]),
        }


class _Places:
    """Where concepts lie, and their neighbours among the others' starting places."""

    def __init__(self, initial: Concepts, refined: Concepts, neighbours: int) -> None:
        start, now = initial.embeddings.astype(np.float64), refined.embeddings.astype(np.float64)
        n = len(start)
        self.names = refined.names
        self.deviation = np.linalg.norm(now - start, axis=1)
        self.own = np.einsum("ij,ij->i", now, start) / np.linalg.norm(now, axis=1) / np.linalg.norm(start, axis=1)
        count = min(max(neighbours, 1), n - 1)
        self.before, self.after = (_nearest(rows, start, count, self.names) for rows in (start, now))
        closest = [neighbours[0].cosine if neighbours else -1.0 for neighbours in self.after]
        self.retained = self.own >= np.array(closest) - TIE

    def of(self, row: int) -> dict[str, Any]:
        """One concept's place, as fields of a `ConceptDrift`."""
        return {
            "concept": self.names[row],
            "deviation": float(self.deviation[row]),
            "own_cosine": float(self.own[row]),
            "retained": bool(self.retained[row]),
            "nearest_before": self.before[row],
            "nearest_after": self.after[row],
        }


class _Activity:
    """Which images show each of n concepts by its own text and by the model."""

    def __init__(self, n: int, images: int) -> None:
        self.n = 0
        self.before, self.after, self.both = np.zeros((3, n), np.int64)
        self._gained, self._lost = TopCandidates(n, images), TopCandidates(n, images)

    def add(self, before: sparse.csr_matrix, after: sparse.csr_matrix) -> None:
        """The next images' codes."""
        old, new = before.toarray(), after.toarray()  # chunks are small
        was, now = old != 0, new != 0
        self.before += was.sum(axis=0)
        self.after += now.sum(axis=0)
        self.both += (was & now).sum(axis=0)
        for best, only, codes in ((self._gained, now & ~was, new), (self._lost, was & ~now, old)):
            rows, columns = np.nonzero(only)
            best.add(columns, rows + self.n, codes[rows, columns])
        self.n += len(old)

    def by_concept(self) -> list[dict[str, Any]]:
        """Of each concept, as fields of a `ConceptDrift`."""
        either = self.before + self.after - self.both
        overlap = np.divide(self.both, either, out=np.ones(len(either)), where=either > 0)
        columns = {
            "active_before": self.before.tolist(),
            "active_after": self.after.tolist(),
            "overlap": overlap.tolist(),
            "gained": (self.after - self.both).tolist(),
            "lost": (self.before - self.both).tolist(),
            "gained_images": self._gained.by_column(),
            "lost_images": self._lost.by_column(),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def audit(
    initial: Concepts,
    refined: Concepts,
    *,
    fidelity: np.ndarray | None = None,
    before: Iterable[sparse.csr_matrix] | None = None,
    after: Iterable[sparse.csr_matrix] | None = None,
    neighbours: int = 5,
    images: int = 5,
) -> Audit:
    """Compare refined concepts with their own texts, and with where they started.

    `fidelity` (n,) is that of each concept. `before` and `after` are the same images' codes by the concepts' own texts
    and by the model, some rows after the other, cut alike; of about the same length, or else every concept seems to
    gain or lose images.
    """
    places, activity = _Places(initial, refined, neighbours), _Activity(len(refined), images)
    if before is not None and after is not None:
        for old, new in zip(before, after, strict=True):
            activity.add(old, new)
    seen = activity.by_concept() if activity.n else [{}] * len(refined)
    faithful = [None] * len(refined) if fidelity is None else [_known(value) for value in fidelity.tolist()]
    drifts = [_drift(places.of(row), faithful[row], seen[row]) for row in range(len(refined))]
    return Audit(
        fidelity=None if fidelity is None else Fidelity.of(fidelity),
        deviation=deviation(refined, initial),
        retention=float(places.retained.mean()),
        n=activity.n,
        concepts=tuple(sorted(drifts, key=_doubtful_first)),
    )


def _drift(place: dict[str, Any], fidelity: float | None, seen: dict[str, Any]) -> ConceptDrift:
    raised = {
        "fidelity": fidelity is not None and fidelity < FAITHFUL,
        "images": bool(seen) and seen["overlap"] < OVERLAP,
    }
    flags = tuple(flag for flag in FLAGS if raised[flag])
    return ConceptDrift(fidelity=fidelity, flags=flags, **place, **seen)


def _doubtful_first(drift: ConceptDrift) -> tuple[Any, ...]:
    missing = [flag not in drift.flags for flag in FLAGS]
    return missing, 1.0 if drift.fidelity is None else drift.fidelity, -drift.deviation, drift.concept


def _known(fidelity: float) -> float | None:
    """None for a concept that scores all images alike."""
    return None if math.isnan(fidelity) else fidelity


def _nearest(rows: np.ndarray, places: np.ndarray, count: int, names: Sequence[str]) -> list[tuple[Neighbour, ...]]:
    """For each row the `count` other places of largest cosine, a few rows at a time."""
    places = places / np.linalg.norm(places, axis=1, keepdims=True)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    nearest: list[tuple[Neighbour, ...]] = []
    size = max(1, CHUNK_VALUES // len(places))
    for start in range(0, len(rows), size):
        cosines = rows[start : start + size] @ places.T
        own = np.arange(len(cosines))
        cosines[own, own + start] = -np.inf
        best = np.sort(np.argpartition(-cosines, count, axis=1)[:, :count], axis=1)
        order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        values = np.take_along_axis(cosines, best, axis=1)
        for columns, near in zip(best, values, strict=True):
            nearest.append(tuple(Neighbour(names[c], float(v)) for c, v in zip(columns, near, strict=True)))
    return nearest
