"""Base class of all fitted models: codes over named columns, and a linear head on them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain import Explanation, Explanations, explain
from ccr.heads import LinearHead
from ccr.inputs import Embeddings, one_row
from ccr.io.provenance import Provenance
from ccr.labels import labels_like, labels_of, store_part
from ccr.shown import of_photos
from ccr.space import Space
from ccr.utils.arrays import LazyModule, softmax

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")


class LinearModel(ABC):
    """Base class of all fitted models: `space.images(X)` -> `encode` -> `head` -> prediction and explanation.

    Logits are those of a linear head on codes over named columns. A model is never changed.
    """

    space: Space
    head: LinearHead
    classes: np.ndarray
    provenance: Provenance

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the codes' columns."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Columns that X must have."""

    @abstractmethod
    def encode(self, X: Any) -> Any:
        """Codes (m, n) of the embeddings X (m, d), CSR or dense."""

    @abstractmethod
    def map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """`use` of the logits (b, classes) of some rows of X after the other, in order."""

    def logits(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        return np.concatenate(self.map_logits(X, lambda logits: logits))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X (m, d)."""
        return self.classes[np.concatenate(self.map_logits(X, lambda logits: logits.argmax(axis=1)))]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes`."""
        return np.concatenate(self.map_logits(X, lambda logits: softmax(logits.astype(np.float64), axis=1)))

    def score(self, X: Any, y: Any = None) -> float:
        """Share of the rows of X (m, d) whose prediction is their label y (m,); a store brings its own labels."""
        predicted = self.predict(X)
        return float(np.mean(predicted == labels_like(self.classes, labels_of(X, y), len(predicted))))

    def explain(self, x: Any) -> Explanation:
        """Why the embedding x (d,) is predicted as it is."""
        return self._explained(self._row_code(one_row(x)))

    def explain_many(self, X: Any) -> Explanations:
        """Why each row of the embeddings X (m, d) is predicted as it is; `to_frame` makes a table of it."""
        codes = sparse.csr_matrix(self._explained_code(X))
        return Explanations(
            [self._explained(codes[row]) for row in range(codes.shape[0])],
            list(X.index) if hasattr(X, "index") and hasattr(X, "columns") else None,
        )

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder; an older model there is replaced whole."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | os.PathLike[str]) -> LinearModel:
        """Read a model written by `save`."""

    def images(self, X: Any) -> Embeddings:
        """X (m, d) in the model's space; embeddings of another encoder or dimension are refused."""
        theirs, ours = store_part(X, "fingerprint"), self.provenance.encoder_fingerprint
        if theirs is not None and ours is not None and theirs != ours:
            raise CCRError(
                f"this model reads embeddings of encoder {ours}, got a store of encoder {theirs}: "
                "embed the images with the model's encoder"
            )
        embeddings = self._placed(X)
        embeddings.check_dimension(self.dimension)
        return embeddings

    def _row_code(self, rows: np.ndarray) -> Any:
        """Code of one row (1, d) for its explanation: CSR, or `Entries`."""
        return self._explained_code(rows)

    def _explained_code(self, rows: Any) -> sparse.csr_matrix:
        """Codes of rows (m, d) for their explanations."""
        return sparse.csr_matrix(self.encode(rows))

    @property
    def answers(self) -> np.ndarray | None:
        """Known answers about each class and column (classes, n): 1 yes, -1 no, 0 unknown; None if columns are not
        concepts."""
        return None

    def _explained(self, code: Any) -> Explanation:
        """The explanation of one code (1, n)."""
        classes = self.classes.tolist()
        shown = of_photos(getattr(self, "shown", None))
        return explain(code, self.head, concepts=self.names, classes=classes, answers=self.answers, shown=shown)

    def _placed(self, X: Any) -> Embeddings:
        return self.space.images(X)

    def _freeze(self) -> None:
        """Make the head's arrays and the classes read-only."""
        for array in (self.head.coef, self.head.intercept, self.classes):
            array.setflags(write=False)
