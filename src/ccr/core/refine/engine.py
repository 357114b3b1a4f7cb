"""The contract between the training loop and what takes its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ccr.core.coding import Panels, Rule, ScoreRule
from ccr.core.kernels import SIZE_DECAY as SIZE_DECAY
from ccr.core.kernels import SIZE_FLOOR as SIZE_FLOOR
from ccr.core.refine.data import Window


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a prediction needs: dictionary (n, d), weights (n, C), bias (C,), coding rule."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: ScoreRule


class Parameters(Protocol):
    """What predicts: a `State` while training, a `Refinement` after it."""

    @property
    def dictionary(self) -> np.ndarray: ...

    @property
    def weights(self) -> np.ndarray: ...

    @property
    def bias(self) -> np.ndarray: ...

    @property
    def rule(self) -> Rule: ...


@dataclass(frozen=True, eq=False)
class StepConfig:
    """What stays the same for all steps.

    `radius` is that of the caps, 0 leaves the dictionary alone; `adaptive`, `momentum` and `dropout` are those of
    `Training`; `alpha` is the penalty on squared weights for codes scaled to size 1, `scale` the size of a code entry;
    `seed` is that of dropout, `sparse_head` says that weights will be restricted; `center` (n, d) are the centres of
    the caps, None: where the dictionary starts.
    """

    radius: float
    adaptive: bool
    momentum: float
    dropout: float
    alpha: float
    scale: float
    seed: int
    sparse_head: bool = False
    center: np.ndarray | None = None


class Report(NamedTuple):
    """What steps saw: the mean loss of each batch, and its mean number of active concepts per image."""

    losses: np.ndarray
    lengths: np.ndarray


class Engine(Protocol):
    """Takes steps. The loop around it (batches, schedule, validation, stopping) is the same for all engines."""

    rule: ScoreRule
    #: Names of the arrays of `state_dict` that have a row for each concept.
    by_concept: tuple[str, ...]

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        """A step on each batch of `size` rows of the window, at the rates of head and dictionary, (steps, 2)."""
        ...

    def restrict(self, allowed: np.ndarray) -> None:
        """Let only these weights (n, C) of the head move from now on; the others become zero and stay so."""
        ...

    def state(self) -> State:
        """A copy of what a prediction needs now."""
        ...

    def view(self) -> State:
        """What a prediction needs now, to be read before the next step. The head may have classes beyond the last, of
        which no logit is the largest."""
        ...

    def panels(self) -> Panels:
        """The dictionary as it is now, packed for the kernels."""
        ...

    def state_dict(self) -> dict[str, np.ndarray]:
        """Everything but the rule that the next step depends on."""
        ...

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state_dict`."""
        ...
