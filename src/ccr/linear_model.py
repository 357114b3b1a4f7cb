"""Certain: when a model does not answer, for whatever has codes, a head and a calibration."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ccr import calibration as conformal
from ccr.calibration import Calibration, CodedLabels, calibrate, halves
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain import Explanation, Explanations, Question, explain, settling_question
from ccr.heads import LinearHead
from ccr.inputs import Embeddings, one_row
from ccr.io.provenance import Provenance
from ccr.labels import known_labels, labels_like, labels_of, seed_of, store_part
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


Kind = TypeVar("Kind", bound="Certain")


class Certain(LinearModel):
    """Temperature, prediction sets and abstention of a `ConceptModel`: docs/uncertainty.md."""

    concepts: Concepts
    calibration: Calibration | None

    def calibrated(self: Kind, X: Any, y: Any = None, *, coverage: float = 0.9, random_state: Any = 0) -> Kind:
        """The same model with a temperature and prediction sets of this coverage, by images X (m, d) and labels y (m,)
        that it was not fitted on: one half of them for each.

        `random_state`, None, a whole number or a RandomState, says which half. A calibration error that was noted with
        the model is dropped: it was that of the old temperature.
        """
        coverage = conformal.check_coverage(coverage)
        codes = self.encode(X)
        truth = known_labels(labels_of(X, y), codes.shape[0], self.classes)
        labelled = CodedLabels(codes, np.searchsorted(self.classes, truth).astype(np.int64))
        whole = isinstance(random_state, (int, np.integer)) and random_state >= 0
        seed = int(random_state) if whole else seed_of(random_state)
        found = self.with_certainty(*halves(labelled, self.classes, seed), coverage)
        return replace(found, provenance=_without_calibration_error(self.provenance))  # type: ignore[type-var]

    def with_certainty(self: Kind, warm: CodedLabels, held: CodedLabels, coverage: float) -> Kind:
        """The same model at the temperature that fits `warm`, with sets of this coverage by `held`, other images."""
        head, found = calibrate(self.head, warm, held, coverage)
        return replace(self, head=head, calibration=found)  # type: ignore[type-var]

    def predict_set(self, X: Any) -> conformal.PredictionSets:
        """For each row of X (m, d) the classes that it may be: the true one is among them as often as the coverage that
        the model was calibrated for."""
        least = self._certainty().least_probability
        return conformal.prediction_sets(self.predict_proba(X), least, tuple(self.classes.tolist()))

    def evaluate_sets(self, X: Any, y: Any = None) -> conformal.SetQuality:
        """Coverage, mean size and answered share of the prediction sets of labelled images X (m, d), y (m,)."""
        sets, asked = self.predict_set(X), self._certainty().coverage
        truth = known_labels(labels_of(X, y), len(sets), self.classes)
        return conformal.set_quality(sets, np.searchsorted(self.classes, truth), asked)

    def question(self, x: Any) -> Question | None:
        """For an embedding x (d,) that the model does not answer, the one concept whose confirmation by a person would
        settle it; None where there is none, or where nothing has to be settled."""
        certainty = self._certainty()
        rows = one_row(x)
        if not self.predict_set(rows).abstains[0]:
            return None
        images = self.images(rows).take(np.arange(1)).numpy().astype(np.float64)
        return settling_question(
            self.names,
            self.encode(rows).toarray()[0].astype(np.float64),
            (images @ self.concepts.embeddings.T)[0],
            self.head,
            typical=certainty.typical,
            classes=self.classes.tolist(),
            least=certainty.least_probability,
        )

    def _certainty(self) -> Calibration:
        if self.calibration is None:
            raise CCRError(
                "the model was not calibrated, so it does not know when not to answer: fit with coverage=0.9 (`ccr fit "
                "--coverage 0.9`), or use calibrated(X, y) with images that it was not fitted on"
            )
        return self.calibration


def _without_calibration_error(origin: Provenance) -> Provenance:
    """The same without what was measured at another temperature."""
    metrics = {
        name: {key: value for key, value in found.items() if key != "calibration_error"}
        if isinstance(found, Mapping)
        else found
        for name, found in origin.metrics.items()
    }
    return replace(origin, metrics=metrics)
