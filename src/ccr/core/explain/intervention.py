"""Test-time intervention: set code entries and see predictions move, for one image and over a data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from ccr.core.checks import is_number
from ccr.core.explain.counterfactual import Shift
from ccr.core.explain.terms import plain, plain_fields
from ccr.core.heads import LinearHead
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.explain.explanation import Explanation

Order = Literal["effect", "error", "random"]


@dataclass(frozen=True, eq=False)
class Intervention:
    """One image's explanation `before` and `after` some entries of its code were set; `shifts` says which moved."""

    before: Explanation
    after: Explanation = field(repr=False)
    shifts: tuple[Shift, ...]

    @property
    def changed(self) -> bool:
        """Whether the prediction is another one."""
        return bool(self.before.prediction != self.after.prediction)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON; `logits` holds what each class gained."""
        gains = self.after.logits - self.before.logits
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "shifts": plain(self.shifts),
            "changed": self.changed,
            "logits": {str(name): float(gain) for name, gain in zip(self.before.classes, gains, strict=True)},
        }


@dataclass(frozen=True)
class InterventionCurve:
    """`accuracy[j]` on `n` images after `steps[j]` concepts of each were corrected, in this `order`."""

    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    order: Order
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


class CorrectedBatch(NamedTuple):
    """Codes (b, n) CSR, what they should be (b, n), and class numbers (b,)."""

    codes: Any
    correct: Any
    y: np.ndarray


def intervention_curve(
    batches: Iterable[CorrectedBatch],
    head: LinearHead,
    *,
    steps: Sequence[int] = (0, 1, 2, 3, 5, 8, 13, 20),
    order: Order = "effect",
    seed: int = 0,
) -> InterventionCurve:
    """Accuracy against the number of code entries set to their correct value.

    "effect" corrects first what most helps the true class against the rival that is strongest before, "error" what
    is farthest from correct, "random" any entry that is wrong. Steps beyond the number of concepts correct all of them.
    """
    steps = _checked_steps(steps)
    if order not in ("effect", "error", "random"):
        raise CCRError(f'order must be "effect", "error" or "random", got {order!r}')
    rng = np.random.default_rng(seed)
    right, n = np.zeros(len(steps), np.int64), 0
    for batch in batches:
        right += _right_by_step(batch, head, steps, order, rng)
        n += len(batch.y)
    return InterventionCurve(tuple(steps), tuple((right / n).tolist()), order, n)


def _right_by_step(
    batch: CorrectedBatch, head: LinearHead, steps: list[int], order: Order, rng: np.random.Generator
) -> np.ndarray:
    codes, correct = _dense(batch.codes), _dense(batch.correct)
    delta = correct - codes
    logits = head.logits(batch.codes).astype(np.float64)
    first = np.argsort(_urgency(delta, logits, batch.y, head, order, rng), axis=1, kind="stable")[:, : max(steps)]
    right, done = np.zeros(len(steps), np.int64), 0
    for at, step in enumerate(steps):
        columns = first[:, done:step]
        if columns.shape[1]:
            logits += _sparse_rows(columns, np.take_along_axis(delta, columns, axis=1), delta.shape[1]) @ head.coef.T
        right[at] = (logits.argmax(axis=1) == batch.y).sum()
        done = step
    return right


def _urgency(
    delta: np.ndarray, logits: np.ndarray, y: np.ndarray, head: LinearHead, order: Order, rng: np.random.Generator
) -> np.ndarray:
    """Smaller is corrected earlier; entries that are right already come last."""
    if order == "random":
        return np.where(delta == 0, 1.0, rng.random(delta.shape))
    if order == "error":
        return -np.abs(delta)
    others = logits.copy()
    others[np.arange(len(y)), y] = -np.inf
    return (head.coef[others.argmax(axis=1)] - head.coef[y]) * delta


def _sparse_rows(columns: np.ndarray, values: np.ndarray, n: int) -> sparse.csr_matrix:
    pointers = np.arange(0, columns.size + 1, columns.shape[1])
    return sparse.csr_matrix((values.ravel(), columns.ravel(), pointers), shape=(len(columns), n))


def _dense(codes: Any) -> np.ndarray:
    return np.asarray(codes.toarray() if sparse.issparse(codes) else codes, dtype=np.float64)


def _checked_steps(steps: Sequence[int]) -> list[int]:
    given = list(steps)
    if not given or not all(is_number(step) and step >= 0 and step == int(step) for step in given):
        raise CCRError(f"steps must be whole numbers of corrected concepts, >= 0, got {given}: try (0, 1, 2, 5, 10)")
    return sorted({int(step) for step in given})
