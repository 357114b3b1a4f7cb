"""The linear probe: what embeddings allow without any concepts."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from ccr.core.geometry import centered, unit_rows
from ccr.study.experiments.part import Part, stratified_folds

#: Penalties tried, in units of 1 / (number of training images).
PENALTIES = (3.0, 10.0, 30.0)


def probe_accuracy(train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], of logistic regression on the embeddings themselves, its penalty chosen by
    cross-validation on the training images."""
    mean = unit_rows(np.asarray(train.X, np.float32)).mean(axis=0)

    def rows(part: Part) -> np.ndarray:
        unit = centered(unit_rows(np.asarray(part.X, np.float32)), mean)
        return unit * np.sqrt(unit.shape[1])  # entries of size 1, for which the penalties are meant

    strengths = {"C": [1.0 / penalty for penalty in PENALTIES]}
    search = GridSearchCV(LogisticRegression(max_iter=2000, tol=1e-2), strengths, cv=stratified_folds())
    return float(search.fit(rows(train), train.y).score(rows(test), test.y))
