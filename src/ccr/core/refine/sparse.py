"""Steps of Algorithm 2 (docs/method.md) on sparse codes, on the CPU.

Only active entries carry gradient. Beyond the one product X D^T a step costs O(b k (C + d)) and one pass over the
parameters. The kernels take the steps of a whole window of rows together (`ccr.core.kernels`).
"""

from __future__ import annotations

import numpy as np

from ccr.core import kernels
from ccr.core.coding import NUDGE, Panels, Selection, screens
from ccr.core.kernels import FAR_BELOW, PADDING, BatchPlan, Parameters, StepSettings, line_zeros
from ccr.core.refine.data import Window
from ccr.core.refine.engine import Report, State, StepConfig
from ccr.core.threads import Workers

#: Multiplications of a batch's product, and of a window's, from which a second thread helps.
WORTH_A_BATCH, WORTH_A_WINDOW = 1_000_000, 20_000_000
#: Arrays that the next step depends on.
REMEMBERED = (
    "dictionary", "dictionary_moment", "dictionary_size", "weights", "weight_moment", "weight_size",
    "bias", "bias_moment", "bias_size", "steps", "allowed",
)  # fmt: skip


class SparseEngine:
    """The fast CPU engine: takes the steps of `DenseEngine`, to rounding, without its dense products."""

    by_concept = tuple(name for name in REMEMBERED if not name.startswith(("bias", "steps")))

    def __init__(self, start: State, config: StepConfig, workers: Workers) -> None:
        self.rule = start.rule
        self.config = config
        self.workers = workers
        n, self.classes = start.weights.shape
        d, width = start.dictionary.shape[1], -(-self.classes // PADDING) * PADDING
        dictionary, center, moment = (line_zeros(n, d) for _ in range(3))
        dictionary[:] = start.dictionary
        center[:] = start.dictionary if config.center is None else config.center
        weights, weight_moment, bias = line_zeros(n, width), line_zeros(n, width), line_zeros(width)
        weights[:, : self.classes], bias[:] = start.weights, FAR_BELOW
        bias[: self.classes] = start.bias
        self.parameters = Parameters(
            dictionary=dictionary, center=center,
            dictionary_moment=moment, dictionary_size=np.zeros(n, np.float32),
            weights=weights, weight_moment=weight_moment, weight_size=np.zeros(n, np.float32),
            bias=bias, bias_moment=line_zeros(width),
            bias_size=np.zeros(1), threshold=np.zeros(1), steps=np.zeros(1, np.int64),
            allowed=line_zeros(n, width) if config.sparse_head else line_zeros(0, width),
        )  # fmt: skip
        self._looked = np.full(1, np.nan)  # scores that a row of the last batch had computed in floats
        self.parameters.allowed[:] = 1.0
        self._panels: Panels | None = None
        self._training = kernels.Training(self.parameters)

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        selection = self.rule.selection()
        threshold = self.parameters.threshold
        threshold[0] = selection.bound
        size = min(size, len(window.rows))
        plan = BatchPlan(
            window.x.contiguous().numpy(), window.rows.astype(np.int32), window.y, _shares(window.weight, size), size,
            rates,
        )  # fmt: skip
        losses, lengths, looked = self._training.take(
            plan, self._settings(selection), self._packed(selection).packed, self._workers_for(plan),
            lasting=window.lasting,
        ).T  # fmt: skip
        if self.config.radius > 0:
            self.rule = self.rule.with_threshold(float(threshold[0]))
        self._looked[0] = looked[-1]
        return Report(losses, lengths)

    def restrict(self, allowed: np.ndarray) -> None:
        parameters = self.parameters
        parameters.allowed[:, : self.classes] = allowed
        for array in (parameters.weights, parameters.weight_moment):
            array *= parameters.allowed
        self._training.restricted(self.classes)

    def state(self) -> State:
        now = self.parameters
        weights, bias = now.weights[:, : self.classes].copy(), now.bias[: self.classes].copy()
        return State(now.dictionary.copy(), weights, bias, self.rule)

    def view(self) -> State:
        now = self.parameters
        return State(now.dictionary, now.weights, now.bias, self.rule)

    def panels(self) -> Panels:
        return self._packed(self.rule.selection())

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self.parameters, name).copy() for name in REMEMBERED}
        return {**arrays, "looked": self._looked.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for name in REMEMBERED:
            getattr(self.parameters, name)[:] = state[name]
        self._looked[:] = state["looked"]
        self._panels = None
        self._training.restricted(self.classes)

    def _settings(self, selection: Selection) -> StepSettings:
        config = self.config
        return StepSettings(
            refine=config.radius > 0, adaptive=config.adaptive, momentum=float(config.momentum),
            radius=float(config.radius), penalty=float(config.alpha * config.scale**2), scale=float(config.scale),
            kind=selection.kind, length=selection.length, held=float(self.rule.held or 0.0), nudge=NUDGE,
            dropped=int(config.dropout * 2**32), keep=1.0 / (1.0 - config.dropout), seed=config.seed,
            classes=self.classes,
        )  # fmt: skip

    def _workers_for(self, plan: BatchPlan) -> Workers:
        product = self.parameters.dictionary.size
        many = plan.size * product >= WORTH_A_BATCH and len(plan.rows) * product >= WORTH_A_WINDOW
        return self.workers if many else Workers(1)

    def _packed(self, selection: Selection) -> Panels:
        looked = None if np.isnan(self._looked[0]) else float(self._looked[0])
        dictionary = self.parameters.dictionary
        wanted = screens(selection, len(dictionary), looked)
        if self._panels is None or self._panels.wanted != wanted:
            self._panels = Panels(dictionary, selection, looked, seed=self.config.seed)  # every step packs them again
        return self._panels


def _shares(weight: np.ndarray, size: int) -> np.ndarray:
    """Weights divided by the rows of their batch; the last batch may be smaller."""
    share = weight / np.float32(size)
    left = len(share) % size
    if left:
        share[-left:] = weight[-left:] / np.float32(left)
    return share
