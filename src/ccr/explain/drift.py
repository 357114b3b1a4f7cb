"""Drift audit: do refined concepts still see what their names say (Honest evaluation, docs/method.md)?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.concepts import Concepts
from ccr.explain.terms import PlainResult, plain
from ccr.explain.views import ImageActivation, TopCandidates
from ccr.inputs import CHUNK_VALUES
from ccr.metrics import Deviation, Fidelity, deviation
from ccr.utils.arrays import LazyModule
from ccr.utils.texts import share_text

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")

#: As in `metrics.retention`: cosines this close are a tie, and a tie is not a loss.
TIE = 1e-6
#: A concept of less fidelity is flagged: its text explains less than half of how its scores vary.
FAITHFUL = math.sqrt(1 / 2)
#: A concept whose images overlap less than this with those of its text is flagged.
OVERLAP = 1 / 3

#: A concept of less transfer hardly recognises classes that it was not told about: 0.5 is chance.
TRANSFERS = 0.6
#: Note of the report: fidelity is not truth.
NOT_TRUTH = (
    "Fidelity is not truth: a concept that is not flagged sees what its text sees, and its text may be wrong about the "
    "images. Whether a claim is true takes knowledge; concepts without it are unverified."
)

#: Note of the report on the reference of fidelity in a model that was fitted with knowledge.
GROUNDED = (
    "With knowledge, fidelity is to where a concept was grounded, between its text and what the classes known to show "
    "it look like; fidelity to the bare text is another number."
)

#: Meaning of each flag, as text.
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
class ConceptDrift(PlainResult):
    """One concept: does it still see what its text sees?

    `fidelity` is the correlation of its scores with those of its own text, None where it was not measured. With data:
    how many images show it by its own text (`active_before`) and by the model (`active_after`), their `overlap` (by
    both / by either), how many were `gained` and `lost`, and those of largest code among them. `flags` are keys of
    `FLAGS`.

    Where it lies: `deviation` is how far refinement moved it, `own_cosine` is to its starting place; `retained`: no
    other starting place is nearer. `nearest_before` are the other concepts' starting places nearest to its own,
    `nearest_after` those nearest to where it is now.

    `transfer` is the AUC of its scores on classes that it was not told about; None without knowledge of it.
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
    transfer: float | None = None

    @property
    def flagged(self) -> bool:
        return bool(self.flags)


@dataclass(frozen=True)
class Audit:
    """Every concept's drift, flagged ones first, then the least faithful; `n` images were looked at.

    `fidelity` is None where it was not measured; `retention` is the share of concepts whose nearest starting place is
    their own.
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
    def unverified(self) -> int:
        """How many concepts have no transfer: no knowledge, or too little, says of which classes they are true."""
        return sum(drift.transfer is None for drift in self.concepts)

    @property
    def transfer(self) -> float | None:
        """The mean transfer of concepts of which it is known; None where it is of none."""
        known = [drift.transfer for drift in self.concepts if drift.transfer is not None]
        return float(np.mean(known)) if known else None

    @property
    def not_transferring(self) -> tuple[ConceptDrift, ...]:
        """Concepts of transfer below `TRANSFERS`, the least first."""
        low = [drift for drift in self.concepts if drift.transfer is not None and drift.transfer < TRANSFERS]
        return tuple(sorted(low, key=lambda drift: (drift.transfer, drift.concept)))

    @property
    def footnote(self) -> str:
        """Sentence on how far refinement moved the concepts."""
        return (
            f"Refinement moved concepts by {self.deviation.mean:.3f} on average, {self.deviation.max:.3f} at most, "
            f"where 0 is not at all and 2 to the opposite; {share_text(self.retention)} are still nearest to their "
            "own starting place."
        )

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """Plain types only, ready for JSON; `top` keeps that many concepts."""
        return {
            "fidelity": None if self.fidelity is None else plain(self.fidelity._asdict()),
            "images": self.n,
            "flagged": len(self.flagged),
            "unverified": self.unverified,
            "deviation": {"mean": self.deviation.mean, "max": self.deviation.max},
            "retention": self.retention,
            "transfer": self.transfer,
            "not_transferring": [drift.concept for drift in self.not_transferring],
            "concepts": plain(self.concepts[:top]),
        }


def _places(initial: Concepts, refined: Concepts, neighbours: int) -> list[dict[str, Any]]:
    """Distance of each concept from its start, and its neighbours among the others' starts, as fields of a
    `ConceptDrift`."""
    start, now = initial.embeddings.astype(np.float64), refined.embeddings.astype(np.float64)
    cosines = np.einsum("ij,ij->i", now, start) / np.linalg.norm(now, axis=1) / np.linalg.norm(start, axis=1)
    count = min(max(neighbours, 1), len(start) - 1)
    before, after = (_nearest(rows, start, count, refined.names) for rows in (start, now))
    closest = np.array([near[0].cosine if near else -1.0 for near in after])
    columns = {
        "concept": refined.names,
        "deviation": np.linalg.norm(now - start, axis=1).tolist(),
        "own_cosine": cosines.tolist(),
        "retained": (cosines >= closest - TIE).tolist(),
        "nearest_before": before,
        "nearest_after": after,
    }
    return _records(columns)


def _activity(
    before: Iterable[sparse.csr_matrix], after: Iterable[sparse.csr_matrix], n: int, images: int
) -> tuple[int, list[dict[str, Any]]]:
    """The number of images, and for each of n concepts those that show it by its own text and by the model, as fields
    of a `ConceptDrift`."""
    was_active, is_active, both = np.zeros((3, n), np.int64)
    gained, lost, done = TopCandidates(n, images), TopCandidates(n, images), 0
    for codes_before, codes_after in zip(before, after, strict=True):
        old, new = codes_before.toarray(), codes_after.toarray()  # chunks are small
        was, now = old != 0, new != 0
        was_active += was.sum(axis=0)
        is_active += now.sum(axis=0)
        both += (was & now).sum(axis=0)
        for best, only, codes in ((gained, now & ~was, new), (lost, was & ~now, old)):
            rows, columns = np.nonzero(only)
            best.add(columns, rows + done, codes[rows, columns])
        done += len(old)
    either = was_active + is_active - both
    facts = {
        "active_before": was_active.tolist(),
        "active_after": is_active.tolist(),
        "overlap": np.divide(both, either, out=np.ones(n), where=either > 0).tolist(),
        "gained": (is_active - both).tolist(),
        "lost": (was_active - both).tolist(),
        "gained_images": gained.by_column(),
        "lost_images": lost.by_column(),
    }
    return done, _records(facts)


def _records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def audit(
    initial: Concepts,
    refined: Concepts,
    *,
    fidelity: np.ndarray | None = None,
    before: Iterable[sparse.csr_matrix] | None = None,
    after: Iterable[sparse.csr_matrix] | None = None,
    transfer: Mapping[str, float] | None = None,
    neighbours: int = 5,
    images: int = 5,
) -> Audit:
    """Compare refined concepts with their own texts, and with where they started.

    `fidelity` (n,) is that of each concept. `before` and `after` are the same images' codes by the concepts' own texts
    and by the model, some rows after the other, cut alike; of about the same length, or else every concept seems to
    gain or lose images. `transfer` is that of concepts by name, NaN where it could not be measured.
    """
    places, n = _places(initial, refined, neighbours), 0
    seen: list[dict[str, Any]] = [{}] * len(refined)
    if before is not None and after is not None:
        n, activity = _activity(before, after, len(refined), images)
        seen = activity if n else seen
    faithful = [None] * len(refined) if fidelity is None else [_known(value) for value in fidelity.tolist()]
    transfers = [_known((transfer or {}).get(name, math.nan)) for name in refined.names]
    drifts = map(_drift, places, faithful, seen, transfers)
    return Audit(
        fidelity=None if fidelity is None else Fidelity.of(fidelity),
        deviation=deviation(refined, initial),
        retention=float(np.mean([place["retained"] for place in places])),
        n=n,
        concepts=tuple(sorted(drifts, key=_doubtful_first)),
    )


def _drift(place: dict[str, Any], fidelity: float | None, seen: dict[str, Any], transfer: float | None) -> ConceptDrift:
    raised = {
        "fidelity": fidelity is not None and fidelity < FAITHFUL,
        "images": bool(seen) and seen["overlap"] < OVERLAP,
    }
    flags = tuple(flag for flag in FLAGS if raised[flag])
    return ConceptDrift(fidelity=fidelity, flags=flags, transfer=transfer, **place, **seen)


def _doubtful_first(drift: ConceptDrift) -> tuple[Any, ...]:
    missing = [flag not in drift.flags for flag in FLAGS]
    return missing, 1.0 if drift.fidelity is None else drift.fidelity, -drift.deviation, drift.concept


def _known(fidelity: float) -> float | None:
    """None for a concept that scores all images alike."""
    return None if math.isnan(fidelity) else fidelity


def _nearest(rows: np.ndarray, places: np.ndarray, count: int, names: Sequence[str]) -> list[tuple[Neighbour, ...]]:
    """The `count` other places of largest cosine of each row, a few rows at a time."""
    places = places / np.linalg.norm(places, axis=1, keepdims=True)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    nearest: list[tuple[Neighbour, ...]] = []
    size = max(1, CHUNK_VALUES // len(places))
    for start in range(0, len(rows), size):
        cosines = rows[start : start + size] @ places.T
        lines = np.arange(len(cosines))
        cosines[lines, lines + start] = -np.inf
        best = np.sort(np.argpartition(-cosines, count, axis=1)[:, :count], axis=1)
        order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        values = np.take_along_axis(cosines, best, axis=1)
        for columns, near in zip(best, values, strict=True):
            nearest.append(tuple(Neighbour(names[c], float(v)) for c, v in zip(columns, near, strict=True)))
    return nearest
