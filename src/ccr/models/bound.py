"""What holds concepts near their texts: a ball in the encoder's space, or a bound on their fidelity in the images'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ccr.core.concepts import Concepts
from ccr.core.geometry import check_radius, fidelity_radius
from ccr.core.space import Center, Dispersion, Space, Symmetric, check_center, dispersed
from ccr.errors import CCRError

#: Where neither a fidelity nor a radius is given (measured: docs/defaults.md).
DEFAULT_FIDELITY = 0.875
#: Of the ball in the encoder's space, where one is wanted: the paper's.
PAPER_RADIUS = 0.1
#: The part of the chord that one automatic step takes in the images' metric, where concepts have farther to go.
METRIC_STRIDE = 0.1
#: Of symmetric dispersion: as accurate as full strength, and concepts stay closer to their texts
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


def bound_in_words(settings: Mapping[str, Any]) -> str:
    """Such as "radius 0.1" or "fidelity 0.9"."""
    radius = settings.get("radius")
    fidelity = chosen_fidelity(radius, settings.get("fidelity"))
    return f"radius {radius:g}" if fidelity is None else f"fidelity {fidelity:g}"


def chosen_dispersion(dispersion: Dispersion | Literal["auto"] | None) -> Dispersion | None:
    """As given, or for "auto" the default."""
    return Symmetric(DEFAULT_STRENGTH) if dispersion == "auto" else dispersion


@dataclass(frozen=True, eq=False)
class Bound:
    """What concepts may become: unit rows of `space` within a chord of `radius` of `initial`; `start` (n, d) is where
    they are before refinement, None: at `initial`; `stride` the part of the chord that a step takes, None: automatic;
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
