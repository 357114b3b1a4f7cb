"""Do codes and explanations mean what the concepts' names say? Agreement with what people saw in the images.

What people saw is a table of booleans: a row for each class, a column for each concept. Where they marked every image,
each image is a row of its own, and its number stands for a class number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from ccr.classifier import ConceptClassifier
from ccr.coding import apply_rule, rule_at_length
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.metrics import Interval, largest_shown, paired_bootstrap

#: As many concepts of an explanation are judged: those a reader sees first.
TOP = 5
ROUNDS = 4000


@dataclass(frozen=True)
class ConceptAgreement:
    """Mean over concepts of the AUC with which a class's mean code tells classes that have the attribute from those
    that have not, in [0, 1], with its interval over concepts; 0.5 is chance. `by_concept` (n,) has each concept's."""

    auc: float
    interval: Interval
    by_concept: np.ndarray


@dataclass(frozen=True, eq=False)
class Truth:
    """Share of the concepts that explanations name first which people saw, with its interval over classes.

    `base_rate` is the share among all concepts, which naming at random would reach. `named` (C,) counts by class the
    concepts that explanations name, `seen` (C,) those of them that people saw.
    """

    share: float
    interval: Interval
    base_rate: float
    named: np.ndarray
    seen: np.ndarray


def auc_by_column(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """AUC of each column: the chance that an item with the attribute scores above one without (ties count half).

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


def agreement(codes: Any, y: np.ndarray, truth: np.ndarray) -> ConceptAgreement:
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
    y = _class_numbers(y, codes.shape[0], len(truth))
    counts = np.bincount(y, minlength=len(truth))
    if (counts == 0).any():
        raise CCRError(f"class {int(np.argmin(counts))} has attributes but no images: leave it out")
    member = sparse.csr_matrix((1 / counts[y], (y, np.arange(len(y)))), shape=(len(truth), len(y)))
    means = member @ codes
    by_concept = auc_by_column(means.toarray() if sparse.issparse(means) else means, truth)
    return ConceptAgreement(float(by_concept.mean()), paired_bootstrap(by_concept[None, :])[0][0], by_concept)


def explanation_truth(codes: Any, head: LinearHead, y: np.ndarray, truth: np.ndarray, *, top: int = TOP) -> Truth:
    """Truth of explanations (Measures, docs/method.md): of the `top` largest positive contributions to the predicted
    class, of concepts that the image shows (a positive code), the share that people saw in the image's true class.

    Parameters
    ----------
    codes : sparse matrix or array (m, n)
        Codes of the images.
    head : LinearHead
        Weights (classes, n) that make the predictions.
    y : array (m,)
        True class numbers of the images, in [0, C).
    truth : boolean array (C, n)
        Which class has which attribute.
    """
    codes, truth = sparse.csr_matrix(codes), np.asarray(truth, bool)
    y = _class_numbers(y, codes.shape[0], len(truth))
    if codes.shape != (len(y), truth.shape[1]):
        raise CCRError(
            f"codes must be (images, attributes) = {(len(y), truth.shape[1])}, got {codes.shape}: truth has a column "
            "for each concept"
        )
    entries = np.flatnonzero(largest_shown(codes, head, top))
    if not len(entries):
        raise CCRError("no explanation names a concept that its image shows, so none can be true or false")
    classes = np.repeat(y, np.diff(codes.indptr))[entries]
    named = np.bincount(classes, minlength=len(truth))
    seen = np.bincount(classes, weights=truth[classes, codes.indices[entries]], minlength=len(truth))
    interval = _ends(_redrawn(named, seen))
    return Truth(float(seen.sum() / named.sum()), interval, float(truth[y].mean()), named, seen)


def truth_difference(one: Truth, other: Truth) -> tuple[float, Interval]:
    """Difference in truth of the first, with its interval: the same classes are drawn for both."""
    if len(one.named) != len(other.named):
        raise CCRError(f"both must be of the same classes, got {len(one.named)} and {len(other.named)}")
    apart = _redrawn(one.named, one.seen) - _redrawn(other.named, other.seen)
    return one.share - other.share, _ends(apart)


def model_truth(model: ConceptClassifier, X: Any, y: np.ndarray, truth: np.ndarray, *, top: int = TOP) -> Truth:
    """`explanation_truth` of a fitted model on X (m, d); the columns of `truth` are the concepts it was given."""
    columns = _kept_columns(model, truth)
    return explanation_truth(model.transform(X), model.head_, y, truth[:, columns], top=top)


def agreement_before_and_after(
    model: ConceptClassifier, X: Any, y: np.ndarray, truth: np.ndarray
) -> tuple[ConceptAgreement, ConceptAgreement]:
    """Agreement of the model's codes where its refinement started (at the same length) and where it ended.

    X (m, d) are embeddings; the columns of `truth` (C, n) are the concepts that the model was given, in order (those it
    left out do not count), and y (m,) numbers its rows.
    """
    start, embeddings, after = model.initial_concepts_.embeddings, model.space_.images(X), model.transform(X)
    before = apply_rule(rule_at_length(model.rule_, after.nnz / len(embeddings), embeddings, start), embeddings, start)
    left = truth[:, _kept_columns(model, truth)]
    return agreement(before, y, left), agreement(after, y, left)


def _class_numbers(y: Any, images: int, classes: int) -> np.ndarray:
    """The classes of the images as row numbers of `truth`; an error for labels that are none."""
    numbers = np.asarray(y)
    if numbers.shape != (images,):
        raise CCRError(f"y must have a class number for each of the {images} images, got shape {numbers.shape}")
    if numbers.dtype.kind not in "iu" or (images and not 0 <= numbers.min() <= numbers.max() < classes):
        seen = f"{numbers.dtype} {numbers.min()} to {numbers.max()}" if numbers.dtype.kind in "iuf" else numbers.dtype
        rule = f"y must number the {classes} rows of truth, from 0 to {classes - 1}"
        raise CCRError(f"{rule}, got {seen}: give the row of each image's class")
    return numbers.astype(np.int64)


def _kept_columns(model: ConceptClassifier, truth: np.ndarray) -> list[int]:
    """Which of the concepts that a model was given are still in it: a sparse head leaves some out, and a model of an
    older version, once loaded, knows only the others."""
    assert model.concepts is not None
    if truth.shape[1] != len(model.concepts):
        raise CCRError(
            f"truth must have a column for each of the {len(model.concepts)} concepts of model.concepts, in their "
            f"order, got {truth.shape[1]}: a model of an older version has only those that it kept"
        )
    return [model.concepts.index(name) for name in model.concepts_.names]


def _redrawn(named: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The share `seen` / `named` (C,) over classes drawn with replacement, (ROUNDS,); the same draws in every call.

    Images of one class share what people saw, so that classes, not images, are the independent ones.
    """
    rng, count = np.random.default_rng(0), len(named)
    drawn = (np.bincount(rng.integers(0, count, count), minlength=count) for _ in range(ROUNDS))
    sums = np.array([(times @ seen, times @ named) for times in drawn])
    with np.errstate(invalid="ignore"):  # a draw may miss every class that names something
        return np.asarray(sums[:, 0] / sums[:, 1])


def _ends(values: np.ndarray) -> Interval:
    return Interval(*map(float, np.nanpercentile(values, [2.5, 97.5])))
