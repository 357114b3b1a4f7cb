"""Certain: when a model does not answer, for whatever has codes, a head and a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ccr.core import conformal
from ccr.core.concepts import Concepts
from ccr.core.explain import Question, settling_question
from ccr.errors import CCRError
from ccr.models.calibration import Calibration, Coded, calibrate, halves
from ccr.models.labels import known_labels, labels_of, seed_of
from ccr.models.linear_model import LinearModel, one_row
from ccr.models.provenance import Provenance

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
        labelled = Coded(codes, np.searchsorted(self.classes, truth).astype(np.int64))
        whole = isinstance(random_state, (int, np.integer)) and random_state >= 0
        seed = int(random_state) if whole else seed_of(random_state)
        found = self.with_certainty(*halves(labelled, self.classes, seed), coverage)
        return replace(found, provenance=_without_calibration_error(self.provenance))  # type: ignore[type-var]

    def with_certainty(self: Kind, warm: Coded, held: Coded, coverage: float) -> Kind:
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
