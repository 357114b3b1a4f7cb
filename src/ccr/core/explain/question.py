"""Question: of an image that a model does not answer, the one concept whose confirmation by a person settles it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from ccr.core.explain.terms import plain_fields
from ccr.core.heads import LinearHead


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
