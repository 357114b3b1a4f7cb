"""Grids: axes in words, such as `length=5,10,20`, and the settings they span."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

from ccr.coding import HardThreshold, Sign
from ccr.errors import CCRError
from ccr.space import Angular, Dispersion, parse_dispersion
from ccr.utils.texts import did_you_mean

#: What an axis may vary, with an example of each.
AXES = {
    "length": "5,10,20",
    "threshold": "0.1,0.15",
    "fidelity": "0.875,0.955,1",
    "radius": "0,0.05,0.1,0.2",
    "weights": "1,3,5,all",
    "dispersion": "none,angular,symmetric:0.9",
    "center": "none,data",
    "sign": "both,positive",
}
#: Axes whose values are words, and what those mean.
WORDS = {
    "center": (("none", "data"), "data measures images and concepts from their means"),
    "sign": (("both", "positive"), "positive codes say only what an image shows"),
}
BOUNDS = {"length": (1.0, math.inf), "threshold": (0.0, math.inf), "fidelity": (0.0, 1.0), "radius": (0.0, 2.0)}
#: Axes that say the same in two ways: a setting has one of them.
EITHER = ("fidelity", "radius")


class Axis(NamedTuple):
    """One direction of a grid: the name of a setting and the values it takes."""

    name: str
    values: tuple[float | int | str, ...]


@dataclass(frozen=True)
class Setting:
    """One point of a grid; None: as the classifier does by itself.

    Parameters
    ----------
    length, threshold : float or None
        Concepts per image, at least 1, or the paper's lambda, at least 0: one of them, the other is None.
    fidelity, radius : float or None
        Least correlation of a concept with its own text, in [0, 1], or how far it may move, in [0, 2].
    weights : int, "all" or None
        Weights per class, at least 1.
    dispersion : str or None
        none, angular or symmetric, optionally with a number (`symmetric:0.9`).
    center : str
        none or data.
    sign : str or None
        both or positive.
    """

    length: float | None = None
    threshold: float | None = None
    fidelity: float | None = None
    radius: float | None = None
    weights: int | Literal["all"] | None = None
    dispersion: str | None = None
    center: str = "data"
    sign: Sign | None = None

    @property
    def name(self) -> str:
        return self.described(AXES)

    def described(self, names: Iterable[str]) -> str:
        """These parts of the setting in words."""
        return ", ".join(f"{name} {self.value(name)}" for name in names if getattr(self, name) is not None)

    def value(self, name: str) -> str:
        """One part of the setting in words, empty if it is the classifier's own."""
        value = getattr(self, name)
        return "" if value is None else _text(value)

    def parameters(self) -> dict[str, Any]:
        """The setting as parameters of a `ConceptClassifier`."""
        given: dict[str, Any] = {name: getattr(self, name) for name in EITHER if getattr(self, name) is not None}
        if self.weights is not None:
            given["weights_per_class"] = None if self.weights == "all" else self.weights
        if self.dispersion is not None:
            given["dispersion"] = parse_dispersion(self.dispersion)
        signed = {} if self.sign is None else {"sign": self.sign}
        return {
            "coder": HardThreshold(threshold=self.threshold, length=self.length, **signed),
            "center": "data" if self.center == "data" else None,
            **given,
        }

    def arguments(self) -> list[str]:
        """The setting as arguments of `ccr fit`."""
        names = [name for name in AXES if name != "center" and getattr(self, name) is not None]
        words = [word for name in names for word in (f"--{name}", self.value(name))]
        return [*words, "--center" if self.center == "data" else "--no-center"]


def parse_axis(text: str) -> Axis:
    """`length=5,10,20` as an axis; its values are checked as far as that needs no data."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or name not in AXES:
        raise CCRError(
            f"an axis is NAME=VALUE,... with NAME one of {', '.join(AXES)}, got {text!r}{did_you_mean(name, AXES)}: "
            "such as radius=0,0.1"
        )
    words = [word.strip() for word in listed.split(",")]
    if "" in words:
        raise CCRError(f"every value of an axis must be given, got {text!r}: such as {name}={AXES[name]}")
    values = tuple(_checked_value(name, word) for word in words)
    if len(set(values)) < len(values):
        raise CCRError(f"every value of an axis is given once, got {text!r}: drop the repeated ones")
    return Axis(name, values)


def grid(axes: Sequence[Axis], base: Setting | None = None, *, length: float = 12.0) -> list[Setting]:
    """Every combination of the axes' values. What no axis names is as in `base`; where neither says how many concepts
    an image has, `length`.

    Fidelity and radius are alternatives: with both, every setting has one of their values.
    """
    names = [axis.name for axis in axes]
    if not names:
        raise CCRError(f"a grid needs at least one axis, got none: such as length={AXES['length']}")
    for name in names:
        if names.count(name) > 1:
            raise CCRError(
                f"an axis is given once, got {name} {names.count(name)} times: put all its values in one list"
            )
    if {"length", "threshold"} <= set(names):
        raise CCRError("an axis may be length or threshold, got both: a length is turned into a threshold; drop one")
    base = base or Setting()
    if "threshold" not in names and base.threshold is None and base.length is None:
        base = replace(base, length=float(length))
    choices: dict[str, list[dict[str, Any]]] = {}
    for axis in axes:
        kind = "bound" if axis.name in EITHER else axis.name
        choices.setdefault(kind, []).extend({axis.name: value} for value in axis.values)
    return [
        replace(base, **{name: value for part in chosen for name, value in part.items()})
        for chosen in product(*choices.values())
    ]


def _checked_value(name: str, word: str) -> float | int | str:
    if name in WORDS:
        allowed, meaning = WORDS[name]
        if word not in allowed:
            raise CCRError(f"{name} is {' or '.join(allowed)}, got {word!r}: {meaning}")
        return word
    if name == "dispersion":
        return _dispersion_text(parse_dispersion(word))
    if name == "weights":
        return _checked_weights(word)
    low, high = BOUNDS[name]
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not (low <= value <= high and math.isfinite(value)):
        above = f">= {low:g}" if math.isinf(high) else f"in [{low:g}, {high:g}]"
        raise CCRError(f"{name} must be a number {above}, got {word!r}: such as {name}={AXES[name]}")
    return value


def _checked_weights(word: str) -> int | str:
    if word == "all" or (word.isdecimal() and int(word) >= 1):
        return word if word == "all" else int(word)
    raise CCRError(f"weights is a number of weights per class >= 1, or all, got {word!r}: such as weights=1,3,5,all")


def _dispersion_text(dispersion: Dispersion | None) -> str:
    """One text for one dispersion, so that equal ones are seen to be equal."""
    if dispersion is None:
        return "none"
    if isinstance(dispersion, Angular):
        return "angular" if dispersion.factor is None else f"angular:{_text(dispersion.factor)}"
    return "symmetric" if dispersion.strength == 1 else f"symmetric:{_text(dispersion.strength)}"


def _text(value: float | str | None) -> str:
    return f"{value:.12g}" if isinstance(value, float | int) else str(value)
