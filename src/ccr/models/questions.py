"""Questions to a fitted model: views, co-activation, images of a concept, drift audit, interventions, edits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.coding import Rule, code_chunks
from ccr.core.concepts import Concepts
from ccr.core.explain import (
    Audit,
    Coactivation,
    CoactivationOrder,
    ImageActivation,
    InterventionCurve,
    ModelView,
    Order,
    audit,
    coactivation,
    intervention_curve,
    top_images,
    view_codes,
)
from ccr.core.explain.intervention import CorrectedBatch
from ccr.core.heads import LinearHead
from ccr.core.inputs import Embeddings
from ccr.errors import CCRError
from ccr.models.edit import EditSession


class Questions(ABC):
    """What can be asked of a fitted `ConceptClassifier`; mixed into it."""

    concepts_: Concepts
    initial_concepts_: Concepts
    rule_: Rule
    classes_: np.ndarray
    coef_: np.ndarray

    @property
    @abstractmethod
    def head_(self) -> LinearHead: ...

    @abstractmethod
    def _check_fitted(self) -> None: ...

    @abstractmethod
    def _read(self, X: Any) -> Embeddings: ...

    @abstractmethod
    def _known_labels(self, y: Any, m: int) -> np.ndarray: ...

    def view(self, X: Any, y: Any = None) -> ModelView:
        """What carries each class, which classes are confused and which concepts are unused, on (X, y).

        A store brings its own labels; without any, images count for the class predicted.
        """
        numbers = self._numbers(X, y)
        return view_codes(
            self._codes(X), self.head_, concepts=self.concepts_.names, classes=self.classes_.tolist(), y=numbers
        )

    def coactivation(self, X: Any, *, top: int = 20, by: CoactivationOrder = "jaccard") -> tuple[Coactivation, ...]:
        """The pairs of concepts most often active in the same images of X."""
        return coactivation(self._codes(X), concepts=self.concepts_.names, top=top, by=by)

    def images_of(
        self, X: Any, concepts: str | Sequence[str] | None = None, *, top: int = 9
    ) -> dict[str, tuple[ImageActivation, ...]]:
        """For each of these concepts (None: all), the rows of X that show it most."""
        self._check_fitted()
        names = [concepts] if isinstance(concepts, str) else self.concepts_.names if concepts is None else concepts
        columns = np.array([self.concepts_.index(name) for name in names], dtype=np.int64)
        found = top_images(self._codes(X), columns=columns, top=top)
        return {self.concepts_.names[column]: rows for column, rows in zip(columns, found, strict=True)}

    def audit(self, X: Any = None, *, neighbours: int = 5, images: int = 5) -> Audit:
        """Are refined concepts still themselves? With X, also the images whose codes the refinement changed most.

        Codes before refinement are made with the threshold that gives them the same length, if a length was asked for.
        """
        self._check_fitted()
        before = after = None
        if X is not None:
            start, embeddings = self.initial_concepts_.embeddings, self._read(X)
            before, after = code_chunks(self.rule_.recalibrated(embeddings, start), embeddings, start), self._codes(X)
        return audit(
            self.initial_concepts_, self.concepts_, before=before, after=after, neighbours=neighbours, images=images
        )

    def intervention_curve(
        self,
        X: Any,
        y: Any = None,
        *,
        correct: ModelView | Any,
        steps: Sequence[int] = (0, 1, 2, 3, 5, 8, 13, 20),
        order: Order = "effect",
        random_state: int = 0,
    ) -> InterventionCurve:
        """Accuracy on (X, y) against the number of code entries that are set to what they should be.

        `correct` are the codes of each class (classes, concepts), or a `view` of other data, whose classes' mean
        codes are taken: as if somebody who knows the true class corrected the concepts.
        """
        numbers = self._numbers(X, y)
        if numbers is None:
            raise CCRError("an intervention curve needs the true labels, got None: give y")
        codes = np.asarray(correct.mean_codes if isinstance(correct, ModelView) else correct, dtype=np.float64)
        if codes.shape != self.coef_.shape:
            raise CCRError(f"correct must be (classes, concepts) = {self.coef_.shape}, got {codes.shape}")
        return intervention_curve(
            self._corrected(X, numbers, codes), self.head_, steps=steps, order=order, seed=random_state
        )

    def edit(self) -> EditSession:
        """Start an `EditSession`: suppress, scale, rename, pin, merge or add concepts, set weights, refit, undo.

        This model stays as it is; the session's `model()` is the edited one.
        """
        self._check_fitted()
        return EditSession(self)

    def _codes(self, X: Any) -> Iterator[sparse.csr_matrix]:
        embeddings = self._read(X)
        return code_chunks(self.rule_, embeddings, self.concepts_.embeddings)

    def _numbers(self, X: Any, y: Any) -> np.ndarray | None:
        """Class numbers of the labels given, or of those that X brings; None if there are none."""
        embeddings = self._read(X)
        labels = getattr(X, "y", None) if y is None else y
        if labels is None:
            return None
        return np.asarray(np.searchsorted(self.classes_, self._known_labels(labels, len(embeddings))))

    def _corrected(self, X: Any, numbers: np.ndarray, correct: np.ndarray) -> Iterator[CorrectedBatch]:
        done = 0
        for codes in self._codes(X):
            y = numbers[done : done + codes.shape[0]]
            yield CorrectedBatch(codes, correct[y], y)
            done += codes.shape[0]
