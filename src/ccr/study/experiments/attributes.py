"""Do codes mean what the concepts' names say? Agreement with what people saw in the images of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ccr.core.coding import apply_rule
from ccr.core.inputs import Embeddings
from ccr.core.metrics import Interval, paired_bootstrap
from ccr.errors import CCRError
from ccr.models.classifier import ConceptClassifier


@dataclass(frozen=True)
class Agreement:
    """Mean over concepts of the AUC with which a class's mean code tells classes that have the attribute from those
    that have not, in [0, 1], with its interval over concepts; 0.5 is chance. `by_concept` (n,) has each concept's."""

    auc: float
    interval: Interval
    by_concept: np.ndarray


def auc_by_column(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each column, the chance that an item with the attribute scores above one without (ties count half).

    `scores` and `truth` (items, columns); every column of `truth` needs both values.
    """
    truth = np.asarray(truth, bool)
    if scores.shape != truth.shape:
        raise CCRError(f"scores and truth must have the same shape, got {scores.shape} and {truth.shape}")
    positive = truth.sum(axis=0)
    same = np.flatnonzero((positive == 0) | (positive == len(truth)))
    if len(same):
        raise CCRError(f"an attribute must differ between classes, column {same[0]} does not: leave it out")
    above = (rankdata(scores, axis=0) * truth).sum(axis=0) - positive * (positive + 1) / 2
    return np.asarray(above / (positive * (len(truth) - positive)))


def agreement(codes: Any, y: np.ndarray, truth: np.ndarray) -> Agreement:
    """Agreement of codes with what people saw in the images of each class.

    Parameters
    ----------
    codes : sparse matrix or array (m, n)
        Codes of the images.
    y : array (m,)
        Class numbers of the images, in [0, C); every class has an image.
    truth : boolean array (C, n)
        Which class has which attribute; every attribute differs between classes.
    """
    classes = np.arange(len(truth))
    counts = np.bincount(y, minlength=len(classes))
    if (counts == 0).any():
        raise CCRError(f"class {int(np.argmin(counts))} has attributes but no images: leave it out")
    member = (y[None, :] == classes[:, None]) / counts[:, None]
    by_concept = auc_by_column(np.asarray(member @ codes), truth)
    return Agreement(float(by_concept.mean()), paired_bootstrap(by_concept[None, :])[0][0], by_concept)


def agreement_before_and_after(
    model: ConceptClassifier, X: Any, y: np.ndarray, truth: np.ndarray
) -> tuple[Agreement, Agreement]:
    """Agreement of the model's codes where its refinement started (at the same length) and where it ended.

    X (m, d) are embeddings; the columns of `truth` (C, n) are the model's concepts in order, and y (m,) numbers its
    rows.
    """
    start, end = model.initial_concepts_.embeddings, model.concepts_.embeddings
    embeddings = Embeddings(X, mean=model.space_.image_mean)
    before = apply_rule(model.rule_.recalibrated(embeddings, start), embeddings, start)
    return agreement(before, y, truth), agreement(apply_rule(model.rule_, embeddings, end), y, truth)
