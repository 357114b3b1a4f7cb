"""Why: a prediction as a short exact sum of named contributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax

from ccr.core.heads import LinearHead
from ccr.errors import CCRError


@dataclass(frozen=True)
class Contribution:
    """One active concept: `contribution` = `code` x `weight`."""

    concept: str
    code: float
    weight: float
    contribution: float


@dataclass(frozen=True)
class Contrast:
    """Why `prediction` and not `other`: `bias` + sum of contributions == `difference` of their logits."""

    prediction: Any
    other: Any
    difference: float
    bias: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, eq=False)
class Explanation:
    """One prediction: `bias` + sum of contributions == `logit`, to rounding.

    `contributions` holds every active concept, largest effect on the predicted class first.
    """

    prediction: Any
    probability: float
    logit: float
    bias: float
    contributions: tuple[Contribution, ...]
    classes: tuple[Any, ...] = field(repr=False)
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    active: tuple[str, ...] = field(repr=False)
    codes: np.ndarray = field(repr=False)
    head: LinearHead = field(repr=False)

    def contrast(self, other: Any) -> Contrast:
        """Why this class and not `other`: weights are the differences of the two classes' weights."""
        mine, rival = self.classes.index(self.prediction), self._position(other)
        weights = self.head.coef[mine].astype(np.float64) - self.head.coef[rival]
        bias = float(self.head.intercept[mine]) - float(self.head.intercept[rival])
        terms = _contributions(self.active, self.codes, weights)
        difference = bias + sum(term.contribution for term in terms)
        return Contrast(self.prediction, self.classes[rival], difference, bias, terms)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "prediction": _plain(self.prediction),
            "probability": self.probability,
            "logit": self.logit,
            "bias": self.bias,
            "contributions": [vars(term).copy() for term in self.contributions],
            "probabilities": {str(name): float(p) for name, p in zip(self.classes, self.probabilities, strict=True)},
        }

    def _position(self, name: Any) -> int:
        names = [str(known) for known in self.classes]
        if str(name) not in names:
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise CCRError(f"no class is called {name!r}; there are {len(names)}: {shown}")
        return names.index(str(name))


def explain(code: Any, head: LinearHead, *, concepts: Sequence[str], classes: Sequence[Any]) -> Explanation:
    """Explain the prediction that the head makes for one code (1, n), CSR."""
    columns, values = code.indices, code.data.astype(np.float64)
    active_head = LinearHead(head.coef[:, columns].astype(np.float64), head.intercept.astype(np.float64))
    logits = active_head.coef @ values + active_head.intercept
    winner = int(logits.argmax())
    probabilities = softmax(logits)
    active = tuple(concepts[column] for column in columns)
    terms = _contributions(active, values, active_head.coef[winner])
    return Explanation(
        prediction=classes[winner],
        probability=float(probabilities[winner]),
        logit=float(logits[winner]),
        bias=float(active_head.intercept[winner]),
        contributions=terms,
        classes=tuple(classes),
        logits=logits,
        probabilities=probabilities,
        active=active,
        codes=values,
        head=active_head,
    )


def _contributions(names: Sequence[str], codes: np.ndarray, weights: np.ndarray) -> tuple[Contribution, ...]:
    terms = [
        Contribution(name, float(code), float(weight), float(code * weight))
        for name, code, weight in zip(names, codes, weights, strict=True)
    ]
    return tuple(sorted(terms, key=lambda term: (-abs(term.contribution), term.concept)))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
