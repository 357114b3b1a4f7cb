"""What an image's code is a linear function of, once it is known which concepts are active."""

from __future__ import annotations

import numpy as np

from ccr.core.coding.lasso import LassoRule
from ccr.core.coding.pursuit import PursuitRule
from ccr.core.coding.rules import Rule


def active_rows(rule: Rule, dictionary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (a, d) and constants (a,) with code == rows @ x + constants, for an image x of the concepts' space whose
    active concepts have these rows of the dictionary (a, d).

    A score is a product with the concept itself. Pursuits and the lasso solve for all active concepts together: least
    squares coefficients, less what the lasso's penalty takes away.
    """
    rows = np.asarray(dictionary, np.float64)
    if not isinstance(rule, (PursuitRule, LassoRule)) or not len(rows):
        return rows, np.zeros(len(rows))
    inverse = np.linalg.pinv(rows @ rows.T, hermitian=True)
    penalty = rule.alpha if isinstance(rule, LassoRule) else 0.0
    return inverse @ rows, -penalty * inverse.sum(axis=1)
