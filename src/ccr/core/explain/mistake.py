"""Wrong predictions: what spoke for the true class, what against it, and what was not seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ccr.core.explain.terms import Contrast, Contribution, plain_fields
from ccr.core.explain.views import ModelView


@dataclass(frozen=True)
class MissingConcept:
    """A concept that images of the true class show with mean `code`, but this one did not.

    `contribution` = `code` x `weight` is what it would have added to the true class; `share` of that class's
    images show it.
    """

    concept: str
    code: float
    weight: float
    contribution: float
    share: float


@dataclass(frozen=True)
class Mistake:
    """A prediction seen from the class that it should have been.

    `logit`, `probability`, `rank` and `bias` are the true class's: `bias` + the sums of `spoke_for` and
    `spoke_against` == `logit`. `contrast` says why the prediction and not the truth. `missing` holds the true
    class's strongest concepts that are not active here; None: no data were given to know them from.
    """

    prediction: Any
    truth: Any
    probability: float
    rank: int
    logit: float
    bias: float
    spoke_for: tuple[Contribution, ...]
    spoke_against: tuple[Contribution, ...]
    contrast: Contrast
    missing: tuple[MissingConcept, ...] | None

    @property
    def is_wrong(self) -> bool:
        return bool(self.prediction != self.truth)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


def spoken(terms: Iterable[Contribution]) -> tuple[tuple[Contribution, ...], tuple[Contribution, ...]]:
    """Terms that raise a logit, and the others, each in the order given."""
    terms = tuple(terms)
    return tuple(t for t in terms if t.contribution > 0), tuple(t for t in terms if t.contribution <= 0)


def missing_concepts(view: ModelView, name: Any, active: Collection[str], *, top: int) -> tuple[MissingConcept, ...]:
    """The concepts that carry the class `name` in the view and are not among the active ones, strongest first."""
    present = set(active)
    carrying = view.of_class(name, top=None).carrying
    missing = [
        MissingConcept(item.concept, item.code, item.weight, item.contribution, item.share)
        for item in carrying
        if item.concept not in present
    ]
    return tuple(missing[:top])
