"""Counterfactuals of one image, and the accuracy of a model whose code entries are corrected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain.terms import Contribution, PlainResult, contributions
from ccr.utils.arrays import LazyModule, softmax
from ccr.utils.parameters import is_number

if TYPE_CHECKING:
    import scipy
    from scipy import sparse
else:
    scipy = LazyModule("scipy")
    sparse = LazyModule("scipy.sparse")

# Counterfactuals: the fewest concepts to remove, or the smallest change of the code, for another prediction. Both are
# exact for a linear head. Whether class r overtakes the prediction p depends on one sum, the contrast of p and r, so
# the fewest removals for r are its largest terms; the prediction changes as soon as any r overtakes.

#: Logits that differ by less than this, relative to their size, count as equal.
TIE = 1e-9


@dataclass(frozen=True)
class Counterfactual(PlainResult):
    """Without the `removed` concepts the prediction would be `becomes`, with this probability.

    `removed` are terms of the contrast of the two classes: `margin` - their sum == `margin_after`, which is
    not positive. No smaller set changes the prediction.
    """

    prediction: Any
    becomes: Any
    probability: float
    margin: float
    margin_after: float
    removed: tuple[Contribution, ...]


@dataclass(frozen=True)
class Shift:
    """One entry of the code: `before`, `after`, and their difference `change`."""

    concept: str
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class CodeChange(PlainResult):
    """The nearest code, at Euclidean `distance`, at which `toward` is tied for the prediction; larger shifts first."""

    prediction: Any
    toward: Any
    distance: float
    shifts: tuple[Shift, ...]


def fewest_removals(
    names: Sequence[str], codes: np.ndarray, head: LinearHead, *, classes: Sequence[Any], winner: int
) -> Counterfactual | None:
    """The smallest set of these active concepts without which another class wins; None if there is none.

    Of equally small sets the one that leaves the prediction farthest behind, then the first class. Equal logits
    go to the first class, as in `predict`.
    """
    terms = (head.coef[winner] - head.coef) * codes
    bias = head.intercept[winner] - head.intercept
    margins = _margins(terms, bias)
    behind = (margins < 0) | ((margins == 0) & (np.arange(len(bias)) < winner)[:, None])
    behind[:, 0] = False  # nothing removed: that is the prediction itself
    possible = np.flatnonzero(behind.any(axis=1))
    if not len(possible):
        return None
    fewest = behind[possible].argmax(axis=1)
    rival, count = min(
        zip(possible.tolist(), fewest.tolist(), strict=True), key=lambda pair: (pair[1], margins[pair], pair[0])
    )
    order = sorted(range(len(names)), key=lambda i: (-terms[rival, i], names[i]))
    gone, kept = order[:count], order[count:]
    after = head.coef[:, kept] @ codes[kept] + head.intercept
    return Counterfactual(
        prediction=classes[winner],
        becomes=classes[rival],
        probability=float(softmax(after)[rival]),
        margin=float(margins[rival, 0]),
        margin_after=float(margins[rival, count]),
        removed=contributions([names[i] for i in gone], codes[gone], head.coef[winner, gone] - head.coef[rival, gone]),
    )


def smallest_change(codes: np.ndarray, head: LinearHead, *, winner: int, target: int) -> np.ndarray | None:
    """The shortest `delta` such that no class is above `target` at codes + delta; None if there is none.

    Against the prediction alone it is `g a / |a|^2` with `a` the difference of the two classes' weights and `g`
    that of their logits. Classes that this leaves above the target are added one by one: a least-distance problem.
    """
    if target == winner:
        return np.zeros_like(codes)
    logits = head.coef @ codes + head.intercept
    differences, gaps = head.coef[target] - head.coef, logits - logits[target]
    slack = TIE * max(1.0, float(np.abs(logits).max()))
    rivals = [winner]
    while True:
        delta = _least_distance(differences[rivals], gaps[rivals])
        if delta is None:
            return None
        above = gaps - differences @ delta
        above[[*rivals, target]] = -np.inf
        if above.max() <= slack:
            return delta
        rivals.append(int(above.argmax()))


def shifts(names: Sequence[str], codes: np.ndarray, delta: np.ndarray) -> tuple[Shift, ...]:
    """The entries that change, largest change first, equal ones by name."""
    changes = [
        Shift(name, float(code), float(code + step), float(step))
        for name, code, step in zip(names, codes, delta, strict=True)
        if step != 0
    ]
    return tuple(sorted(changes, key=lambda shift: (-abs(shift.change), shift.concept)))


def _margins(terms: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Lead of the prediction over every class (C, a + 1) after its 0, 1, ..., a largest terms are removed."""
    falling = -np.sort(-terms, axis=1)
    # Sums of what is kept, not differences: with everything removed the lead is the biases' exactly.
    kept = np.cumsum(falling[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([kept + bias[:, None], bias[:, None]], axis=1)


def _least_distance(differences: np.ndarray, gaps: np.ndarray) -> np.ndarray | None:
    """The shortest x with `differences @ x >= gaps`, by non-negative least squares (Lawson and Hanson, chapter 23)."""
    sizes = np.linalg.norm(differences, axis=1)
    if (gaps[sizes == 0] > 0).any() or differences.shape[1] == 0:
        return None
    gaps, differences = gaps[sizes > 0] / sizes[sizes > 0], differences[sizes > 0] / sizes[sizes > 0, None]
    bound = float(gaps.max(initial=0.0))  # |x| is at least this
    if bound <= 0:
        return np.zeros(differences.shape[1])
    if len(gaps) == 1:
        return bound * differences[0]
    system = np.vstack([differences.T, gaps / bound])
    goal = np.append(np.zeros(differences.shape[1]), 1.0)
    residual = system @ scipy.optimize.nnls(system, goal)[0] - goal
    # |x|^2 = 1/t - 1 for t = -residual[-1]: below this, a million times the bound would not do.
    return None if -residual[-1] < 1e-12 else -residual[:-1] / residual[-1] * bound


Order = Literal["effect", "error", "random"]


@dataclass(frozen=True)
class InterventionCurve(PlainResult):
    """`accuracy[j]` on `n` images after `steps[j]` concepts of each were corrected, in this `order`."""

    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    order: Order
    n: int


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
    checked = list(steps)
    if not checked or not all(is_number(step) and step >= 0 and step == int(step) for step in checked):
        raise CCRError(f"steps must be whole numbers of corrected concepts, >= 0, got {checked}: try (0, 1, 2, 5, 10)")
    return sorted({int(step) for step in checked})
