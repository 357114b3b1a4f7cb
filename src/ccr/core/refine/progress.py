"""Where a training run stands: its history, the epoch to keep, and how both lie in a checkpoint."""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ccr.core.coding import Rule, ScoreRule, rule_to_dict, score_rule
from ccr.core.refine.engine import State
from ccr.core.refine.options import Training

#: Why a run ended: all epochs are done; none improved for `n_iter_no_change` epochs; the head alone was solved.
Stop = Literal["max_iter", "no_change", "solved"]


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


@dataclass(frozen=True, eq=False)
class Refinement:
    """The result: the parameters of the best epoch, what happened on the way, which engine took the steps, and why it
    stopped (see `Stop`). `kept` are the rows of the dictionary that are left: concepts that a sparse head gave no
    weight are not in it, where others' codes do not depend on them."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: Rule
    kept: np.ndarray
    history: tuple[Epoch, ...]
    best_epoch: int
    engine: Literal["dense", "sparse", "head"]
    stopped: Stop


class BestEpoch:
    """Which epoch to keep: the latest of those that validation cannot tell from the best (see `Training.tol`)."""

    def __init__(self, training: Training, n: int) -> None:
        self.training, self.n = training, n
        self.epoch, self.improved, self.record = 0, 0, -math.inf

    def offer(self, number: int, accuracy: float, *, final: bool = True) -> bool:
        """Whether this epoch is now the one to keep; without validation data the last one always is, and so it is while
        the head is not `final`ly sparse."""
        if not final:
            self.epoch = self.improved = number
            return True
        if self.n == 0 or accuracy > self.record:
            self.improved = number
        if self.n:
            self.record = max(self.record, accuracy)
            if accuracy < self.record - self.training.tolerance(self.record, self.n):
                return False
        self.epoch = number
        return True


@dataclass
class Progress:
    """A run after epoch `number`: `kept` is the state of the epoch to keep."""

    best: BestEpoch
    kept: State
    number: int = 0
    history: list[Epoch] = field(default_factory=list)


class Saved(NamedTuple):
    """A run as a checkpoint holds it: arrays by name, and everything else as JSON types."""

    arrays: dict[str, np.ndarray]
    values: dict[str, Any]


class Checkpoint(Protocol):
    """Where a run is kept after every epoch; `run` tells runs apart (see `fingerprint`)."""

    def load(self, run: str) -> Saved | None:
        """The last epoch that was saved, None where nothing was; another run's is refused."""
        ...

    def save(self, run: str, number: int, saved: Saved) -> None:
        """Keep the state after epoch `number` in place of the one before."""
        ...


def pack(now: Progress, rows: np.ndarray, engine: dict[str, np.ndarray], rule: ScoreRule) -> Saved:
    """Progress, the rows of the concepts that are left, and an engine's `state_dict` and rule, for a checkpoint."""
    best, kept = now.best, now.kept
    arrays = {f"engine.{name}": array for name, array in engine.items()}
    arrays |= {"kept.dictionary": kept.dictionary, "kept.weights": kept.weights, "kept.bias": kept.bias}
    # As an array: JSON has no NaN.
    arrays["history"] = np.array([astuple(epoch) for epoch in now.history], np.float64)
    arrays["rows"] = rows
    arrays["best"] = np.array([best.epoch, best.improved, best.record], np.float64)
    return Saved(arrays, {"number": now.number, "rule": rule_to_dict(rule), "kept_rule": rule_to_dict(kept.rule)})


def unpack(saved: Saved, now: Progress) -> tuple[np.ndarray, dict[str, np.ndarray], ScoreRule]:
    """Bring `now` to where the checkpoint is; the rows that are left, the engine's `state_dict` and its rule."""
    arrays, values = saved
    now.number = int(values["number"])
    now.history = [Epoch(int(line[0]), *(float(value) for value in line[1:])) for line in arrays["history"]]
    now.best.epoch, now.best.improved = (int(value) for value in arrays["best"][:2])
    now.best.record = float(arrays["best"][2])
    dictionary, weights, bias = (arrays[f"kept.{name}"] for name in ("dictionary", "weights", "bias"))
    now.kept = State(dictionary, weights, bias, score_rule(values["kept_rule"]))
    engine = {name.removeprefix("engine."): array for name, array in arrays.items() if name.startswith("engine.")}
    return arrays["rows"], engine, score_rule(values["rule"])


def fingerprint(*parts: Any) -> str:
    """A number that differs whenever an array or a setting differs."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()
