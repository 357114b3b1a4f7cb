"""Planted classes with true attributes: a reviewer who knows them can answer every claim."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.geometry import unit_rows
from ccr.review import Review


class Planted(NamedTuple):
    """Images of classes whose `attributes` (C, n) are known, concepts whose texts are poor, a model, and what it has
    not seen."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    concepts: Concepts
    attributes: np.ndarray
    model: ConceptModel

    def is_true(self, label: str, concept: str) -> bool:
        return bool(self.attributes[int(label.split()[1]), int(concept.split()[1])])

    def truth(self, model: ConceptModel) -> float:
        """Share of the model's claims that are true."""
        return float(np.mean([self.is_true(claim.label, claim.concept) for claim in model.claims()]))

    def answer(self, review: Review, by: str = "ann") -> int:
        """Answer all that is open to somebody who knows the classes; how many answers that took."""
        asked = review.open(by)
        for one in asked:
            right = self.is_true(one.label, one.concept)
            reason = "" if right else "wrong of this class"
            review.decide(one.label, one.concept, "yes" if right else "no", by=by, reason=reason)
        return len(asked)


@pytest.fixture(scope="session")
def attributed() -> Planted:
    rng = np.random.default_rng(0)
    classes, n, d, m = 6, 30, 48, 1200
    attributes = rng.random((classes, n)) < 0.25
    for row in attributes:
        row[rng.choice(n, 4, replace=False)] = True
    true = unit_rows(rng.normal(size=(n, d)))
    y = rng.integers(0, classes, m)
    shown = (attributes[y] & (rng.random((m, n)) < 0.7)) * rng.uniform(0.5, 1.0, (m, n))
    shown += (rng.random((m, n)) < 0.05) * 0.5
    X = unit_rows(shown @ true + 0.25 * rng.normal(size=(m, d)))
    concepts = Concepts(
        [f"concept {row}" for row in range(n)], unit_rows(true + 0.9 * unit_rows(rng.normal(size=(n, d))))
    )
    labels = np.array([f"class {number}" for number in y])
    model = ConceptClassifier(concepts, coder=HardThreshold(length=6), random_state=0).fit(X[:800], labels[:800]).model_
    return Planted(X[:800], labels[:800], X[800:], labels[800:], concepts, attributes, model)
