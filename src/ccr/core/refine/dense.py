"""One step of METHOD 3 in plain torch, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from ccr.core.coding import Rule
from ccr.core.geometry import cap
from ccr.core.refine.data import Window

#: Decay of the running gradient size, and what keeps it from dividing by zero.
SIZE_DECAY, SIZE_FLOOR = 0.99, 1e-12


class Report(NamedTuple):
    """What steps saw: mean loss of each batch and its mean number of active concepts."""

    losses: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a prediction needs: dictionary (n, d), weights (n, C), bias (C,), coding rule."""

    dictionary: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    rule: Rule


class Engine(Protocol):
    """Takes steps. The loop around it (batches, schedule, validation, stopping) is the same for all engines."""

    rule: Rule

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        """A step on each batch of `size` rows of the window, at the rates of head and dictionary, (steps, 2)."""
        ...

    def state(self) -> State: ...

    def memory(self) -> dict[str, np.ndarray]:
        """Everything but the rule that the next step depends on."""
        ...

    def recall(self, memory: dict[str, np.ndarray]) -> None:
        """Go on from a `memory`."""
        ...


@dataclass(frozen=True)
class StepOptions:
    """What stays the same for all steps. `scale` is the size of a code entry, `alpha` the penalty on weights
    times that size, `key` seeds dropout."""

    radius: float
    adaptive: bool
    momentum: float
    dropout: float
    alpha: float
    scale: float
    key: int


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
    dictionary: torch.Tensor,
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
    slope = log_p.exp()
    slope[rows, y] -= 1.0
    slope *= share[:, None]
    through = ((slope @ weights.T) * keep).T @ x if refine else None
    return Gradients(loss, codes.T @ slope, slope.sum(dim=0), through)


class DenseEngine:
    """The plain engine: every product is a dense matrix product."""

    def __init__(self, start: State, options: StepOptions, device: torch.device) -> None:
        self.rule = start.rule
        self.options = options
        self.center = torch.tensor(start.dictionary, device=device)
        self.dictionary = self.center.clone()
        self.weights = torch.tensor(start.weights, device=device)
        self.bias = torch.tensor(start.bias, device=device)
        parameters = (self.weights, self.bias[None], self.dictionary)
        self.moments = [torch.zeros_like(parameter) for parameter in parameters]
        self.sizes = [torch.zeros(len(parameter), 1, device=device) for parameter in parameters]
        self.taken = 0

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        found = [self._step(*batch, *pair) for batch, pair in zip(window.batches(size), rates, strict=True)]
        return Report(*np.array(found).T)

    def _step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, head_rate: float, dictionary_rate: float
    ) -> tuple[float, float]:
        """Loss and length of one batch."""
        x, y, weight = (tensor.to(self.weights.device) for tensor in (x, y, weight))
        options = self.options
        scores = x @ self.dictionary.T
        active = self.rule.mask(scores)
        keep = dropped(active, options.dropout, key=options.key, step=self.taken)
        length = float(active.sum()) / len(x)
        found = gradients(
            x,
            y,
            weight,
            dictionary=self.dictionary,
            weights=self.weights,
            bias=self.bias,
            keep=keep,
            scores=scores,
            refine=options.radius > 0,
        )
        self.taken += 1
        self._move_head(found, head_rate)
        if found.dictionary is not None:
            self._move_dictionary(found.dictionary, dictionary_rate)
            self.rule = self.rule.nudged(length)
        return float(found.loss), length

    def state(self) -> State:
        dictionary, weights, bias = (t.cpu().numpy().copy() for t in (self.dictionary, self.weights, self.bias))
        return State(dictionary, weights, bias, self.rule)

    def memory(self) -> dict[str, np.ndarray]:
        tensors = {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors().items()}
        return {**tensors, "steps": np.array([self.taken])}

    def recall(self, memory: dict[str, np.ndarray]) -> None:
        self.taken = int(memory["steps"][0])
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(memory[name].copy()))

    def _tensors(self) -> dict[str, torch.Tensor]:
        own = {"dictionary": self.dictionary, "weights": self.weights, "bias": self.bias}
        for number, (moment, size) in enumerate(zip(self.moments, self.sizes, strict=True)):
            own |= {f"moment{number}": moment, f"size{number}": size}
        return own

    def _move_head(self, found: Gradients, rate: float) -> None:
        options = self.options
        slope = found.weights + options.alpha * options.scale**2 * self.weights
        unit = options.scale if options.adaptive else 1.0
        self.weights -= (rate / unit) * self._direction(0, slope)
        self.bias -= rate * self._direction(1, found.bias[None])[0]

    def _move_dictionary(self, slope: torch.Tensor, rate: float) -> None:
        if self.options.adaptive:
            # Along the row, normalising undoes every step: only the tangent part counts.
            slope = slope - (slope * self.dictionary).sum(dim=1, keepdim=True) * self.dictionary
        moved = self.dictionary - rate * self._direction(2, slope)
        self.dictionary = cap(moved, self.center, self.options.radius)

    def _direction(self, which: int, slope: torch.Tensor) -> torch.Tensor:
        """Momentum; adaptive: its mean, divided row by row by the running root mean square of the slope."""
        beta = self.options.momentum
        moment, size = self.moments[which], self.sizes[which]
        if not self.options.adaptive:
            return moment.mul_(beta).add_(slope)
        moment.mul_(beta).add_(slope, alpha=1.0 - beta)
        square = (slope**2).sum(dim=1, keepdim=True)
        if which < 2:
            square /= slope.shape[1]  # head: a step is measured an entry, dictionary: a row
        size.mul_(SIZE_DECAY).add_(square, alpha=1.0 - SIZE_DECAY)
        unbias, unbias_size = 1.0 - beta**self.taken, 1.0 - SIZE_DECAY**self.taken
        return (moment / unbias) / ((size / unbias_size).sqrt() + SIZE_FLOOR)


def dropped(active: torch.Tensor, dropout: float, *, key: int, step: int) -> torch.Tensor:
    """Dropout on codes: 0 where not active or dropped, 1 / (1 - dropout) where kept, 1 without dropout.

    Which entries go is a hash of (key, step, row, concept), so that every engine drops the same.
    """
    keep = active.float()
    if dropout == 0.0:
        return keep
    row, concept = active.nonzero(as_tuple=True)
    kept = hash32(row, concept, salt=step_salt(key, step)) >= int(dropout * 2**32)
    keep[row, concept] = kept.float() / (1.0 - dropout)
    return keep


def step_salt(key: int, step: int) -> int:
    return (key * 0x9E3779B1 + step * 0x85EBCA77 + 0x165667B1) & 0xFFFFFFFF


def hash32(row: torch.Tensor, concept: torch.Tensor, *, salt: int) -> torch.Tensor:
    """32 well-mixed bits for each pair, in int64 arithmetic (products keep their low 32 bits)."""
    mask = 0xFFFFFFFF
    mixed = (row * 0x9E3779B1 ^ concept * 0x85EBCA6B ^ salt) & mask
    mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) & mask
    mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) & mask
    return mixed ^ (mixed >> 16)
