"""What would change the prediction: the fewest concepts to remove, the smallest change of the code.

Both are exact for a linear head. Whether class r overtakes the prediction p depends on one sum, the contrast of
p and r, so the fewest removals for r are its largest terms; the prediction changes as soon as any r overtakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used
from scipy.special import softmax

from ccr.core.explain.terms import Contribution, contributions, plain_fields
from ccr.core.heads import LinearHead

#: Logits that differ by less than this, relative to their size, count as equal.
TIE = 1e-9


@dataclass(frozen=True)
class Counterfactual:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


@dataclass(frozen=True)
class Shift:
    """One entry of the code: `before`, `after`, and their difference `change`."""

    concept: str
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class CodeChange:
    """The nearest code, at Euclidean `distance`, at which `toward` is tied for the prediction; larger shifts first."""

    prediction: Any
    toward: Any
    distance: float
    shifts: tuple[Shift, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


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
    slopes, gaps = head.coef[target] - head.coef, logits - logits[target]
    slack = TIE * max(1.0, float(np.abs(logits).max()))
    rivals = [winner]
    while True:
        delta = _least_distance(slopes[rivals], gaps[rivals])
        if delta is None:
            return None
        above = gaps - slopes @ delta
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


def _least_distance(slopes: np.ndarray, gaps: np.ndarray) -> np.ndarray | None:
    """The shortest x with `slopes @ x >= gaps`, by non-negative least squares (Lawson and Hanson, chapter 23)."""
    sizes = np.linalg.norm(slopes, axis=1)
    if (gaps[sizes == 0] > 0).any() or slopes.shape[1] == 0:
        return None
    gaps, slopes = gaps[sizes > 0] / sizes[sizes > 0], slopes[sizes > 0] / sizes[sizes > 0, None]
    bound = float(gaps.max(initial=0.0))  # |x| is at least this
    if bound <= 0:
        return np.zeros(slopes.shape[1])
    if len(gaps) == 1:
        return bound * slopes[0]
    system = np.vstack([slopes.T, gaps / bound])
    goal = np.append(np.zeros(slopes.shape[1]), 1.0)
    residual = system @ scipy.optimize.nnls(system, goal)[0] - goal
    # |x|^2 = 1/t - 1 for t = -residual[-1]: below this, a million times the bound would not do.
    return None if -residual[-1] < 1e-12 else -residual[:-1] / residual[-1] * bound
