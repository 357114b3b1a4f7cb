"""RuntimeModel: an image's whole path from embedding to explanation, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.arrays import as_array
from ccr.core.explain.terms import contributions
from ccr.core.shown import Shown, of_photos
from ccr.errors import CCRError
from ccr.runtime.rows import Place, as_matrix
from ccr.runtime.selection import Select
from ccr.runtime.why import RuntimeExplanation

#: About this many numbers are worked on at once, so that memory does not grow with the rows.
CHUNK_VALUES = 1_000_000


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """A fitted model that predicts and explains; `ccr.runtime.load` reads it.

    Parameters
    ----------
    place : where images are put before they meet concepts.
    names : of the concepts (n).
    concepts : their unit embeddings (n, d), float64, in which scores are computed.
    select : from scores (b, n) to codes.
    coef, intercept : weights (classes, n) and biases (classes,).
    classes : labels (classes,), sorted.
    answers : what is known of each class and concept (classes, n): 1 yes, -1 no, 0 unknown.
    shown : from scores to the probability that an image shows a concept; None where the model has no such map.
    encoder, encoder_fingerprint : which encoder's embeddings it reads; None where nobody knows.
    """

    place: Place
    names: tuple[str, ...]
    concepts: np.ndarray
    select: Select
    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    answers: np.ndarray
    shown: Shown | None = None
    encoder: str | None = None
    encoder_fingerprint: str | None = None

    @property
    def dimension(self) -> int:
        """Columns that X must have."""
        return int(self.concepts.shape[1])

    def encode(self, X: Any) -> np.ndarray:
        """Codes (m, n) of the embeddings X (m, d): the scores of the active concepts, zero elsewhere."""
        return np.concatenate(list(self._codes(X)))

    def logits(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        weights, bias = self.coef.T.astype(np.float32), self.intercept.astype(np.float32)
        return np.concatenate([codes @ weights + bias for codes in self._codes(X)])

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X (m, d)."""
        return self.classes[self.logits(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes`."""
        return self._probabilities(self.logits(X))

    def explain(self, x: Any) -> RuntimeExplanation:
        """Why the embedding x (d,) is predicted as it is."""
        rows = np.atleast_2d(as_array(x))
        if len(rows) != 1:
            raise CCRError(f"explain takes one embedding, got {len(rows)} rows: explain(X[i])")
        (code,) = self.encode(rows).astype(np.float64)
        columns = np.flatnonzero(code)
        weights, biases = self.coef[:, columns].astype(np.float64), self.intercept.astype(np.float64)
        active, values = tuple(self.names[column] for column in columns), code[columns]
        logits = weights @ values + biases
        winner = int(logits.argmax())
        probabilities = self._probabilities(logits[None])[0]
        classes = self.classes.tolist()
        shown = of_photos(self.shown)
        likely = None if shown is None else shown.probabilities(values, columns)
        return RuntimeExplanation(
            prediction=classes[winner],
            probability=float(probabilities[winner]),
            logit=float(logits[winner]),
            bias=float(biases[winner]),
            contributions=contributions(active, values, weights[winner], self.answers[winner, columns], likely),
            classes=tuple(classes),
            probabilities=probabilities,
            active=active,
            codes=values,
            weights=weights,
            biases=biases,
            answers=self.answers[:, columns],
            shown=likely,
        )

    def _codes(self, X: Any) -> Iterator[np.ndarray]:
        """Codes of some rows of X after the other, in order."""
        rows = as_matrix(X, self.dimension)
        size = max(1, CHUNK_VALUES // max(self.concepts.shape))
        for start in range(0, len(rows), size):
            scores = self.place.put(rows[start : start + size], start) @ self.concepts.T
            yield self.select(scores).astype(np.float32)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        wide = logits.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
