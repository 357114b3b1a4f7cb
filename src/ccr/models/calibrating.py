"""Which images a fit is calibrated on: those that choose the epoch give the temperature, others the sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ccr.core.coding import apply_rule
from ccr.core.conformal import check_coverage, fewest_images
from ccr.core.inputs import Embeddings
from ccr.errors import CCRError
from ccr.models.calibration import SHARE, Coded, half_rows, halves
from ccr.models.concept_model import ConceptModel
from ccr.models.labels import MOST_VALIDATION, Labels, validation_rows


class Placed(NamedTuple):
    """Images in the model's space, with class numbers."""

    images: Embeddings
    y: np.ndarray

    def coded(self, model: ConceptModel) -> Coded:
        """Their codes by a model."""
        return Coded(apply_rule(model.rule, self.images, model.concepts.embeddings), self.y)


class Parts(NamedTuple):
    """What chooses the epoch (as `refine` takes it), which rows are not trained on, and what gives temperature (None:
    half of the other) and sets."""

    watched: Any
    left_out: np.ndarray | None
    warm: Placed | None
    held: Placed
    coverage: float
    seed: int

    def calibrated(self, model: ConceptModel) -> ConceptModel:
        """The fitted model with its certainty."""
        held = self.held.coded(model)
        if self.warm is None:
            return model.with_certainty(*halves(held, model.classes, self.seed), self.coverage)
        return model.with_certainty(self.warm.coded(model), held, self.coverage)


def hold_out(images: Embeddings, labels: Labels, watched: Any, *, coverage: float, seed: int) -> Parts:
    """Parts for a fit: `watched` are rows of the `images`, or (other images, class numbers), which are shared."""
    coverage = check_coverage(coverage)
    if isinstance(watched, tuple):
        other, y = watched
        first = validation_rows(Labels(labels.classes, y), 0.5, seed=seed, most=len(y))
        second = np.setdiff1d(np.arange(len(y)), first)
        _check_enough(len(second) if len(first) else 0, coverage)
        warm, held = (_placed(other, y, rows) for rows in (first, second))
        parts = Parts(tuple(warm), None, warm, held, coverage, seed)
    else:
        rest = np.setdiff1d(np.arange(len(labels.y)), watched)
        chosen = validation_rows(Labels(labels.classes, labels.y[rest]), SHARE, seed=seed, most=MOST_VALIDATION)
        left_out = rest[chosen]
        _check_enough(len(left_out), coverage)
        chose = _placed(images, labels.y, watched) if len(watched) else None
        parts = Parts(watched, left_out, chose, _placed(images, labels.y, left_out), coverage, seed)
        if parts.warm is None:
            first, second = half_rows(parts.held.y, labels.classes, seed)
            _check_enough(len(second) if len(first) else 0, coverage)
    return parts


def _check_enough(images: int, coverage: float) -> None:
    """Sets of this coverage need so many images, beside those that give the temperature."""
    fewest = fewest_images(coverage)
    if images < fewest:
        raise CCRError(
            f"a coverage of {coverage:g} needs at least {fewest} images to calibrate on, beside those that choose "
            f"epoch and temperature, and only {images} can be held out: ask for less, give more images, or a larger "
            "validation=(X, y), which is the split val of a store"
        )


def _placed(images: Embeddings, y: np.ndarray, rows: np.ndarray) -> Placed:
    return Placed(Embeddings.ready(images.take(rows)), y[rows])
