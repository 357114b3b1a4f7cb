"""Two models' explanations of one image, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccr.core.explain.terms import Contribution, plain_fields, position

if TYPE_CHECKING:
    from ccr.core.explain.explanation import Explanation


@dataclass(frozen=True)
class ComparedConcept:
    """A concept's contribution in each explanation; None where it is not active, or has no weight for the class."""

    concept: str
    first: Contribution | None
    second: Contribution | None


@dataclass(frozen=True)
class Comparison:
    """Contributions to the class `of` in two explanations of one image.

    In each of them `bias` + its contributions == `logit`. `overlap` is the share of concepts active in either that are
    active in both, with a weight for the class or without; 1 when neither has any.
    """

    of: Any
    predictions: tuple[Any, Any]
    probabilities: tuple[float, float]
    logits: tuple[float, float]
    biases: tuple[float, float]
    concepts: tuple[ComparedConcept, ...]
    overlap: float

    @property
    def agree(self) -> bool:
        """Whether both predict the same class."""
        return str(self.predictions[0]) == str(self.predictions[1])

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**plain_fields(self), "agree": self.agree}


def compare(first: Explanation, second: Explanation, *, of: Any) -> Comparison:
    """Both explanations as contributions to the class `of`, concepts matched by name, largest effect first."""
    mine = {term.concept: term for term in first.contributions_to(of)}
    theirs = {term.concept: term for term in second.contributions_to(of)}
    rows = [ComparedConcept(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}]
    places = position(first.classes, of), position(second.classes, of)
    return Comparison(
        of=first.classes[places[0]],
        predictions=(first.prediction, second.prediction),
        probabilities=(float(first.probabilities[places[0]]), float(second.probabilities[places[1]])),
        logits=(float(first.logits[places[0]]), float(second.logits[places[1]])),
        biases=(float(first.head.intercept[places[0]]), float(second.head.intercept[places[1]])),
        concepts=tuple(sorted(rows, key=lambda row: (-_size(row), row.concept))),
        overlap=overlap(first, second),
    )


def overlap(first: Explanation, second: Explanation) -> float:
    """The share of concepts active in either that are active in both; 1 when neither has any."""
    mine, theirs = set(first.active), set(second.active)
    return len(mine & theirs) / len(mine | theirs) if mine or theirs else 1.0


def _size(row: ComparedConcept) -> float:
    return max(abs(term.contribution) for term in (row.first, row.second) if term is not None)
