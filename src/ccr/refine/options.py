"""Options of a refinement (batches, steps, regularisation, stopping), and a line of its history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ccr.errors import CCRError
from ccr.utils.parameters import is_number

Optimizer = Literal["adaptive", "sgd"]
Schedule = Literal["cosine", "constant"]

#: Automatic training takes about this many steps, within these numbers of epochs.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1000, 10, 100
#: Automatic penalty on weights, in units of 1 / (number of training images).
PENALTY = 3.0
#: Large data take larger batches, up to this one, while an epoch keeps this many steps (the fewest epochs then still
#: take `STEPS`): a step passes over all parameters once, whatever its batch.
LARGEST_BATCH, STEPS_PER_EPOCH = 2048, 100
#: Shares of the epochs between which a sparse head loses its weights.
PRUNE_FROM, PRUNE_TO = 0.1, 0.5
#: Candidates, in weights per class, where knowledge is given and nothing else is asked for: unconfirmed
#: concepts only take the places that confirmed ones leave (measured: benchmarks/knowledge.py --review).
KNOWN_CANDIDATES = 1.0
#: Options that are whole numbers from 1 on, or None, and what they count.
COUNTS = {
    "max_iter": "it counts passes over the data",
    "batch_size": "it counts the images of one step",
    "n_iter_no_change": "it counts epochs without improvement",
    "weights_per_class": "it counts the concepts that speak for or against a class",
}
#: The largest part of the radius that one automatic dictionary step takes.
STRIDE = 0.05


@dataclass(frozen=True)
class Training:
    """Options of the loop; None means chosen from the data's size.

    `optimizer="adaptive"`: momentum, divided row by row (a row is one concept) by the running size of its
    gradient, so that rates mean the same for every encoder, list of concepts and number of classes:
    `head_rate` is in units of 1 / (size of a code entry), `dictionary_rate` is the length of a concept's step.
    `optimizer="sgd"`: momentum and plain learning rates, as in the paper.
    `alpha` is the penalty on squared weights, for codes scaled to size 1; None is 3 / (number of training images).
    Of the epochs whose validation accuracy is within `tol` of the best, the latest is kept: it
    has the smallest steps behind it. None is one standard error of that accuracy, so that luck on few validation
    images does not choose; 0 takes the very best.
    `weights_per_class` holds a sparse head (A sparse head, docs/method.md): from `PRUNE_FROM` of the epochs on, classes
    keep geometrically fewer weights each epoch, down to this many at `PRUNE_TO`, and concepts adapt to those that are
    left; only epochs after that are chosen from. None keeps all weights.
    `candidates` (Candidates, docs/method.md): they are chosen among so many times as many concepts, those that the
    images of a class show most by their own words. None: among all.
    """

    max_iter: int | None = None
    batch_size: int | None = None
    optimizer: Optimizer = "adaptive"
    head_rate: float | None = None
    dictionary_rate: float | None = None
    momentum: float = 0.9
    dropout: float = 0.0
    alpha: float | None = None
    schedule: Schedule = "cosine"
    n_iter_no_change: int | None = None
    tol: float | None = None
    weights_per_class: int | None = None
    candidates: float | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, meaning in COUNTS.items():
            object.__setattr__(self, name, _whole(name, getattr(self, name), meaning))
        _one_of("optimizer", self.optimizer, ("adaptive", "sgd"))
        _one_of("schedule", self.schedule, ("cosine", "constant"))
        _at_least_zero("head_rate", self.head_rate)
        _at_least_zero("dictionary_rate", self.dictionary_rate)
        _at_least_zero("alpha", self.alpha)
        _at_least_zero("tol", self.tol)
        if self.candidates is not None and not (is_number(self.candidates) and 1 <= self.candidates < math.inf):
            raise CCRError(
                f"candidates must be a number >= 1 or None, got {self.candidates!r}: a class's weights are chosen "
                "among so many times as many concepts, those that its images show most; try 2"
            )
        _below_one("momentum", self.momentum)
        _below_one("dropout", self.dropout)

    def batch(self, m: int) -> int:
        """Images per step, for m training images."""
        return min(self.batch_size or max(16, min(256, m // 10), min(LARGEST_BATCH, m // STEPS_PER_EPOCH)), m)

    def epochs(self, m: int) -> int:
        """Passes over m training images."""
        steps = math.ceil(m / self.batch(m))
        return self.max_iter or min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(STEPS / steps)))

    def patience(self, m: int) -> int:
        """Epochs without improvement after which training stops."""
        return self.n_iter_no_change or max(10, self.epochs(m) // 2)

    def penalty(self, m: int) -> float:
        """Strength of the penalty on weights, for m training images."""
        return PENALTY / m if self.alpha is None else self.alpha

    def tolerance(self, accuracy: float, n: int) -> float:
        """Difference to the best accuracy, on n validation images, within which an epoch counts as equally good."""
        return math.sqrt(max(accuracy * (1.0 - accuracy), 0.0) / n) if self.tol is None else self.tol

    def rates(self, radius: float) -> tuple[float, float]:
        """Rates of head and dictionary before the schedule."""
        adaptive = self.optimizer == "adaptive"
        head = (0.03 if adaptive else 1.0) if self.head_rate is None else self.head_rate
        automatic = STRIDE * min(radius, 0.1) if adaptive else 1e-4
        return float(head), float(automatic if self.dictionary_rate is None else self.dictionary_rate)

    def kept_weights(self, n: int, epoch: int, epochs: int) -> int | None:
        """Weights that each class keeps in this epoch, of n; None: all."""
        if self.weights_per_class is None:
            return None
        progress = (epoch - 1) / (epochs - 1) if epochs > 1 else 1.0
        if progress < PRUNE_FROM:
            return None
        fewest = min(self.weights_per_class, n)
        part = min(1.0, (progress - PRUNE_FROM) / (PRUNE_TO - PRUNE_FROM))
        return max(fewest, round(n * (fewest / n) ** part))

    def candidates_per_class(self, *, known: bool = False) -> int | None:
        """Concepts that may speak for a class; None: all. Where knowledge says of some which it has (`known`), there
        are candidates by default."""
        times = KNOWN_CANDIDATES if known and self.candidates is None else self.candidates
        return None if times is None or self.weights_per_class is None else round(times * self.weights_per_class)

    def fewer_weights(self, n: int) -> list[int]:
        """The numbers of weights per class, of n, through which a head that is solved, not stepped, comes down."""
        if self.weights_per_class is None or self.weights_per_class >= n:
            return []
        steps = math.ceil(math.log2(n / self.weights_per_class))
        return [round(n * (self.weights_per_class / n) ** (step / steps)) for step in range(1, steps + 1)]

    def damping(self, progress: float) -> float:
        """Factor on both rates when this share of training, in [0, 1], is done."""
        return 0.5 * (1.0 + math.cos(math.pi * progress)) if self.schedule == "cosine" else 1.0


@dataclass(frozen=True)
class Epoch:
    """One line of the history, taken at the end of an epoch.

    `validation_accuracy` and `validation_loss` are NaN without validation data; `length` is the mean number of
    active concepts of the training images (at most 4,096 of them), `threshold` NaN where the coder has none.
    """

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    length: float
    mean_deviation: float
    max_deviation: float
    threshold: float


def _whole(name: str, value: float | None, meaning: str) -> int | None:
    """The number as an int, whatever type it is of."""
    if value is not None and not (is_number(value) and value >= 1 and int(value) == value):
        raise CCRError(f"{name} must be a whole number >= 1 or None, got {value!r}: {meaning}")
    return None if value is None else int(value)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise CCRError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _at_least_zero(name: str, value: float | None) -> None:
    if value is not None and not (is_number(value) and value >= 0):
        raise CCRError(f"{name} must be a number >= 0, got {value!r}")


def _below_one(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value < 1):
        raise CCRError(f"{name} must be in [0, 1), got {value!r}")
