"""Measures (docs/method.md): accuracy and its intervals, code length, fidelity, deviation, calibration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings, Moments
from ccr.utils.arrays import LazyModule, is_sparse, is_tensor
from ccr.utils.parameters import is_number

if TYPE_CHECKING:
    import torch
    from scipy import sparse, special
else:
    torch = LazyModule("torch")
    sparse = LazyModule("scipy.sparse")
    special = LazyModule("scipy.special")

#: Concepts of an image whose truth is measured: those that an explanation names first.
SHOWN = 5
#: Draws of a bootstrap, and the percentiles between which 95 % of them lie.
ROUNDS, ENDS = 4000, [50 * (1 - 0.95), 50 * (1 + 0.95)]
#: Effective concepts per class over which ANEC is the mean.
ANEC = (5, 10, 15, 20, 25, 30)


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float

    def turned(self) -> Interval:
        """Interval of the negated quantity."""
        return Interval(0.0 - self.high, 0.0 - self.low)  # 0 stays 0, without a minus


class Deviation(NamedTuple):
    """Deviation of concepts from their start: mean (ACED) and maximum of |d_i - d0_i|."""

    mean: float
    max: float


class Fidelity(NamedTuple):
    """Correlation of concepts' scores with those of their own texts: mean and least."""

    mean: float
    min: float

    @classmethod
    def of(cls, values: np.ndarray) -> Fidelity:
        """Mean and minimum over concepts of their `values` (n,), NaN left out: concepts that score all images alike."""
        known = values[np.isfinite(values)]
        return cls(float(known.mean()), float(known.min())) if len(known) else cls(math.nan, math.nan)


@dataclass(frozen=True)
class Evaluation:
    """Result of `ConceptClassifier.evaluate` on `n` images.

    `length` is the mean number of active concepts per image (AEL), `sparsity` is length / concepts of the list (ASR),
    `in_play` the mean number of active concepts with a weight for any class, `weights_per_class` the mean number of
    nonzero weights, `fidelity` how far concepts see what their texts see, `deviation` how far they moved in refinement,
    `retention` the share of refined concepts whose nearest start is their own. Of the predictions, `macro_f1` is the
    mean of the classes' F1 scores, `top5` the share of images whose class is among the first five, `calibration_error`
    how far confidence is from accuracy (ECE); `class_images` counts the images of each class; `without_reason` is the
    share of images that show none of the concepts that speak for or against their predicted class.

    With knowledge, else None: `truth` is the share of shown concepts (up to `SHOWN` an image) that are true of the
    image's own class, among those with an answer, `unanswered` the share of shown concepts without one; `transfer` the
    mean AUC of concepts on classes that their grounding left out; `text_fidelity` the fidelity to the bare texts;
    `claims` counts the model's claims by status.
    """

    n: int
    accuracy: float
    interval: Interval
    length: float
    sparsity: float
    in_play: float
    weights_per_class: float
    fidelity: Fidelity
    deviation: Deviation
    retention: float
    per_class: Mapping[Any, float]
    class_images: Mapping[Any, int]
    macro_f1: float
    top5: float
    calibration_error: float
    without_reason: float = 0.0
    truth: float | None = None
    unanswered: float | None = None
    transfer: float | None = None
    text_fidelity: Fidelity | None = None
    claims: Mapping[str, int] | None = None

    @property
    def is_told(self) -> bool:
        """Whether at least half of the shown concepts have an answer: `truth` and `transfer` by fewer are no sample of
        what is shown."""
        return (self.unanswered or 0.0) <= 0.5

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        fields = asdict(self)
        for name in ("fidelity", "text_fidelity", "deviation"):
            field = getattr(self, name)
            fields[name] = None if field is None else {part: finite(value) for part, value in field._asdict().items()}
        for name in ("per_class", "class_images"):
            fields[name] = {str(label): value for label, value in getattr(self, name).items()}
        return {**fields, "interval": list(self.interval)}


def finite(value: float) -> float | None:
    """The value itself, or None in place of NaN and infinities, which JSON does not know."""
    return value if math.isfinite(value) else None


def accuracy(truth: Any, predicted: Any) -> float:
    """Share of predictions that equal the truth."""
    truth, predicted = _pair(truth, predicted)
    return float(np.mean(truth == predicted))


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Agreement of two judges beyond chance: 1 if all verdicts are equal, 0 if as many as by chance.

    None where chance alone makes all verdicts equal (both gave one and the same verdict throughout), or without any.
    """
    n = len(pairs)
    first, second = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    # In whole numbers, so that "by chance all equal" is decided exactly.
    equal, chance = n * sum(one == other for one, other in pairs), sum(first[key] * second[key] for key in first)
    return None if chance == n * n else (equal - chance) / (n * n - chance)


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's interval for a proportion: sound for small n and near 0 and 1, unlike the normal one."""
    if n < 1 or not 0 <= successes <= n:
        raise CCRError(f"an interval needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    if not (is_number(confidence) and 0 < confidence < 1):
        raise CCRError(f"confidence must be in (0, 1), got {confidence!r}: 0.95 is usual")
    z = float(special.ndtri(0.5 + confidence / 2))
    share = successes / n
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and n one end is the share itself, up to rounding.
    return Interval(max(0.0, min(share, float(center - half))), min(1.0, max(share, float(center + half))))


def per_class_accuracy(truth: Any, predicted: Any) -> dict[Any, float]:
    """Accuracy on the images of each class that occurs in `truth`."""
    truth, predicted = _pair(truth, predicted)
    classes, position = np.unique(truth, return_inverse=True)
    right = np.bincount(position, weights=truth == predicted)
    shares = right / np.bincount(position)
    return {label.item(): float(share) for label, share in zip(classes, shares, strict=True)}


def explanation_length(codes: Any) -> float:
    """AEL: mean number of nonzero entries per row of the codes (m, n), sparse or dense."""
    if codes.shape[0] == 0:
        raise CCRError("codes must have at least one row to have a length, got none")
    return int(codes.count_nonzero() if is_sparse(codes) else np.count_nonzero(codes)) / codes.shape[0]


def deviation(dictionary: Any, initial: Any) -> Deviation:
    """Mean (ACED) and max distance of the dictionary's rows (n, d) from where they started."""
    distance = distances(dictionary, initial)
    return Deviation(float(distance.mean()), float(distance.max()))


def distances(dictionary: Any, initial: Any) -> np.ndarray:
    """Distance of each of the dictionary's rows (n, d) from where it started."""
    return np.asarray(np.linalg.norm(_rows(dictionary) - _rows(initial), axis=1))


def retention(dictionary: Any, initial: Any) -> float:
    """Share of refined rows whose nearest row of `initial` (by cosine) is their own.

    A tie counts as retained: concepts that started as duplicates are not lost by staying so.
    """
    cosines = unit_rows(_rows(dictionary)) @ unit_rows(_rows(initial)).T
    to_start = np.diagonal(cosines)
    return float(np.mean(to_start >= cosines.max(axis=1) - 1e-6))


def fidelity(images: Any, dictionary: Any, texts: Any) -> np.ndarray:
    """Fidelity of each concept (n,): Pearson correlation over images (m, d) of its scores with those of its own text.

    Rows of `dictionary` and `texts` (n, d) are concepts and their texts in the space of the images, which are an array
    or `Embeddings`. Exact, by the images' covariance. NaN where one of the two scores all images alike, up to rounding.
    """
    embeddings = images if isinstance(images, Embeddings) else Embeddings(images, normalize=False)
    moments, rows, text_rows = embeddings.moments(), _rows(dictionary), _rows(texts)

    def products(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        return np.asarray(((one @ moments.covariance) * two).sum(axis=1))

    by_concept, by_text, least = products(rows, rows), products(text_rows, text_rows), _rounding(moments)
    known = (by_concept > least * (rows**2).sum(axis=1)) & (by_text > least * (text_rows**2).sum(axis=1))
    scale = np.sqrt(np.where(known, by_concept, 1.0)) * np.sqrt(np.where(known, by_text, 1.0))
    return np.where(known, np.clip(products(rows, text_rows) / scale, -1.0, 1.0), np.nan)


def _rounding(moments: Moments) -> float:
    """The variance along a unit vector up to which it may be that of float32 rows that do not differ along it."""
    total, size = float(np.trace(moments.covariance)), float(moments.mean @ moments.mean)
    return max(1e-12 * total, (8 * float(np.finfo(np.float32).eps)) ** 2 * (total + size) / len(moments.mean))


def weights_per_class(head: LinearHead) -> float:
    """Mean number of nonzero weights per class."""
    return float(np.count_nonzero(head.coef)) / len(head.coef)


def contribution_length(codes: Any, head: LinearHead) -> float:
    """Mean number of concepts with a nonzero contribution to the predicted class: the length where codes are dense."""
    codes = sparse.csr_matrix(codes)
    if codes.shape[0] == 0:
        raise CCRError("codes must have at least one row to have a length, got none")
    return float(np.count_nonzero(_contributions(codes, head)[1])) / codes.shape[0]


def in_play(codes: Any, head: LinearHead) -> float:
    """Mean number of concepts with a nonzero contribution to any class: what a comparison of two classes may rest on.

    For sparse codes this is their length; a dense code can have few for each class, and many in all.
    """
    codes = sparse.csr_matrix(codes)
    used = sparse.csr_matrix((codes.data != 0, codes.indices, codes.indptr), shape=codes.shape)
    return float(np.mean(used @ head.coef.any(axis=0).astype(np.float64)))


def has_reason(codes: Any, head: LinearHead) -> np.ndarray:
    """Mask (m,) of the images of these codes (m, n) that have a contribution to their predicted class at all."""
    row, contributions = _contributions(codes, head)
    mask = np.zeros(codes.shape[0], dtype=bool)
    mask[row[contributions != 0]] = True
    return mask


def accuracies_at_k(codes: Any, head: LinearHead, y: np.ndarray, ks: Sequence[int]) -> list[float]:
    """Accuracy for each of `ks` when each image keeps only so many concepts, those that contribute most, by size,
    to its predicted class. `codes` (m, n) are CSR, `y` (m,) holds class numbers."""
    codes = _checked_codes(codes, y, min(ks))
    row, contribution = _contributions(codes, head)
    rank = _rank_in_row(codes, row, np.abs(contribution))

    def kept(k: int) -> sparse.csr_matrix:
        return sparse.csr_matrix((np.where(rank < k, codes.data, 0), codes.indices, codes.indptr), shape=codes.shape)

    return [_share_right(kept(k), head, y) for k in ks]


def largest_shown(codes: Any, head: LinearHead, top: int) -> np.ndarray:
    """Mask of the entries of codes (m, n), CSR, that an explanation names first: of the concepts that an image shows
    (a positive code) and that speak for its predicted class, the `top` of largest contribution. Booleans (entries,)."""
    row, contribution = _contributions(codes, head)
    named = (codes.data > 0) & (contribution > 0)
    return named & (_rank_in_row(codes, row, np.where(named, contribution, -np.inf)) < top)


def true_shown(codes: Any, head: LinearHead, y: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """How many of the first `SHOWN` concepts shown for images with these codes (m, n), CSR, are true of the images' own
    classes y (m,), class numbers, how many have an answer at all, and how many are shown: `answers` (classes, n) are
    1 yes, -1 no, 0 unknown."""
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
    shown = largest_shown(codes, head, SHOWN)
    verdicts = answers[y[row[shown]], codes.indices[shown]]
    return np.array([(verdicts > 0).sum(), (verdicts != 0).sum(), len(verdicts)])


def accuracy_at_nec(codes: Any, head: LinearHead, y: np.ndarray, k: int) -> float:
    """Accuracy when each class keeps only its `k` weights of largest size (VLG-CBM's number of effective concepts)."""
    codes = _checked_codes(codes, y, k)
    size = np.abs(head.coef)
    order = np.argsort(-size, axis=1, kind="stable")[:, :k]
    coef = np.zeros_like(head.coef)
    np.put_along_axis(coef, order, np.take_along_axis(head.coef, order, axis=1), axis=1)
    return _share_right(codes, LinearHead(coef, head.intercept), y)


def paired_bootstrap(scores: np.ndarray) -> tuple[list[Interval], list[Interval]]:
    """95 % intervals of the mean of each row of `scores` (methods, images), and of its difference to the first row.

    Every round draws images with replacement, the same for all methods: what is hard for all of them cancels.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise CCRError(f"scores must be (methods, images), none of them 0, got shape {scores.shape}")
    methods, m = scores.shape
    rng = np.random.default_rng(0)
    means = np.empty((ROUNDS, methods))
    for number in range(ROUNDS):
        means[number] = scores @ np.bincount(rng.integers(0, m, m), minlength=m) / m
    intervals = np.percentile(means, ENDS, axis=0)
    gaps = np.percentile(means - means[:, :1], ENDS, axis=0)
    return [Interval(*map(float, pair)) for pair in intervals.T], [Interval(*map(float, pair)) for pair in gaps.T]


def _contributions(codes: sparse.csr_matrix, head: LinearHead) -> tuple[np.ndarray, np.ndarray]:
    """Row of each code entry, and its contribution to that row's predicted class."""
    predicted = head.logits(codes).argmax(axis=1)
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
    return row, codes.data * head.coef[predicted[row], codes.indices]


def _rank_in_row(codes: sparse.csr_matrix, row: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The place of each code entry among those of its row, the largest of `size` first, from 0."""
    order = np.lexsort((-size, row))
    rank = np.empty(len(row), np.int64)
    rank[order] = np.arange(len(row)) - codes.indptr[row[order]]
    return rank


def _share_right(codes: sparse.csr_matrix, head: LinearHead, y: np.ndarray) -> float:
    return float(np.mean(head.logits(codes).argmax(axis=1) == y))


def _checked_codes(codes: Any, y: np.ndarray, k: int) -> sparse.csr_matrix:
    if k < 1:
        raise CCRError(f"k must be at least 1, got {k}: it is how many concepts are kept")
    if codes.shape[0] != len(y):
        raise CCRError(f"there must be one label for each code, got {len(y)} labels and {codes.shape[0]} codes")
    return sparse.csr_matrix(codes)


def _rows(dictionary: Any) -> np.ndarray:
    if is_tensor(dictionary):
        dictionary = dictionary.detach().cpu().numpy()
    return np.asarray(getattr(dictionary, "embeddings", dictionary), dtype=np.float64)


def _pair(truth: Any, predicted: Any) -> tuple[np.ndarray, np.ndarray]:
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if truth.shape != predicted.shape or truth.size == 0:
        raise CCRError(
            f"truth and predictions must be equally many and not empty, got {truth.shape} and {predicted.shape}"
        )
    return truth, predicted


#: Bins of confidence over which calibration is measured.
BINS = 15


def macro_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Mean over classes of 2 hits / (images of the class + predictions of it), over those that are there in either."""
    classes, numbers = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    true, guessed = numbers[: len(truth)], numbers[len(truth) :]
    hits, images, guesses = (
        np.bincount(rows, minlength=len(classes)) for rows in (true[true == guessed], true, guessed)
    )
    return float(np.mean(2 * hits / (images + guesses)))


def among_first(logits: np.ndarray, numbers: np.ndarray, k: int) -> np.ndarray:
    """Top-k hits (b,): fewer than k classes have a larger logit (b, classes) than the row's class by `numbers` (b,)."""
    true = np.take_along_axis(logits, numbers[:, None], axis=1)
    return np.asarray((logits > true).sum(axis=1) < k)


def confidences(logits: np.ndarray) -> np.ndarray:
    """The probability (b,) of the class with the largest logit of each row (b, classes)."""
    wide = logits.astype(np.float64)
    return np.exp(wide.max(axis=1) - special.logsumexp(wide, axis=1))


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: mean distance between confidence (m,) and share right, over bins of confidence."""
    bin_of = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    sure, hits = (np.bincount(bin_of, weights=values, minlength=bins) for values in (confidence, right))
    return float(np.abs(sure - hits).sum() / len(confidence))
