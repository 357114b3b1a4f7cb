"""Drift audit: are refined concepts still what their names say (Honest evaluation, docs/method.md)?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.concepts import Concepts
from ccr.core.explain.images import TopCandidates, candidates
from ccr.core.explain.terms import plain, plain_fields
from ccr.core.inputs import CHUNK_VALUES
from ccr.core.metrics import Deviation, deviation

#: As in `metrics.retention`: cosines this close are a tie, and a tie is not a loss.
TIE = 1e-6
#: A concept whose images overlap less than this before and after is flagged. On CIFAR-10 at the default radius half
#: of the concepts overlap by less than 0.5, a tenth by less than 0.3, although every one is retained.
OVERLAP = 1 / 3
#: Neighbours whose cosines differ by less than this are equally near.
NEAR = 0.02

#: What a flag says.
FLAGS = {
    "lost": "another concept's starting place is nearer to it than its own",
    "images": "of the images that show it before or after refinement, less than a third show it both times",
    "neighbour": "the concept nearest to it is clearly another one than before",
}


@dataclass(frozen=True)
class Neighbour:
    """Another concept and the cosine to it."""

    concept: str
    cosine: float


@dataclass(frozen=True)
class ActivationChange:
    """An image, by its row in the data, and its code for a concept before and after refinement."""

    row: int
    before: float
    after: float


@dataclass(frozen=True)
class ConceptDrift:
    """One concept: how far it moved (`deviation`), and whether it is still itself.

    `own_cosine` is to its own starting place; `retained`: no other starting place is nearer. `nearest_before` are
    the other concepts' starting places nearest to its own, `nearest_after` those nearest to where it is now.
    With data: how many images show it before and after, their `overlap` (shown both times / either time), and
    the `images` whose code changed most. `flags` are keys of `FLAGS`.
    """

    concept: str
    deviation: float
    own_cosine: float
    retained: bool
    nearest_before: tuple[Neighbour, ...]
    nearest_after: tuple[Neighbour, ...]
    flags: tuple[str, ...]
    active_before: int | None = None
    active_after: int | None = None
    overlap: float | None = None
    images: tuple[ActivationChange, ...] = ()

    @property
    def flagged(self) -> bool:
        return bool(self.flags)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


@dataclass(frozen=True)
class Audit:
    """Every concept's drift, flagged ones first; `n` images were looked at."""

    deviation: Deviation
    retention: float
    n: int
    concepts: tuple[ConceptDrift, ...]

    @property
    def flagged(self) -> tuple[ConceptDrift, ...]:
        return tuple(drift for drift in self.concepts if drift.flagged)

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """Plain types only, ready for JSON; `top` keeps that many concepts."""
        return {
            "deviation": {"mean": self.deviation.mean, "max": self.deviation.max},
            "retention": self.retention,
            "images": self.n,
            "flagged": len(self.flagged),
            "concepts": plain(self.concepts[:top]),
        }


class _Places:
    """Neighbours of every concept among the others' starting places."""

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

    def moved_neighbour(self, row: int) -> bool:
        before, after = self.before[row], self.after[row]
        if not before:
            return False
        # Where concepts are spread, many are about equally near: an exchange among those means nothing.
        level = {neighbour.concept for neighbour in before if neighbour.cosine >= before[0].cosine - NEAR}
        return after[0].concept not in level


@dataclass(frozen=True, eq=False)
class _Activity:
    n: int
    before: np.ndarray
    after: np.ndarray
    both: np.ndarray
    changes: list[np.ndarray]


def audit(
    initial: Concepts,
    refined: Concepts,
    *,
    before: Iterable[sparse.csr_matrix] | None = None,
    after: Iterable[sparse.csr_matrix] | None = None,
    neighbours: int = 5,
    images: int = 5,
) -> Audit:
    """Compare refined concepts with where they started.

    `before` and `after` are the same images' codes over the two dictionaries, some rows after the other, cut alike;
    of about the same length, or else every concept seems to gain or lose images.
    """
    places = _Places(initial, refined, neighbours)
    activity = None if before is None or after is None else _activity(before, after, len(refined), images)
    drifts = [_drift(row, places, activity) for row in range(len(refined))]
    severity = list(FLAGS)
    drifts.sort(key=lambda d: ([flag not in d.flags for flag in severity], -d.deviation, d.concept))
    return Audit(
        deviation=deviation(refined, initial),
        retention=float(places.retained.mean()),
        n=0 if activity is None else activity.n,
        concepts=tuple(drifts),
    )


def _drift(row: int, places: _Places, activity: _Activity | None) -> ConceptDrift:
    flags = [] if places.retained[row] else ["lost"]
    seen: dict[str, Any] = {}
    if activity is not None:
        was, now, both = (int(counts[row]) for counts in (activity.before, activity.after, activity.both))
        overlap = both / (was + now - both) if was or now else 1.0
        changes = tuple(
            ActivationChange(int(item["row"]), float(item["before"]), float(item["after"]))
            for item in activity.changes[row]
        )
        seen = {"active_before": was, "active_after": now, "overlap": overlap, "images": changes}
        flags += ["images"] if overlap < OVERLAP else []
    flags += ["neighbour"] if places.moved_neighbour(row) else []
    return ConceptDrift(
        concept=places.names[row],
        deviation=float(places.deviation[row]),
        own_cosine=float(places.own[row]),
        retained=bool(places.retained[row]),
        nearest_before=places.before[row],
        nearest_after=places.after[row],
        flags=tuple(flags),
        **seen,
    )


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


def _activity(
    before: Iterable[sparse.csr_matrix], after: Iterable[sparse.csr_matrix], n: int, images: int
) -> _Activity:
    counts = np.zeros((3, n), np.int64)
    best, done = TopCandidates(n, images), 0
    for old, new in zip(before, after, strict=True):
        was, now = old.toarray(), new.toarray()  # chunks are small
        counts += [(was != 0).sum(axis=0), (now != 0).sum(axis=0), ((was != 0) & (now != 0)).sum(axis=0)]
        rows, columns = np.nonzero(was != now)
        b, a = was[rows, columns], now[rows, columns]
        best.add(candidates(columns, rows + done, np.abs(a.astype(np.float64) - b), b, a))
        done += len(was)
    return _Activity(done, counts[0], counts[1], counts[2], best.by_column())
