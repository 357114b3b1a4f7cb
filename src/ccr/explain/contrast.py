"""Two models' explanations of one image, side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.explain.terms import Contrast, Contribution, plain_fields, position
from ccr.explain.views import ModelView
from ccr.heads import LinearHead
from ccr.utils.arrays import softmax

if TYPE_CHECKING:
    from ccr.explain.explanation import Explanation


# Question about an image that a model does not answer: the one concept whose confirmation by a person settles it.
@dataclass(frozen=True)
class Question:
    """Does the image show `concept`? If so, its code becomes `confirmed` instead of `code`, and exactly one class is
    left: `settles`, with this `probability`. `denied` is what is left if it does not: a class, or None if that settles
    nothing."""

    concept: str
    code: float
    confirmed: float
    settles: Any
    probability: float
    denied: Any | None

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


def settling_question(
    names: Sequence[str],
    codes: np.ndarray,
    scores: np.ndarray,
    head: LinearHead,
    *,
    typical: np.ndarray,
    classes: Sequence[Any],
    least: float,
) -> Question | None:
    """The concept to ask a person about; None if the answer about no single one would settle anything.

    A concept that is confirmed has the code that is `typical` (n,) of images that show it, or what it has if that is
    more. Of those that then leave exactly one class at least as probable as `least`, it is the one whose score (n,) is
    nearest to typical already: what the image most nearly shows.
    """
    coef = head.coef.astype(np.float64)
    logits = coef @ codes + head.intercept
    confirmed = np.maximum(codes, typical)
    after = logits + ((confirmed - codes) * coef).T  # (n, classes): each concept alone
    probabilities = softmax(after, axis=1)
    settles = ((probabilities >= least).sum(axis=1) == 1) & (typical > 0) & (confirmed > codes)
    if not settles.any():
        return None
    near = np.where(settles, scores / np.where(typical > 0, typical, 1.0), -np.inf)
    chosen = int(near.argmax())
    winner = int(probabilities[chosen].argmax())
    without = softmax(logits - codes[chosen] * coef[:, chosen])
    left = np.flatnonzero(without >= least)
    return Question(
        concept=names[chosen],
        code=float(codes[chosen]),
        confirmed=float(confirmed[chosen]),
        settles=classes[winner],
        probability=float(probabilities[chosen, winner]),
        denied=classes[left[0]] if len(left) == 1 else None,
    )


# Wrong predictions: concepts for the true class, against it, and missing ones.
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
