"""Repeated fits of a model: cross-validation, and stability of the concepts that explanations show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedGroupKFold

from ccr.classifier import ConceptClassifier
from ccr.controls import one_thread_each
from ccr.errors import CCRError
from ccr.metrics import SHOWN, Interval, largest_shown
from ccr.utils.processes import Tell, no_progress

#: Refits between which stability is measured, unless another number is asked for.
REFITS = 5
#: Samples of groups from which an interval is taken.
ROUNDS = 2000


@dataclass(frozen=True)
class CrossValidation:
    """Accuracy of a model's settings on images that its refits did not see: every image is in one of the `folds`.

    `accuracy` is that of all images, `by_fold` that of each fold, in [0, 1]; `interval` holds 95 % of what samples of
    the groups give, so that images of one object do not count as many. `groups` is their number; where nothing joins
    images, that of the images.
    """

    n: int
    groups: int
    accuracy: float
    interval: Interval
    by_fold: tuple[float, ...]

    @property
    def folds(self) -> int:
        return len(self.by_fold)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**asdict(self), "folds": self.folds, "interval": list(self.interval), "by_fold": list(self.by_fold)}


@dataclass(frozen=True)
class Stability:
    """Stability of explanations when the model is fitted again, with another seed and on a bootstrap sample of the
    training images.

    `overlap` is the mean over images and pairs of `refits` of the Jaccard index of the up to five concepts shown first:
    shown by both / shown by either, 1 where nothing changes. `overlap_same_class` is the same where both predict the
    same class, `same_class` the share of such images and pairs, `lasting_claims` the share of the model's claims
    (positive weights) that every refit makes, too. `images` are those that it was measured on.
    """

    refits: int
    images: int
    overlap: float
    overlap_same_class: float
    same_class: float
    lasting_claims: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return asdict(self)


def in_words(found: Stability) -> str:
    """Stability in a few sentences."""
    return (
        f"Stability over {found.refits} refits with other seeds and samples of the training images: of the {SHOWN} "
        f"concepts shown first for an image, {found.overlap:.2f} stay from one refit to another (shown by both / by "
        f"either), {found.overlap_same_class:.2f} where both predict the same class, as they do for "
        f"{found.same_class:.0%}. {found.lasting_claims:.0%} of the model's positive weights are in every refit. A "
        "reason that comes and goes is not a reason."
    )


def cross_validate(
    model: ConceptClassifier,
    X: Any,
    y: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    folds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    tell: Tell = no_progress,
) -> CrossValidation:
    """Fit the model's settings on all folds but one and measure on that one, each in turn.

    Parameters
    ----------
    X, y : embeddings (m, d), an array or a store, and labels (m,).
    groups : what must not be parted (m,), such as `store.groups`. None: images are divided one by one.
    folds : how many, from 2 to the number of groups of the rarest class.
    seed : which images are in which fold; the model keeps its own.
    jobs : models fitted at a time, each on one thread.
    """
    groups = np.arange(len(y)) if groups is None else np.asarray(groups)
    least, name = min((len(set(groups[y == label])), str(label)) for label in np.unique(y))
    if not 2 <= folds <= least:
        raise CCRError(
            f"folds must be from 2 to the number of images, or groups of images, of the rarest class, which is {least} "
            f"({name!r}), got {folds}: give fewer folds, or more images of that class"
        )
    parts = list(StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y, groups))
    right = np.empty(len(y), bool)

    def measure(part: tuple[np.ndarray, np.ndarray]) -> float:
        train, test = part
        fitted = ConceptClassifier(**model.get_params(deep=False)).fit(_rows(X, train), y[train])
        right[test] = fitted.predict(_rows(X, test)) == y[test]
        return float(right[test].mean())

    by_fold = _in_turn(measure, parts, jobs, "fitting folds", tell)
    numbers = np.unique(groups, return_inverse=True)[1]
    sizes, hits = np.bincount(numbers), np.bincount(numbers, weights=right)
    drawn = np.random.default_rng(seed).integers(0, len(sizes), (ROUNDS, len(sizes)))
    shares = hits[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    interval = Interval(*(float(end) for end in np.percentile(shares, [2.5, 97.5])))
    return CrossValidation(len(y), len(sizes), float(right.mean()), interval, tuple(by_fold))


def stability(
    model: ConceptClassifier,
    train: Any,
    y: np.ndarray,
    images: Any,
    *,
    validation: Any = None,
    refits: int = REFITS,
    seed: int = 0,
    jobs: int = 1,
    tell: Tell = no_progress,
) -> Stability:
    """Fit the model's settings `refits` times, each on a bootstrap sample of `train` with a seed of its own, and
    compare what is shown for `images` (m, d).

    `validation`, an (X, y) or a store, chooses the epoch of every refit.
    """
    if refits < 2:
        raise CCRError(f"stability needs at least 2 refits to compare, got {refits}")
    names = {name: number for number, name in enumerate(model.get_params(deep=False)["concepts"].names)}

    def refit(number: int) -> tuple[np.ndarray, sparse.csr_matrix, set[tuple[str, str]]]:
        rows = np.sort(np.random.default_rng([seed, number]).integers(0, len(y), len(y)))
        settings = {**model.get_params(deep=False), "random_state": seed + 1 + number}
        fitted = ConceptClassifier(**settings).fit(_rows(train, rows), y[rows], validation=validation)
        return fitted.predict(images), _shown(fitted, images, names), _claims(fitted)

    found = _in_turn(refit, range(refits), jobs, "fitting again", tell)
    overlaps, alike = [], []
    for (first, ours, _), (second, theirs, _) in combinations(found, 2):
        both = np.asarray(ours.multiply(theirs).sum(axis=1)).ravel()
        either = np.asarray(ours.sum(axis=1)).ravel() + np.asarray(theirs.sum(axis=1)).ravel() - both
        overlaps.append(np.where(either > 0, both / np.maximum(either, 1), 1.0))
        alike.append(first == second)
    overlap, same = np.concatenate(overlaps), np.concatenate(alike)
    own = _claims(model)
    lasting = own.intersection(*(claims for _, _, claims in found))
    return Stability(
        refits=refits,
        images=len(found[0][0]),
        overlap=float(overlap.mean()),
        overlap_same_class=float(overlap[same].mean()) if same.any() else 0.0,
        same_class=float(same.mean()),
        lasting_claims=len(lasting) / max(len(own), 1),
    )


def _shown(model: ConceptClassifier, images: Any, names: dict[str, int]) -> sparse.csr_matrix:
    """Indicator matrix (m, n) of the concepts `names` that are shown first for each image, 1 or 0."""
    codes = sparse.csr_matrix(model.transform(images))
    chosen = largest_shown(codes, model.head_, SHOWN)
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[chosen]
    column = np.array([names[name] for name in model.model_.names])[codes.indices[chosen]]
    return sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=(codes.shape[0], len(names)))


def _claims(model: ConceptClassifier) -> set[tuple[str, str]]:
    """Pairs of a class and a concept with a positive weight for it."""
    rows, columns = np.nonzero(model.head_.coef > 0)
    labels, names = model.classes_, model.model_.names
    return {(str(labels[row]), names[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)}


def _rows(X: Any, rows: np.ndarray) -> Any:
    select = getattr(X, "select", None)
    return X[rows] if select is None else select(rows=rows)


def _in_turn(work: Any, items: Sequence[Any], jobs: int, what: str, tell: Tell) -> list[Any]:
    """`work` of every item, in order, `jobs` at a time."""
    results = []
    tell(0, len(items), what)
    with one_thread_each(jobs) as pool:
        for done, result in enumerate(pool.map(work, items), start=1):
            results.append(result)
            tell(done, len(items), what)
    return results
