"""Contributions: the signed terms that every explanation is a sum of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from ccr.core.knowledge import NO, YES
from ccr.errors import CCRError
from ccr.texts import did_you_mean

Status = Literal["confirmed", "unknown", "contradicted"]


def status(answer: int) -> Status:
    """What an answer makes of a claim: 1 confirms it, -1 contradicts it."""
    return "confirmed" if answer == YES else "contradicted" if answer == NO else "unknown"


@dataclass(frozen=True)
class Contribution:
    """One active concept: `contribution` = `code` x `weight`.

    `claim` says what is known of "the class shows this concept", which a positive weight claims: confirmed, unknown or
    contradicted; None for a weight that claims nothing, being negative or a difference of weights. `shown` is the
    probability that the image shows the concept; None where the model has no map for it.
    """

    concept: str
    code: float
    weight: float
    contribution: float
    claim: Status | None = None
    shown: float | None = None


@dataclass(frozen=True)
class Contrast:
    """Why `prediction` and not `other`: `bias` + sum of contributions == `difference` of their logits."""

    prediction: Any
    other: Any
    difference: float
    bias: float
    contributions: tuple[Contribution, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


def contributions(
    names: Sequence[str],
    codes: np.ndarray,
    weights: np.ndarray,
    answers: np.ndarray | None = None,
    shown: np.ndarray | None = None,
) -> tuple[Contribution, ...]:
    """The terms code x weight, largest effect first, equal ones by name; concepts without a weight say nothing.

    `answers` (n,) is what is known of the class: 1 yes, -1 no, 0 unknown; None where weights claim nothing. `shown`
    (n,) are the probabilities that the image shows the concepts, where they are known.
    """
    known = [None] * len(names) if answers is None else [status(answer) for answer in answers]
    likely = [None] * len(names) if shown is None else [float(value) for value in shown]
    terms = [
        Contribution(name, float(code), float(weight), float(code * weight), claim if weight > 0 else None, chance)
        for name, code, weight, claim, chance in zip(names, codes, weights, known, likely, strict=True)
        if weight != 0
    ]
    return tuple(sorted(terms, key=lambda term: (-abs(term.contribution), term.concept)))


def position(classes: Sequence[Any], name: Any) -> int:
    """Number of the class called `name`; numbers may be named by their text."""
    if isinstance(name, (bool, int, float, np.generic)) and name in classes:  # 1 is 1.0, and True
        return list(classes).index(name)
    names = [str(known) for known in classes]
    if str(name) not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise CCRError(f"no class is called {name!r}{did_you_mean(name, names)}; there are {len(names)}: {shown}")
    return names.index(str(name))


def plain(value: Any) -> Any:
    """The value in types that JSON has; what is not finite becomes None."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return value.to_dict() if hasattr(value, "to_dict") else plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_fields(result: Any) -> dict[str, Any]:
    """A result object as a dict of plain types, one entry per field."""
    return {item.name: plain(getattr(result, item.name)) for item in fields(result)}
