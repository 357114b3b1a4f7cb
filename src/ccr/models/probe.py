"""The linear probe that tables show beside a model: scikit-learn's logistic regression on the embeddings."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from ccr.core.space import Space
from ccr.models.part import Part, stratified_folds

#: Strengths of the penalty to choose from. scikit-learn's C is one over the strength that is not divided by rows.
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)


def probe_accuracy(train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], of a logistic regression on centred unit embeddings, each coordinate in units of the
    root mean square of all; its penalty is chosen by cross-validation on the training images."""
    space = Space.of_images(train.X, center="data")
    rows, unseen = (
        np.concatenate([chunk.numpy() for chunk in space.images(part.X).chunks()]) for part in (train, test)
    )
    size = np.sqrt(np.mean(rows**2))  # without it every C would mean something else for every encoder
    search = GridSearchCV(
        LogisticRegression(max_iter=1000, tol=1e-4), {"C": STRENGTHS}, cv=stratified_folds(), scoring="accuracy"
    )
    return float(search.fit(rows / size, train.y).score(unseen / size, test.y))
