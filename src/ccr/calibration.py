"""Calibration: what a model knows about its own certainty, measured on images that it was not fitted on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ccr.coding import apply_rule
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.labels import MOST_VALIDATION, Labels, validation_rows
from ccr.metrics import Interval, finite, wilson_interval
from ccr.utils.arrays import LazyModule
from ccr.utils.parameters import is_number

if TYPE_CHECKING:
    import scipy
    from scipy import sparse, special

    from ccr.model import ConceptModel
else:
    scipy = LazyModule("scipy")
    sparse = LazyModule("scipy.sparse")
    special = LazyModule("scipy.special")

# Uncertainty (docs/uncertainty.md): temperature scaling, split conformal prediction sets, and their coverage.

#: Logarithm of the largest temperature tried, 20; the smallest is 1/20.
_FAR = math.log(20.0)


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """Prediction sets of m images: `members` (m, classes), booleans, and the `probabilities` of the classes; `reasons`
    (m,), whether an image shows any concept that speaks for or against its predicted class.

    An image is answered if its set holds exactly one class and it has a reason. A set of several says that they cannot
    be told apart as surely as was asked; an empty one, that not even the most probable class is probable enough.
    """

    members: np.ndarray
    probabilities: np.ndarray
    classes: tuple[Any, ...]
    reasons: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> np.ndarray:
        """Classes in each set (m,)."""
        return np.asarray(self.members.sum(axis=1))

    @property
    def abstains(self) -> np.ndarray:
        """Abstentions (m,): True where the set is not exactly one class, or nothing that is shown is a reason."""
        return np.asarray((self.sizes != 1) | ~self.reasons)

    @property
    def labels(self) -> list[list[Any]]:
        """The classes of each set, the most probable first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")
        return [[self.classes[at] for at in places if row[at]] for row, places in zip(self.members, order, strict=True)]


@dataclass(frozen=True)
class SetQuality:
    """Coverage and size of prediction sets on `n` labelled images.

    `covered` is the share of images whose class is in their set, with its interval; `mean_size` the mean number of
    classes per set; `answered` the share of images that are answered (a set of one class, and a reason);
    `accuracy_answered` the share of those that are right, NaN where there are none.
    """

    n: int
    asked: float
    covered: float
    interval: Interval
    mean_size: float
    answered: float
    accuracy_answered: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        fields = {**vars(self), "interval": list(self.interval)}
        return {name: finite(value) if isinstance(value, float) else value for name, value in fields.items()}


def check_coverage(coverage: Any) -> float:
    """The coverage itself if it can be asked for."""
    if not (is_number(coverage) and 0 < coverage < 1):
        raise CCRError(f"coverage must be above 0 and below 1, got {coverage!r}: 0.9 is right nine times out of ten")
    return float(coverage)


def fit_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """The T for which softmax(logits / T) has the least mean cross-entropy with class numbers y (m,).

    Convex in 1 / T. Where every T is as good, or the best is beyond 1/20 to 20, it is the nearest to 1 or the end.
    """
    wide = logits.astype(np.float64)
    true = wide[np.arange(len(y)), y]

    def loss(log_temperature: float) -> float:
        scale = math.exp(-log_temperature)
        return float(np.mean(special.logsumexp(wide * scale, axis=1) - true * scale))

    best = scipy.optimize.minimize_scalar(loss, bounds=(-_FAR, _FAR), method="bounded", options={"xatol": 1e-6})
    return math.exp(best.x) if loss(best.x) < loss(0.0) else 1.0


def measured_temperature(logits: np.ndarray, y: np.ndarray, folds: int = 5) -> float:
    """`fit_temperature` where it can be measured, else 1: without a mistake among the images every smaller T fits
    better, and one that does not lower the cross-validated cross-entropy is noise."""
    wrong = logits.argmax(axis=1) != y
    if not wrong.any() or len(y) < folds:
        return 1.0
    # Mistakes, which are few, are dealt out evenly.
    fold = np.empty(len(y), np.int64)
    fold[np.argsort(~wrong, kind="stable")] = np.arange(len(y)) % folds
    gained = 0.0
    for number in range(folds):
        out = fold == number
        temperature = fit_temperature(logits[~out], y[~out])
        gained += out.sum() * (cross_entropy(logits[out], y[out]) - cross_entropy(logits[out] / temperature, y[out]))
    return fit_temperature(logits, y) if gained > 0 else 1.0


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    """Mean cross-entropy (log loss) of softmax(logits) with class numbers y (m,)."""
    wide = logits.astype(np.float64)
    return float(np.mean(special.logsumexp(wide, axis=1) - wide[np.arange(len(y)), y]))


def fewest_images(coverage: float) -> int:
    """Images below which no set but that of all classes has this coverage."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def least_probability(true: np.ndarray, coverage: float) -> float:
    """Threshold of split conformal sets, the least probability of a class in a set: the k-th largest of the
    probabilities `own` (n,) that calibration images gave their true classes, k = ceil((n + 1) coverage).

    Then a new image's class is in its set with at least this probability, and at most 1 / (n + 1) more where no two
    are equal, if the image is exchangeable with those (Vovk; Lei et al. 2018; Sadinle et al. 2019).
    """
    k = math.ceil((len(true) + 1) * coverage - 1e-9)
    if k > len(true):
        raise CCRError(
            f"a coverage of {coverage:g} needs at least {fewest_images(coverage)} calibration images, got {len(true)}: "
            "ask for less, or hold out more"
        )
    return float(np.sort(true)[::-1][k - 1])


def prediction_sets(
    probabilities: np.ndarray, least: float, classes: tuple[Any, ...], *, reasons: np.ndarray
) -> PredictionSets:
    """The classes that are at least so probable, of images with and without a reason (m,)."""
    return PredictionSets(probabilities >= least, probabilities, classes, reasons)


def set_quality(sets: PredictionSets, y: np.ndarray, asked: float) -> SetQuality:
    """Coverage and size of prediction sets, given class numbers y (m,)."""
    hits = sets.members[np.arange(len(y)), y]
    answered = ~sets.abstains
    right = float(hits[answered].mean()) if answered.any() else math.nan
    return SetQuality(
        n=len(y),
        asked=asked,
        covered=float(hits.mean()),
        interval=wilson_interval(int(hits.sum()), len(y)),
        mean_size=float(sets.sizes.mean()),
        answered=float(answered.mean()),
        accuracy_answered=right,
    )


#: Share of the training images that is held out for it, where there are no validation images to take.
SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of a model on held-out images: temperature, and threshold of prediction sets.

    Parameters
    ----------
    temperature : what the head's weights and intercept were divided by, so that probabilities, which are the softmax of
        the logits as ever, are as high as they are right. It is in the head already. 1 where it could not be measured:
        the images have no mistakes, or too few for a temperature to lower the cross-validated log loss.
    coverage : the share of sets that was asked to hold the true class.
    least_probability : how probable a class must be to be in a set.
    images : how many images the sets were calibrated on.
    typical : (n,), each concept's mean code over those of them that show it; 0 where none does.
    """

    temperature: float
    coverage: float
    least_probability: float
    images: int
    typical: np.ndarray


class CodedLabels(NamedTuple):
    """Codes (m, n), CSR, with class numbers (m,)."""

    codes: sparse.csr_matrix
    y: np.ndarray

    def take(self, rows: np.ndarray) -> CodedLabels:
        """These rows alone."""
        return CodedLabels(self.codes[rows], self.y[rows])


class Calibrated(NamedTuple):
    """A head at its temperature, and what was found."""

    head: LinearHead
    calibration: Calibration


def calibrate(head: LinearHead, warm: CodedLabels, held: CodedLabels, coverage: float) -> Calibrated:
    """The head at the temperature that fits `warm`, and sets of this coverage by `held`, which are other images."""
    temperature = measured_temperature(head.logits(warm.codes), warm.y)
    cooled = LinearHead(head.coef / head.coef.dtype.type(temperature), head.intercept / temperature)
    cooled = cooled.astype(head.coef.dtype)
    true = cooled.probabilities(held.codes)[np.arange(len(held.y)), held.y]
    least = least_probability(true, coverage)
    return Calibrated(cooled, Calibration(temperature, coverage, least, len(true), typical_codes(held.codes)))


def half_rows(y: np.ndarray, classes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two parts of every class, at random."""
    first = validation_rows(Labels(classes, y), 0.5, seed=seed, most=len(y))
    return first, np.setdiff1d(np.arange(len(y)), first)


def halves(labelled: CodedLabels, classes: np.ndarray, seed: int) -> tuple[CodedLabels, CodedLabels]:
    """Two parts of every class, at random."""
    first, second = half_rows(labelled.y, classes, seed)
    if not len(first):
        raise CCRError(
            f"calibrating needs two images of at least one class, got {len(second)} images, each of another class: one "
            "half of a class's images gives the temperature, the other the prediction sets; give more images"
        )
    return labelled.take(first), labelled.take(second)


def typical_codes(codes: sparse.csr_matrix) -> np.ndarray:
    """The mean of each column's positive codes (n,); 0 where there are none."""
    shown = codes.data > 0
    columns, values = codes.indices[shown], codes.data[shown].astype(np.float64)
    counts = np.bincount(columns, minlength=codes.shape[1])
    return np.asarray(np.bincount(columns, values, minlength=codes.shape[1]) / np.maximum(counts, 1))


# Images of a fit for its calibration: those that choose the epoch also give the temperature, others the sets.
class Placed(NamedTuple):
    """Images in the model's space, with class numbers."""

    images: Embeddings
    y: np.ndarray

    @classmethod
    def of(cls, images: Embeddings, y: np.ndarray, rows: np.ndarray) -> Placed:
        """These rows, in memory."""
        return cls(Embeddings.ready(images.take(rows)), y[rows])

    def coded(self, model: ConceptModel) -> CodedLabels:
        """Codes of the images by a model."""
        return CodedLabels(apply_rule(model.rule, self.images, model.concepts.embeddings), self.y)


class CalibrationParts(NamedTuple):
    """Split of a fit's images for calibration: `watched` chooses the epoch (as `refine` takes it), `left_out` rows are
    not trained on, `warm` gives the temperature (None: half of `held` does), and `held` gives the prediction sets.
    A fit without them has the first alone."""

    watched: Any
    left_out: np.ndarray | None = None
    warm: Placed | None = None
    held: Placed | None = None
    coverage: float = 0.0
    seed: int = 0

    @classmethod
    def of(cls, images: Embeddings, labels: Labels, watched: Any, *, coverage: float, seed: int) -> CalibrationParts:
        """The parts of a fit: `watched` are rows of the `images`, or (other images, class numbers) to share."""
        coverage = check_coverage(coverage)
        if isinstance(watched, tuple):
            other, y = watched
            first, second = half_rows(y, labels.classes, seed)
            _check_enough(len(second) if len(first) else 0, coverage)
            warm, held = (Placed.of(other, y, rows) for rows in (first, second))
            return cls(tuple(warm), None, warm, held, coverage, seed)
        rest = np.setdiff1d(np.arange(len(labels.y)), watched)
        chosen = validation_rows(Labels(labels.classes, labels.y[rest]), SHARE, seed=seed, most=MOST_VALIDATION)
        left_out = rest[chosen]
        _check_enough(len(left_out), coverage)
        held = Placed.of(images, labels.y, left_out)
        if len(watched):
            return cls(watched, left_out, Placed.of(images, labels.y, watched), held, coverage, seed)
        first, second = half_rows(held.y, labels.classes, seed)
        _check_enough(len(second) if len(first) else 0, coverage)
        return cls(watched, left_out, None, held, coverage, seed)

    def calibrated(self, model: ConceptModel) -> ConceptModel:
        """The fitted model with its certainty."""
        assert self.held is not None
        held = self.held.coded(model)
        if self.warm is None:
            return model.with_certainty(*halves(held, model.classes, self.seed), self.coverage)
        return model.with_certainty(self.warm.coded(model), held, self.coverage)


def _check_enough(images: int, coverage: float) -> None:
    """Sets of this coverage need so many images, beside those that give the temperature."""
    fewest = fewest_images(coverage)
    if images < fewest:
        raise CCRError(
            f"a coverage of {coverage:g} needs at least {fewest} images to calibrate on, beside those that choose "
            f"epoch and temperature, and only {images} can be held out: ask for less, give more images, or a larger "
            "validation=(X, y), which is the split val of a store"
        )
