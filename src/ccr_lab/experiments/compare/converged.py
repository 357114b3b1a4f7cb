"""A converged head for every method: solved on its codes, with the penalty that validation data prefer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ccr.coding import code_size
from ccr.heads import LinearHead, fit_softmax
from ccr.labels import Part

#: Penalties tried, in units of 1 / (number of training images) for codes scaled to size 1, strongest first.
PENALTIES = (10.0, 3.0, 1.0, 0.3)
#: No entry of the mean loss's gradient, for codes of size 1, is larger when a head counts as converged.
CONVERGED = 1e-4


@dataclass(frozen=True, eq=False)
class ConvergedHead:
    """The head chosen, its accuracy on validation images, and the penalty it was solved with (None: as trained)."""

    head: LinearHead
    accuracy: float
    penalty: float | None


def converged_head(
    codes: Any,
    numbers: np.ndarray,
    validation: Part,
    *,
    classes: int,
    trained: LinearHead | None,
    penalties: Sequence[float] = PENALTIES,
) -> ConvergedHead:
    """The best head on validation data: the `trained` one, or one solved to convergence on (codes, numbers).

    Heads are compared in this order, and a later one must be better to be taken: `trained` first, then weaker and
    weaker penalties, each solved from the one before.

    Parameters
    ----------
    codes : sparse matrix or array (m, n)
        Codes of the training images.
    numbers : array (m,)
        Their class numbers, in [0, classes).
    validation : Part
        Codes (v, n) and class numbers (v,) of the validation images.
    penalties : sequence of float
        Penalties to try, strongest first, in units of 1 / m for codes scaled to size 1.
    """
    codes = sparse.csr_matrix(codes)
    size = code_size(codes) ** 2
    candidates: list[tuple[float | None, LinearHead]] = [] if trained is None else [(None, trained)]
    start = None
    for penalty in penalties:
        alpha = penalty * size / len(numbers)
        start = fit_softmax(codes, numbers, classes=classes, alpha=alpha, start=start, tol=CONVERGED)
        candidates.append((penalty, LinearHead(start.coef.astype(np.float32), start.intercept.astype(np.float32))))
    scored = [(_accuracy(head, validation), penalty, head) for penalty, head in candidates]
    accuracy, chosen, head = max(scored, key=lambda scores: scores[0])  # the first of equals
    return ConvergedHead(head, accuracy, chosen)


def _accuracy(head: LinearHead, validation: Part) -> float:
    return float(np.mean(head.logits(validation.X).argmax(axis=1) == validation.y))
