"""RuntimeExplanation: one prediction as a short, exact sum of named contributions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccr.core.explain.picture import picture
from ccr.core.explain.terms import Contrast, Contribution, contributions, plain, position


@dataclass(frozen=True, eq=False)
class RuntimeExplanation:
    """One prediction: `bias` + sum of contributions == `logit`, to rounding.

    `contributions` holds every active concept with a weight for the predicted class, largest effect first; `active`
    and `codes` all active concepts, `weights` (classes, active) theirs, `biases` (classes,) those of all classes, and
    `answers` (classes, active) what is known of them, `shown` (active,) the probabilities that the image shows them.
    """

    prediction: Any
    probability: float
    logit: float
    bias: float
    contributions: tuple[Contribution, ...]
    classes: tuple[Any, ...] = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    active: tuple[str, ...] = field(repr=False)
    codes: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    biases: np.ndarray = field(repr=False)
    answers: np.ndarray = field(repr=False)
    shown: np.ndarray | None = field(default=None, repr=False)

    def contributions_to(self, name: Any) -> tuple[Contribution, ...]:
        """Every active concept's contribution to the class `name`, whatever was predicted."""
        number = position(self.classes, name)
        return contributions(self.active, self.codes, self.weights[number], self.answers[number], self.shown)

    def contrast(self, other: Any) -> Contrast:
        """Why this class and not `other`: weights are the differences of the two classes' weights."""
        mine, rival = position(self.classes, self.prediction), position(self.classes, other)
        bias = float(self.biases[mine] - self.biases[rival])
        terms = contributions(self.active, self.codes, self.weights[mine] - self.weights[rival])
        difference = bias + sum(term.contribution for term in terms)
        return Contrast(self.prediction, self.classes[rival], difference, bias, terms)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON; the same as the full model's."""
        return {
            "prediction": plain(self.prediction),
            "probability": self.probability,
            "logit": self.logit,
            "bias": self.bias,
            "contributions": [vars(term).copy() for term in self.contributions],
            "probabilities": {str(name): float(p) for name, p in zip(self.classes, self.probabilities, strict=True)},
        }

    def _repr_html_(self) -> str:
        return picture(self)
