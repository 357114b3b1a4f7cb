"""A converged head for every method: solved on its codes, with the penalty that validation data prefer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.heads import LinearHead, fit_softmax
from ccr.study.experiments.gain import Part

#: Penalties tried, in units of 1 / (number of training images) for codes scaled to size 1, strongest first.
PENALTIES = (10.0, 3.0, 1.0, 0.3)
#: No entry of the mean loss's gradient, for codes of size 1, is larger when a head counts as converged.
CONVERGED = 1e-4


@dataclass(frozen=True, eq=False)
class Settled:
    """The head chosen, its accuracy on validation images, and the penalty it was solved with (None: as trained)."""

    head: LinearHead
    accuracy: float
    penalty: float | None


def settle(
    codes: Any,
    numbers: np.ndarray,
    validation: Part,
    *,
    classes: int,
    own: LinearHead | None,
    penalties: Any = PENALTIES,
) -> Settled:
    """The best head on validation codes and class numbers: `own`, or one solved to convergence on (codes, numbers).

    Heads are compared in this order, and a later one must be better to be taken: `own` first, then weaker and weaker
    penalties, each solved from the one before.
    """
    codes = sparse.csr_matrix(codes)
    size = float(np.mean(codes.data.astype(np.float64) ** 2)) if codes.nnz else 1.0
    candidates: list[tuple[float | None, LinearHead]] = [] if own is None else [(None, own)]
    start = None
    for penalty in penalties:
        alpha = penalty * size / len(numbers)
        start = fit_softmax(codes, numbers, classes=classes, alpha=alpha, start=start, tol=CONVERGED)
        candidates.append((penalty, LinearHead(start.coef.astype(np.float32), start.intercept.astype(np.float32))))
    scored = [(_accuracy(head, validation), penalty, head) for penalty, head in candidates]
    accuracy, penalty, head = max(scored, key=lambda found: found[0])  # the first of equals
    return Settled(head, accuracy, penalty)


def _accuracy(head: LinearHead, validation: Part) -> float:
    return float(np.mean(head.logits(validation.X).argmax(axis=1) == validation.y))
