"""Constraints of a fit: how far concepts may move, and knowledge, which grounds concepts and forbids weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ccr.concepts import Concepts
from ccr.errors import CCRError, CCRWarning
from ccr.geometry import check_radius, fidelity_radius
from ccr.inputs import Embeddings
from ccr.knowledge import NO, YES, Knowledge
from ccr.knowledge.grounding import UNKNOWN_SHARE, Evidence, Groups, evidence, ground, transfer
from ccr.labels import labels_of, number_labels, store_part
from ccr.refine.data import Labelled, Permitted, class_groups, split
from ccr.space import Center, Dispersion, Space, Symmetric, check_center, dispersed
from ccr.utils.parameters import is_number

# Bound that keeps concepts near their texts: a ball in the encoder's space, or a least fidelity in the images' metric.

#: Fidelity if neither a fidelity nor a radius is given (measured: docs/defaults.md).
DEFAULT_FIDELITY = 0.875
#: The paper's radius of the ball in the encoder's space.
PAPER_RADIUS = 0.1
#: The part of the chord that one automatic step takes in the images' metric, where concepts have farther to go.
METRIC_STRIDE = 0.1
#: Strength of symmetric dispersion: as accurate as full strength, and concepts stay closer to their texts
#: (measured: benchmarks/defaults.py).
DEFAULT_STRENGTH = 0.9


def chosen_fidelity(radius: float | None, fidelity: float | None) -> float | None:
    """The bound on fidelity: as given, None where a radius is, or the default."""
    if radius is not None and fidelity is not None:
        raise CCRError(
            f"give a fidelity or a radius, got fidelity={fidelity} and radius={radius}: a fidelity bounds what a "
            "concept sees, in the images' metric; a radius how far it moves, in the encoder's space"
        )
    return DEFAULT_FIDELITY if radius is None and fidelity is None else fidelity


def chosen_radius(radius: float | None, fidelity: float | None) -> float:
    """The chord within which concepts stay of the centres of their balls, in the space of `Bound`."""
    chosen_fidelity(radius, fidelity)  # refuses both
    if radius is None:
        return fidelity_radius(DEFAULT_FIDELITY if fidelity is None else fidelity)
    check_radius(radius)
    return radius


def unrefined(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the baseline: the same, and concepts stay where they start."""
    return {**settings, **({"fidelity": 1.0} if settings.get("radius") is None else {"radius": 0.0})}


def bound_text(settings: Mapping[str, Any]) -> str:
    """The bound on concepts as text, such as "radius 0.1" or "fidelity 0.9"."""
    radius = settings.get("radius")
    fidelity = chosen_fidelity(radius, settings.get("fidelity"))
    return f"radius {radius:g}" if fidelity is None else f"fidelity {fidelity:g}"


def chosen_dispersion(dispersion: Dispersion | Literal["auto"] | None) -> Dispersion | None:
    """The dispersion as given; for "auto" the default."""
    return Symmetric(DEFAULT_STRENGTH) if dispersion == "auto" else dispersion


@dataclass(frozen=True, eq=False)
class Bound:
    """Bound on concepts: unit rows of `space` within a chord of `radius` of `initial`. `start` (n, d) are the concepts
    before refinement, None: `initial`; `stride` is the part of the chord that a step takes, None: automatic;
    `dispersion` is how the start was spread around `initial`.
    """

    space: Space
    initial: Concepts
    radius: float
    start: np.ndarray | None
    stride: float | None
    dispersion: Dispersion | None = None

    @classmethod
    def fit(
        cls,
        texts: Concepts,
        X: Any,
        *,
        radius: float | None,
        fidelity: float | None,
        center: Center,
        dispersion: Dispersion | Literal["auto"] | None,
        shrinkage: float,
    ) -> Bound:
        """The bound on these concepts, for images X (m, d): a ball in the encoder's space around concepts that are
        dispersed, or, if a fidelity is given, a cap in the images' metric around the texts themselves, inside which
        concepts start as dispersed as their fidelity allows."""
        check_center(center)
        chord, spread = chosen_radius(radius, fidelity), chosen_dispersion(dispersion)
        if chosen_fidelity(radius, fidelity) is None:
            space = Space.fit(texts.embeddings, X, center=center, dispersion=spread)
            return cls(space, texts.with_embeddings(space.texts(texts.embeddings)), chord, None, None)
        if center != "data":
            raise CCRError(
                f"a fidelity is measured from the means of images and concepts, got center={center!r}: leave it as it "
                "is, or give a radius, such as the paper's 0.1"
            )
        space = Space.fit_metric(texts.embeddings, X, shrinkage=shrinkage)
        initial = texts.with_embeddings(space.texts(texts.embeddings))
        start = None if spread is None else dispersed(initial.embeddings, spread)
        return cls(space, initial, chord, start, METRIC_STRIDE, spread)

    def at(self, centres: np.ndarray, rows: np.ndarray) -> Bound:
        """The same bound around other `centres` (n, d), of these rows alone."""
        initial = self.initial.with_embeddings(centres).subset(rows)
        start = (
            None if self.start is None or self.dispersion is None else dispersed(initial.embeddings, self.dispersion)
        )
        return replace(self, initial=initial, start=start)

    def rate(self, dictionary_rate: float | None) -> float | None:
        """The rate of the dictionary's steps: as given, or a part of the chord; None: automatic."""
        return dictionary_rate if dictionary_rate is not None or self.stride is None else self.stride * self.radius


Claims = Literal["open", "confirmed"]


@dataclass(frozen=True, eq=False)
class GroundedBound:
    """A bound whose concepts are grounded, the weights that are permitted, and the `rows` of the list that may have one
    for some class: `bound`, `permitted`, and the `texts` and `evidence` by which concepts were grounded are of these
    alone. `transfer` is that of the whole list; `groups` are the means of the classes' training images, with which
    concepts are grounded later. Without knowledge all rows stay as they are, and the other parts are None."""

    bound: Bound
    rows: np.ndarray
    permitted: Permitted | None = None
    transfer: np.ndarray | None = None
    groups: Groups | None = None
    texts: np.ndarray | None = None
    evidence: Evidence | None = None

    @classmethod
    def fit(
        cls,
        knowledge: Knowledge | None,
        bound: Bound,
        train: Labelled,
        X: Any,
        classes: Sequence[Any],
        *,
        claims: Claims,
        min_transfer: float | None,
    ) -> GroundedBound:
        """Ground concepts, forbid weights and measure transfer by this knowledge, on the training rows of X alone."""
        names, texts = bound.initial.names, bound.initial.embeddings
        if knowledge is None:
            return cls(bound, np.arange(len(names)))
        _check_names(knowledge, classes, names)
        answers = knowledge.aligned(classes, names)
        groups = class_groups(train, len(classes))
        photos = _photo_evidence(knowledge, train, X, names)
        known = evidence(answers, groups, unknown=UNKNOWN_SHARE)
        transfers = transfer(texts, answers, groups, photos)
        permitted = permitted_weights(answers, claims)
        if min_transfer is not None:
            permitted.allowed[transfers < min_transfer] = False
        rows = np.flatnonzero(permitted.allowed.any(axis=1))
        if not len(rows):
            raise CCRError(
                f"knowledge permits no class any of the {len(names)} concepts under claims={claims!r}: answer yes "
                'for some, or use claims="open"'
            )
        _warn_of_silent_classes(permitted.allowed, classes, claims)
        known = known.plus(photos)
        grounded = bound.at(ground(texts, known), rows)
        return cls(grounded, rows, permitted.of(rows), transfers, groups, texts[rows], known.of(rows))

    def shifts(self, concepts: np.ndarray, images: np.ndarray, shows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Shifts (k, d) of these concepts (k,) from where they were grounded if one answer, whether an
        image (k, d) of a class (k,) `shows` it (k,), were about the mean of the other images of its class."""
        assert self.groups is not None
        assert self.texts is not None
        assert self.evidence is not None
        answered, texts, counts = self.evidence.of(concepts), self.texts[concepts], self.groups.counts[classes][:, None]
        others = (counts * self.groups.means[classes] - images) / np.maximum(counts - 1, 1)
        change = np.where(counts > 1, others - images, 0.0)  # no other images, no mean of theirs
        return ground(texts, answered.replaced(change, shows)) - ground(texts, answered)


def measure_transfer(knowledge: Knowledge, concepts: Concepts, X: Any, y: Any = None) -> dict[str, float]:
    """The transfer of each concept by name, on training images X (m, d) and labels y (m,), or a store, in the images'
    metric; NaN where it cannot be measured."""
    labels = number_labels(labels_of(X, y), len(Embeddings(X)))
    space = Space.fit_metric(concepts.embeddings, X, shrinkage=0.5)
    train, classes = split(space.images(X), labels.y, None, None)[0], labels.classes.tolist()
    photos = _photo_evidence(knowledge, train, X, concepts.names)
    answers, groups = knowledge.aligned(classes, concepts.names), class_groups(train, len(classes))
    found = transfer(space.own_texts(concepts.embeddings), answers, groups, photos)
    return dict(zip(concepts.names, found.tolist(), strict=True))


def informed_facts(knowledge: Knowledge | None, known: GroundedBound, names: Sequence[str]) -> dict[str, Any]:
    """Fields of a `Provenance` about the knowledge that the model was fitted with; none without knowledge."""
    if known.transfer is None:
        return {}
    by_name = dict(zip(names, known.transfer.tolist(), strict=True))
    return {"knowledge": knowledge, "transfer": by_name, "groups": known.groups}


def permitted_weights(answers: np.ndarray, claims: Claims) -> Permitted:
    """The weights (n, C) that answers (C, n) permit: all that are not "no", or those that are "yes"."""
    if claims not in ("open", "confirmed"):
        raise CCRError(
            f'claims must be "open" (a class may use any concept that is not "no" for it) or "confirmed" (only those '
            f'that are "yes"), got {claims!r}'
        )
    confirmed = np.ascontiguousarray(answers.T == YES)
    return Permitted(confirmed.copy() if claims == "confirmed" else np.ascontiguousarray(answers.T != NO), confirmed)


def check_claims(knowledge: Any, claims: Any, min_transfer: Any) -> None:
    """Refuse settings of knowledge that do not go together."""
    if knowledge is not None and not isinstance(knowledge, Knowledge):
        raise CCRError(f"knowledge must be a Knowledge, got {type(knowledge).__name__}: read a file by Knowledge.read")
    if min_transfer is not None and not (is_number(min_transfer) and 0 <= min_transfer <= 1):
        raise CCRError(f"min_transfer must be in [0, 1] or None, got {min_transfer!r}: 0.5 is chance; try 0.6")
    if knowledge is None and (claims != "open" or min_transfer is not None):
        given = f"claims={claims!r}" if claims != "open" else f"min_transfer={min_transfer!r}"
        raise CCRError(f"{given} is about what knowledge says, and there is none: give knowledge=")


def _check_names(knowledge: Knowledge, classes: Sequence[Any], concepts: Sequence[str]) -> None:
    """An error where the table is about other things; a warning for names that are probably misspelt."""
    unmatched = knowledge.unmatched(classes, concepts)
    for what, own, theirs, extra in (
        ("class", knowledge.classes, [str(name) for name in classes], unmatched.extra_classes),
        ("concept", knowledge.concepts, list(concepts), unmatched.extra_concepts),
    ):
        if own and len(extra) == len(own):
            hint = f" (did you mean {unmatched.meant[own[0]]!r}?)" if own[0] in unmatched.meant else ""
            raise CCRError(
                f"the knowledge shares no {what} with the data: it has {own[0]!r}{hint}, the data {theirs[0]!r}; names "
                "must be spelled alike"
            )
    if unmatched.meant:
        shown = ", ".join(f"{name!r} for {known!r}" for name, known in list(unmatched.meant.items())[:3])
        more = f" and {len(unmatched.meant) - 3} more" if len(unmatched.meant) > 3 else ""
        warnings.warn(
            f"names of the knowledge are not those of the data: {shown}{more}; their answers are not used: "
            "`ccr knowledge check` lists all",
            CCRWarning,
            stacklevel=4,
        )


def _warn_of_silent_classes(allowed: np.ndarray, classes: Sequence[Any], claims: str) -> None:
    silent = [str(classes[number]) for number in np.flatnonzero(~allowed.any(axis=0)).tolist()]
    if silent:
        shown = ", ".join(silent[:5]) + (", ..." if len(silent) > 5 else "")
        warnings.warn(
            f"no concept is permitted for some classes, which will be predicted by their bias alone: {len(silent)} "
            f"under claims={claims!r}: {shown}; confirm a concept for each, or add one",
            CCRWarning,
            stacklevel=4,
        )


def _photo_evidence(knowledge: Knowledge, train: Labelled, X: Any, names: Sequence[str]) -> Evidence | None:
    """Evidence of answers about training photos, which are identified by the store's paths, else by row number."""
    if not knowledge.photos:
        return None
    paths = store_part(X, "paths")
    known = [str(row) for row in range(len(train.X))] if paths is None else [str(path) for path in paths]
    numbers_of = {name: number for number, name in enumerate(knowledge.photos)}
    rows, numbers = [], []
    for row in train.rows.tolist():
        if known[row] in numbers_of:
            rows.append(row)
            numbers.append(numbers_of[known[row]])
    if not rows:
        return None
    answers = knowledge.aligned_photos(names)[numbers]
    means = train.X.take(np.array(rows, np.int64)).numpy().astype(np.float64)
    return evidence(answers, Groups(means, np.ones(len(rows), np.int64)))
