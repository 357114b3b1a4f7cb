"""Where a training run stands: its history, the epoch to keep, and how both lie in a checkpoint."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from ccr.core.coding import PursuitRule, Rule, ThresholdRule, TopRule
from ccr.core.refine.checkpoint import Saved
from ccr.core.refine.engine import State
from ccr.core.refine.options import Training
from ccr.errors import CCRError

RULES: dict[str, Any] = {kind.__name__: kind for kind in (ThresholdRule, TopRule, PursuitRule)}


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
    """The result: the state of the best epoch, and what happened on the way."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: Rule
    history: tuple[Epoch, ...]
    best_epoch: int


class Best:
    """Which epoch to keep: the latest of those that validation cannot tell from the best (see `Training.tol`)."""

    def __init__(self, training: Training, n: int) -> None:
        self.training, self.n = training, n
        self.epoch, self.improved, self.record = 0, 0, -math.inf

    def offer(self, number: int, accuracy: float) -> bool:
        """Whether this epoch is now the one to keep; without validation data the last one always is."""
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

    best: Best
    kept: State
    number: int = 0
    history: list[Epoch] = field(default_factory=list)


def pack(now: Progress, memory: dict[str, np.ndarray], rule: Rule) -> Saved:
    """Progress, and an engine's memory and rule, for a checkpoint."""
    best, kept = now.best, now.kept
    arrays = {f"engine.{name}": array for name, array in memory.items()}
    arrays |= {"kept.dictionary": kept.dictionary, "kept.weights": kept.weights, "kept.bias": kept.bias}
    # As an array: JSON has no NaN.
    arrays["history"] = np.array([astuple(epoch) for epoch in now.history], np.float64)
    arrays["best"] = np.array([best.epoch, best.improved, best.record], np.float64)
    return Saved(arrays, {"number": now.number, "rule": _pack_rule(rule), "kept_rule": _pack_rule(kept.rule)})


def unpack(saved: Saved, now: Progress) -> tuple[dict[str, np.ndarray], Rule]:
    """Bring `now` to where the checkpoint is; the engine's memory and rule."""
    arrays, values = saved
    now.number = int(values["number"])
    now.history = [Epoch(int(line[0]), *(float(value) for value in line[1:])) for line in arrays["history"]]
    now.best.epoch, now.best.improved = (int(value) for value in arrays["best"][:2])
    now.best.record = float(arrays["best"][2])
    dictionary, weights, bias = (arrays[f"kept.{name}"] for name in ("dictionary", "weights", "bias"))
    now.kept = State(dictionary, weights, bias, _unpack_rule(values["kept_rule"]))
    memory = {name.removeprefix("engine."): array for name, array in arrays.items() if name.startswith("engine.")}
    return memory, _unpack_rule(values["rule"])


def _pack_rule(rule: Rule) -> dict[str, Any]:
    if type(rule).__name__ not in RULES:
        raise CCRError(f"a checkpoint cannot keep a {type(rule).__name__}: use HardThreshold or TopK")
    return {"type": type(rule).__name__, **asdict(rule)}  # type: ignore[call-overload]


def _unpack_rule(values: dict[str, Any]) -> Rule:
    rule: Rule = RULES[values["type"]](**{name: value for name, value in values.items() if name != "type"})
    return rule
