"""scikit-learn's own checks of an estimator, on one that makes its concepts from the data it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks

from ccr import ConceptClassifier, Concepts
from ccr.coding import TopK


class OnAnyData(ConceptClassifier):
    """A `ConceptClassifier` whose concepts are random directions of as many dimensions as X has."""

    def __init__(self, random_state: int | None = 0) -> None:
        super().__init__(random_state=random_state)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OnAnyData:  # type: ignore[override]
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        d = shape[1] if len(shape) == 2 and shape[1] else 1
        concepts = Concepts([f"direction {row}" for row in range(12)], np.random.default_rng(0).normal(size=(12, d)))
        inner = ConceptClassifier(concepts, coder=TopK(4), max_iter=30, dispersion=None, random_state=self.random_state)
        self.model_ = inner.fit(X, y, sample_weight).model_
        return self


#: Checks that are not met, each with the reason.
_WORDS = "the error names the rule, the value and the remedy in words of this project, not in those of scikit-learn"
EXPECTED: dict[str, str] = {
    "check_n_features_in_after_fitting": _WORDS,
    "check_estimators_empty_data_messages": _WORDS,
    "check_requires_y_none": _WORDS,
    "check_estimators_dtypes": "the check makes rows of zeros by rounding, and an embedding of zeros points nowhere",
    "check_dtype_object": "X of objects is refused: embeddings are numbers",
    "check_supervised_y_2d": "labels of two dimensions are refused with the remedy, not flattened with a warning",
    "check_classifiers_regression_target": "numbers that are not whole are labels like others here",
    "check_sample_weight_equivalence_on_dense_data": "batches are random: a repeated row changes their order",
}


@parametrize_with_checks([OnAnyData()], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_checks(estimator: OnAnyData, check: Any) -> None:
    check(estimator)
