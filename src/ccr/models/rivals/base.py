"""What the other methods share: codes over named concepts, a linear head on them, and the same calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from ccr.core.explain import Explanation, explain
from ccr.core.heads import LinearHead
from ccr.errors import CCRError
from ccr.models.unfitted import NotFittedError


class LinearConceptModel(ClassifierMixin, BaseEstimator, ABC):
    """A classifier whose logits are `head_` applied to its codes, which are all that `transform` must give.

    Fitted attributes: `classes_`, `head_`, `names_` (of the columns of the codes).
    """

    classes_: np.ndarray
    head_: LinearHead
    names_: tuple[str, ...]

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None) -> Any:
        """Learn from embeddings X (m, d) and labels y (m,); choices are made on `validation` (X, y)."""

    @abstractmethod
    def transform(self, X: Any) -> Any:
        """Codes (m, n) of the rows of X, sparse or dense."""

    @property
    def coef_(self) -> np.ndarray:
        """Weights (classes, concepts)."""
        self._check_fitted()
        return self.head_.coef

    @property
    def intercept_(self) -> np.ndarray:
        """One number a class."""
        self._check_fitted()
        return self.head_.intercept

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        self._check_fitted()
        return np.array(self.names_, dtype=object)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        self._check_fitted()
        return self.head_.logits(self.transform(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X."""
        winners = self.decision_function(X).argmax(axis=1)
        return self.classes_[winners]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes_`."""
        return softmax(self.decision_function(X).astype(np.float64), axis=1)

    def explain(self, x: Any) -> Explanation:
        """Why the row x (d,) is predicted as it is."""
        self._check_fitted()
        rows = np.atleast_2d(x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x))
        if len(rows) != 1:
            raise CCRError(f"explain takes one row, got {len(rows)}: explain(X[i])")
        code = sparse.csr_matrix(self.transform(rows))
        return explain(code, self.head_, concepts=self.names_, classes=self.classes_.tolist())

    def _check_fitted(self) -> None:
        if not hasattr(self, "head_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, y)")
