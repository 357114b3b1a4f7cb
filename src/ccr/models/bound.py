"""What holds concepts near their texts: a ball in the encoder's space, or a bound on their fidelity in the images'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ccr.core.concepts import Concepts
from ccr.core.geometry import check_radius, fidelity_radius
from ccr.core.space import Center, Dispersion, Space, Symmetric
from ccr.errors import CCRError

#: Of the paper; where neither a radius nor a fidelity is given.
DEFAULT_RADIUS = 0.1
#: The part of the chord that one automatic step takes in the images' metric, where concepts have farther to go.
METRIC_STRIDE = 0.05
#: Of symmetric dispersion: as accurate as full strength, and concepts stay closer to their texts
#: (measured: benchmarks/defaults.py).
DEFAULT_STRENGTH = 0.9


def chosen_radius(radius: float | None, fidelity: float | None) -> float:
    """The chord within which concepts stay of where they started, in the space that `chosen_space` gives."""
    if radius is not None and fidelity is not None:
        raise CCRError(
            f"give a fidelity or a radius, got fidelity={fidelity} and radius={radius}: a fidelity bounds what a "
            "concept sees, in the images' metric; a radius how far it moves, in the encoder's space"
        )
    if fidelity is not None:
        return fidelity_radius(fidelity)
    chosen = DEFAULT_RADIUS if radius is None else radius
    check_radius(chosen)
    return chosen


def unrefined(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the baseline: the same, and concepts stay where they start."""
    return {**settings, **({"radius": 0.0} if settings.get("fidelity") is None else {"fidelity": 1.0})}


def bound_in_words(settings: Mapping[str, Any]) -> str:
    """Such as "radius 0.1" or "fidelity 0.9"."""
    radius, fidelity = settings.get("radius"), settings.get("fidelity")
    return f"radius {chosen_radius(radius, fidelity):g}" if fidelity is None else f"fidelity {fidelity:g}"


def chosen_rate(dictionary_rate: float | None, radius: float, fidelity: float | None) -> float | None:
    """The rate of the dictionary's steps: as given, or in the images' metric a part of the chord; None: automatic."""
    return METRIC_STRIDE * radius if dictionary_rate is None and fidelity is not None else dictionary_rate


def chosen_space(
    texts: Concepts,
    X: Any,
    *,
    fidelity: float | None,
    center: Center,
    dispersion: Dispersion | Literal["auto"] | None,
    shrinkage: float,
) -> Space:
    """The space that is fitted on concepts and images X (m, d): the images' metric if a fidelity is given."""
    if fidelity is None:
        spread = Symmetric(DEFAULT_STRENGTH) if dispersion == "auto" else dispersion
        return Space.fit(texts.embeddings, X, center=center, dispersion=spread)
    if center != "data" or dispersion not in ("auto", None):
        raise CCRError(
            "a fidelity is measured against concepts as they were embedded, from the data's means, got "
            f"center={center!r} and dispersion={dispersion!r}: leave both as they are, or give a radius instead"
        )
    return Space.fit_metric(texts.embeddings, X, shrinkage=shrinkage)
