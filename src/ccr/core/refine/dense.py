"""One step of Algorithm 2 (docs/method.md) in plain torch, on any device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ccr.core.coding import Panels
from ccr.core.geometry import cap
from ccr.core.refine.data import Window
from ccr.core.refine.engine import SIZE_DECAY, SIZE_FLOOR, Report, State, StepConfig


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

    by_concept: tuple[str, ...] = ("dictionary", "weights", "allowed", "moment0", "size0", "moment2", "size2")

    def __init__(self, start: State, config: StepConfig, device: torch.device) -> None:
        self.rule = start.rule
        self.config = config
        self.dictionary = torch.tensor(start.dictionary, device=device)
        self.center = self.dictionary.clone() if config.center is None else torch.tensor(config.center, device=device)
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
        config = self.config
        scores = x @ self.dictionary.T
        active = self.rule.mask(scores)
        keep = dropped(active, config.dropout, seed=config.seed, step=self.taken)
        length = float(active.sum()) / len(x)
        gradient = gradients(
            x,
            y,
            weight,
            dictionary=self.dictionary,
            weights=self.weights,
            bias=self.bias,
            keep=keep,
            scores=scores,
            refine=config.radius > 0,
        )
        self.taken += 1
        self._move_head(gradient, head_rate)
        if gradient.dictionary is not None:
            self._move_dictionary(gradient.dictionary, dictionary_rate)
            self.rule = self.rule.nudged(length)
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
        return Panels(self.state().dictionary, self.rule.selection())

    def state_dict(self) -> dict[str, np.ndarray]:
        tensors = {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors().items()}
        return {**tensors, "steps": np.array([self.taken])}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.taken = int(state["steps"][0])
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(state[name].copy()))

    def _tensors(self) -> dict[str, torch.Tensor]:
        own = {"dictionary": self.dictionary, "weights": self.weights, "bias": self.bias, "allowed": self.allowed}
        for number, (moment, size) in enumerate(zip(self.moments, self.sizes, strict=True)):
            own |= {f"moment{number}": moment, f"size{number}": size}
        return own

    def _move_head(self, gradient: Gradients, rate: float) -> None:
        config = self.config
        slope = gradient.weights * self.allowed + config.alpha * config.scale**2 * self.weights
        unit = config.scale if config.adaptive else 1.0
        self.weights -= (rate / unit) * self._direction(0, slope)
        self.bias -= rate * self._direction(1, gradient.bias[None])[0]

    def _move_dictionary(self, slope: torch.Tensor, rate: float) -> None:
        if self.config.adaptive:
            # Along the row, normalising undoes every step: only the tangent part counts.
            slope = slope - (slope * self.dictionary).sum(dim=1, keepdim=True) * self.dictionary
        moved = self.dictionary - rate * self._direction(2, slope)
        self.dictionary = cap(moved, self.center, self.config.radius)

    def _direction(self, which: int, slope: torch.Tensor) -> torch.Tensor:
        """Momentum; adaptive: its mean, divided row by row by the running root mean square of the slope."""
        beta = self.config.momentum
        moment, size = self.moments[which], self.sizes[which]
        if not self.config.adaptive:
            return moment.mul_(beta).add_(slope)
        moment.mul_(beta).add_(slope, alpha=1.0 - beta)
        square = (slope**2).sum(dim=1, keepdim=True)
        if which < 2:
            square /= slope.shape[1]  # head: a step is measured per entry, dictionary: per row
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
