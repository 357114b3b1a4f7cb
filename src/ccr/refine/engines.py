"""Engines, which take the steps of Algorithm 2: dense in torch on any device, sparse by kernels on the CPU."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch

from ccr import kernels
from ccr.coding import NUDGE, Coder, HardThreshold, Panels, Rule, ScoreRule, TopK, screens
from ccr.errors import CCRError
from ccr.geometry import cap
from ccr.kernels import (
    FAR_BELOW,
    PADDING,
    SIZE_DECAY,
    SIZE_FLOOR,
    BatchPlan,
    Criterion,
    StepSettings,
    StepState,
    line_zeros,
)
from ccr.refine.data import Window
from ccr.refine.options import Training
from ccr.utils.threads import Workers, resolve_device


# Interface between the training loop and its engines, which take the steps.
@dataclass(frozen=True, eq=False)
class Predictor:
    """Parameters of a prediction: dictionary (n, d), weights (n, C), bias (C,), coding rule."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: Rule


@dataclass(frozen=True, eq=False)
class State(Predictor):
    """State of training: a predictor whose rule keeps scores, so that the dictionary can be refined through it."""

    rule: ScoreRule


class Report(NamedTuple):
    """Report of steps: mean loss of each batch, and its mean number of active concepts per image."""

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
        """View of the current state, without a copy, valid until the next step. The head may be padded with classes
        beyond the last, whose logits are never the largest."""
        ...

    def panels(self) -> Panels:
        """The dictionary as it is now, packed for the kernels."""
        ...

    def state_dict(self) -> dict[str, np.ndarray]:
        """Arrays that the next step depends on; the rule is not among them."""
        ...

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state_dict`."""
        ...


# One step of Algorithm 2 (docs/method.md) in plain torch, on any device.
class Gradients(NamedTuple):
    loss: torch.Tensor
    weights: torch.Tensor
    bias: torch.Tensor
    dictionary: torch.Tensor | None


def gradients(
    x: torch.Tensor,
    y: torch.Tensor,
    weight: torch.Tensor,
    *,
    weights: torch.Tensor,
    bias: torch.Tensor,
    keep: torch.Tensor,
    scores: torch.Tensor,
    refine: bool,
) -> Gradients:
    """Loss `mean_i weight_i CE(S L + b, y_i)` of codes `S = scores * keep`, and its derivatives.

    `keep` (b, n) is zero where a concept is not active; the selection itself is taken as constant.
    """
    rows = torch.arange(len(y), device=x.device)
    codes = scores * keep
    log_p = torch.log_softmax(codes @ weights + bias, dim=1)
    share = weight / len(y)
    loss = -(share * log_p[rows, y]).sum()
    grad = log_p.exp()
    grad[rows, y] -= 1.0
    grad *= share[:, None]
    grad_scores = ((grad @ weights.T) * keep).T @ x if refine else None
    return Gradients(loss, codes.T @ grad, grad.sum(dim=0), grad_scores)


class DenseEngine:
    """The plain engine: every product is a dense matrix product."""

    by_concept: tuple[str, ...] = ("dictionary", "weights", "allowed", "moment0", "size0", "moment2", "size2")

    def __init__(
        self, start: State, settings: StepSettings, device: torch.device, center: np.ndarray | None = None
    ) -> None:
        """`center` (n, d) are the centres of the caps, None: where the dictionary starts."""
        self.rule = start.rule
        self.settings = settings
        self.dictionary = torch.tensor(start.dictionary, device=device)
        self.center = self.dictionary.clone() if center is None else torch.tensor(center, device=device)
        self.weights = torch.tensor(start.weights, device=device)
        self.bias = torch.tensor(start.bias, device=device)
        parameters = (self.weights, self.bias[None], self.dictionary)
        self.moments = [torch.zeros_like(parameter) for parameter in parameters]
        self.sizes = [torch.zeros(len(parameter), 1, device=device) for parameter in parameters]
        self.allowed = torch.ones_like(self.weights)
        self.taken = 0

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        reports = [self._step(*batch, *pair) for batch, pair in zip(window.batches(size), rates, strict=True)]
        return Report(*np.array(reports).T)

    def _step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, head_rate: float, dictionary_rate: float
    ) -> tuple[float, float]:
        """Loss and length of one batch."""
        x, y, weight = (tensor.to(self.weights.device) for tensor in (x, y, weight))
        settings = self.settings
        scores = x @ self.dictionary.T
        active = self.rule.mask(scores)
        keep = dropped(active, settings.dropout, seed=settings.seed, step=self.taken)
        length = float(active.sum()) / len(x)
        gradient = gradients(
            x,
            y,
            weight,
            weights=self.weights,
            bias=self.bias,
            keep=keep,
            scores=scores,
            refine=settings.refine,
        )
        self.taken += 1
        # The gradient was taken where head and dictionary stood together, so that the order of the updates is free.
        self._update_head(gradient, head_rate)
        if gradient.dictionary is not None:
            self._update_dictionary(gradient.dictionary, dictionary_rate)
            self.rule = self.rule.with_feedback(length)
        return float(gradient.loss), length

    def restrict(self, allowed: np.ndarray) -> None:
        self.allowed.copy_(torch.from_numpy(allowed))
        self.weights *= self.allowed
        self.moments[0] *= self.allowed

    def state(self) -> State:
        dictionary, weights, bias = (t.cpu().numpy().copy() for t in (self.dictionary, self.weights, self.bias))
        return State(dictionary, weights, bias, self.rule)

    def view(self) -> State:
        return self.state()

    def panels(self) -> Panels:
        return Panels(self.state().dictionary, self.rule)

    def state_dict(self) -> dict[str, np.ndarray]:
        tensors = {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors().items()}
        return {**tensors, "steps": np.array([self.taken])}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.taken = int(state["steps"][0])
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(state[name].copy()))

    def _tensors(self) -> dict[str, torch.Tensor]:
        tensors = {"dictionary": self.dictionary, "weights": self.weights, "bias": self.bias, "allowed": self.allowed}
        for number, (moment, size) in enumerate(zip(self.moments, self.sizes, strict=True)):
            tensors |= {f"moment{number}": moment, f"size{number}": size}
        return tensors

    def _update_head(self, gradient: Gradients, rate: float) -> None:
        settings = self.settings
        grad = gradient.weights * self.allowed + settings.penalty * self.weights
        unit = settings.scale if settings.adaptive else 1.0
        self.weights -= (rate / unit) * self._direction(0, grad)
        self.bias -= rate * self._direction(1, gradient.bias[None])[0]

    def _update_dictionary(self, grad: torch.Tensor, rate: float) -> None:
        if self.settings.adaptive:
            # Along the row, normalising undoes every step: only the tangent part counts.
            grad = grad - (grad * self.dictionary).sum(dim=1, keepdim=True) * self.dictionary
        moved = self.dictionary - rate * self._direction(2, grad)
        self.dictionary = cap(moved, self.center, self.settings.radius)

    def _direction(self, which: int, grad: torch.Tensor) -> torch.Tensor:
        """Momentum; adaptive: its mean, divided row by row by the running root mean square of the gradient."""
        beta = self.settings.momentum
        moment, size = self.moments[which], self.sizes[which]
        if not self.settings.adaptive:
            return moment.mul_(beta).add_(grad)
        moment.mul_(beta).add_(grad, alpha=1.0 - beta)
        square = (grad**2).sum(dim=1, keepdim=True)
        if which < 2:
            square /= grad.shape[1]  # head: a step is measured per entry, dictionary: per row
        size.mul_(SIZE_DECAY).add_(square, alpha=1.0 - SIZE_DECAY)
        unbias, unbias_size = 1.0 - beta**self.taken, 1.0 - SIZE_DECAY**self.taken
        return (moment / unbias) / ((size / unbias_size).sqrt() + SIZE_FLOOR)


def dropped(active: torch.Tensor, dropout: float, *, seed: int, step: int) -> torch.Tensor:
    """Dropout on codes: 0 where not active or dropped, 1 / (1 - dropout) where kept, 1 without dropout.

    Which entries go is a hash of (seed, step, row, concept), so that every engine drops the same.
    """
    keep = active.float()
    if dropout == 0.0:
        return keep
    row, concept = active.nonzero(as_tuple=True)
    kept = hash32(row, concept, salt=step_salt(seed, step)) >= int(dropout * 2**32)
    keep[row, concept] = kept.float() / (1.0 - dropout)
    return keep


def step_salt(seed: int, step: int) -> int:
    return (seed * 0x9E3779B1 + step * 0x85EBCA77 + 0x165667B1) & 0xFFFFFFFF


def hash32(row: torch.Tensor, concept: torch.Tensor, *, salt: int) -> torch.Tensor:
    """32 well-mixed bits for each pair, in int64 arithmetic (products keep their low 32 bits)."""
    mask = 0xFFFFFFFF
    mixed = (row * 0x9E3779B1 ^ concept * 0x85EBCA6B ^ salt) & mask
    mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) & mask
    mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) & mask
    return mixed ^ (mixed >> 16)


# Steps of Algorithm 2 (docs/method.md) on sparse codes, on the CPU. Only active entries carry gradient. Beyond the
# one product X D^T a step costs O(b k (C + d)) and one pass over the parameters. The kernels take the steps of a
# whole window of rows together (`ccr.kernels`).
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

    def __init__(
        self, start: State, settings: StepSettings, workers: Workers, center: np.ndarray | None = None
    ) -> None:
        """`center` as in `DenseEngine`."""
        self.rule = start.rule
        self.settings = settings
        self.workers = workers
        n, self.classes = start.weights.shape
        d, width = start.dictionary.shape[1], -(-self.classes // PADDING) * PADDING
        dictionary, centres, moment = (line_zeros(n, d) for _ in range(3))
        dictionary[:] = start.dictionary
        centres[:] = start.dictionary if center is None else center
        weights, weight_moment, bias = line_zeros(n, width), line_zeros(n, width), line_zeros(width)
        weights[:, : self.classes], bias[:] = start.weights, FAR_BELOW
        bias[: self.classes] = start.bias
        self.parameters = StepState(
            dictionary=dictionary, center=centres,
            dictionary_moment=moment, dictionary_size=np.zeros(n, np.float32),
            weights=weights, weight_moment=weight_moment, weight_size=np.zeros(n, np.float32),
            bias=bias, bias_moment=line_zeros(width),
            bias_size=np.zeros(1), threshold=np.zeros(1), steps=np.zeros(1, np.int64),
            allowed=line_zeros(n, width) if settings.sparse_head else line_zeros(0, width),
        )  # fmt: skip
        self._n_exact = np.full(1, np.nan)  # scores that a row of the last batch had computed in floats
        self.parameters.allowed[:] = 1.0
        self._panels: Panels | None = None
        self._kernels = kernels.StepKernels(self.parameters)

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        # The kernels hold the threshold to its length batch by batch, in `parameters.threshold`; the rule gets it back.
        criterion, threshold = self.rule.criterion(), self.parameters.threshold
        threshold[0] = criterion.bound
        size = min(size, len(window.rows))
        plan = BatchPlan(
            window.x.contiguous().numpy(), window.rows.astype(np.int32), window.y, _shares(window.weight, size), size,
            rates,
        )  # fmt: skip
        losses, lengths, n_exact = self._kernels.take(
            plan, self._settings_under(criterion), self.panels().packed, self._workers_for(plan),
            lasting=window.lasting,
        ).T  # fmt: skip
        if self.settings.refine:
            self.rule = self.rule.with_threshold(float(threshold[0]))
        self._n_exact[0] = n_exact[-1]
        return Report(losses, lengths)

    def restrict(self, allowed: np.ndarray) -> None:
        parameters = self.parameters
        parameters.allowed[:, : self.classes] = allowed
        for array in (parameters.weights, parameters.weight_moment):
            array *= parameters.allowed
        self._kernels.restricted(self.classes)

    def state(self) -> State:
        now = self.parameters
        weights, bias = now.weights[:, : self.classes].copy(), now.bias[: self.classes].copy()
        return State(now.dictionary.copy(), weights, bias, self.rule)

    def view(self) -> State:
        now = self.parameters
        return State(now.dictionary, now.weights, now.bias, self.rule)

    def panels(self) -> Panels:
        n_exact = None if np.isnan(self._n_exact[0]) else float(self._n_exact[0])
        dictionary = self.parameters.dictionary
        if self._panels is None or self._panels.wanted != screens(self.rule, len(dictionary), n_exact):
            # Made once: every step packs them again.
            self._panels = Panels(dictionary, self.rule, n_exact, seed=self.settings.seed)
        return self._panels

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self.parameters, name).copy() for name in REMEMBERED}
        return {**arrays, "looked": self._n_exact.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for name in REMEMBERED:
            getattr(self.parameters, name)[:] = state[name]
        self._n_exact[:] = state["looked"]
        self._panels = None
        self._kernels.restricted(self.classes)

    def _settings_under(self, criterion: Criterion) -> StepSettings:
        """The settings with what the coding rule says now."""
        return self.settings._replace(
            kind=criterion.kind, length=criterion.length, target_length=float(self.rule.target_length or 0.0),
            nudge=NUDGE, classes=self.classes,
        )  # fmt: skip

    def _workers_for(self, plan: BatchPlan) -> Workers:
        product = self.parameters.dictionary.size
        many = plan.size * product >= WORTH_A_BATCH and len(plan.rows) * product >= WORTH_A_WINDOW
        return self.workers if many else Workers(1)


def _shares(weight: np.ndarray, size: int) -> np.ndarray:
    """Weights divided by the rows of their batch; the last batch may be smaller."""
    share = weight / np.float32(size)
    left = len(share) % size
    if left:
        share[-left:] = weight[-left:] / np.float32(left)
    return share


log = logging.getLogger("ccr")

EngineName = Literal["auto", "dense", "sparse"]


def choose_engine(name: EngineName, coder: Coder, training: Training) -> Literal["dense", "sparse"]:
    """The engine that a name stands for; "auto" is sparse where it can work."""
    if name not in ("auto", "dense", "sparse"):
        raise CCRError(f'engine must be "auto", "sparse" or "dense", got {name!r}')
    device = resolve_device(training.device)
    obstacle = None
    if device.type != "cpu":
        obstacle = f"works on the CPU, not on {device.type}"
    elif not isinstance(coder, (HardThreshold, TopK)):  # the kernels select as the rules of these two do
        obstacle = f"knows HardThreshold and TopK, not {type(coder).__name__}"
    if name == "sparse" and obstacle is not None:
        raise CCRError(f'the sparse engine {obstacle}: use engine="auto"')
    if name == "dense" or obstacle is not None:
        return "dense"
    kernels.warm_up(log.info)
    return "sparse"
