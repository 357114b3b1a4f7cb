"""What edits did to accuracy, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.explain.terms import plain_fields
from ccr.core.metrics import Interval, wilson_interval


@dataclass(frozen=True)
class ClassEffect:
    """Accuracy on the `n` images of a class before and after."""

    name: Any
    n: int
    before: float
    after: float


@dataclass(frozen=True)
class EditEffect:
    """Accuracy on `n` images before and after the edits, and how many predictions are others now.

    `classes` has those that lost most first.
    """

    n: int
    before: float
    after: float
    before_interval: Interval
    after_interval: Interval
    changed: int
    classes: tuple[ClassEffect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


def edit_effect(truth: np.ndarray, before: np.ndarray, after: np.ndarray) -> EditEffect:
    """Compare two models' predictions (m,) with the truth."""
    classes, number = np.unique(truth, return_inverse=True)
    counts = np.bincount(number)
    was, now = (np.bincount(number, weights=truth == predicted) for predicted in (before, after))
    effects = [
        ClassEffect(label.item(), int(n), float(b / n), float(a / n))
        for label, n, b, a in zip(classes, counts, was, now, strict=True)
    ]
    m = len(truth)
    return EditEffect(
        n=m,
        before=float(was.sum() / m),
        after=float(now.sum() / m),
        before_interval=wilson_interval(int(was.sum()), m),
        after_interval=wilson_interval(int(now.sum()), m),
        changed=int((before != after).sum()),
        classes=tuple(sorted(effects, key=lambda e: (e.after - e.before, str(e.name)))),
    )
