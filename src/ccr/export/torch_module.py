"""A fitted model as a torch module: embeddings in, logits and codes out, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ccr.coding import ThresholdRule, TopRule
from ccr.coding.rules import exportable_rule, threshold_mask, top_mask

#: Rows whose largest number lies outside of these are scaled before their squares are added.
SMALL, LARGE = 1e-15, 1e15


class ConceptModule(nn.Module):
    """Torch module from embeddings (b, d) of the model's encoder, of any norm, to logits (b, classes) and codes (b, n).

    `weight` (classes, n) and `bias` (classes,) are parameters to be trained. `concepts` (n, d) is one that is frozen:
    `requires_grad_()` lets the concepts move, and then nothing holds them to their texts. Codes have the gradient of
    the scores that they keep, so that an image tower below learns through them. Which they keep is decided in float64,
    as everywhere (Close calls, docs/method.md).
    """

    def __init__(
        self,
        concepts: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        *,
        rule: ThresholdRule | TopRule,
        mean: torch.Tensor | None,
        whiten: torch.Tensor | None,
    ) -> None:
        super().__init__()
        self.concepts = nn.Parameter(concepts, requires_grad=False)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.length: int = rule.length if isinstance(rule, TopRule) else 0
        self.positive: bool = isinstance(rule, ThresholdRule) and rule.positive
        self.centered: bool = mean is not None
        self.whitened: bool = whiten is not None
        d = concepts.shape[1]
        self.register_buffer("mean", torch.zeros(d) if mean is None else mean)
        self.register_buffer("whiten", torch.zeros(0, d) if whiten is None else whiten)
        # One for all concepts, or one for each; as the kernels compare.
        bounds = rule.bounds if isinstance(rule, ThresholdRule) else np.zeros((), np.float32)
        self.threshold: torch.Tensor
        self.register_buffer("threshold", torch.tensor(bounds), persistent=False)

    def forward(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and codes. A row of zeros or NaN has neither: its numbers are NaN."""
        scores = self.scores(embeddings, self.concepts.dtype)
        deciding = scores
        if embeddings.device.type != "mps":  # which has no float64
            with torch.no_grad():
                deciding = self.scores(embeddings, torch.float64)
        if self.length > 0:
            mask = top_mask(deciding, self.length)
        else:
            mask = threshold_mask(deciding, self.threshold.to(deciding.dtype), self.positive)
        codes = scores * mask.to(scores.dtype)
        return codes @ self.weight.T + self.bias, codes

    def scores(self, embeddings: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Scores of all concepts (b, n), computed in this type."""
        rows = first_unit(embeddings.to(dtype))
        if self.centered:
            rows = unit(rows - self.mean.to(dtype))  # type: ignore[operator]
        if self.whitened:
            rows = unit(rows @ self.whiten.to(dtype))  # type: ignore[operator]
        return rows @ self.concepts.to(dtype).T


def first_unit(rows: torch.Tensor, small: float = SMALL, large: float = LARGE) -> torch.Tensor:
    """Every row divided by its norm, however large or small its numbers are; zeros become NaN."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    usual = (largest > small) & (largest < large)
    rows = rows / torch.where(usual, torch.ones_like(largest), largest)
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Every row divided by its norm; zeros stay, and have no gradient."""
    square = rows.square().sum(dim=1, keepdim=True)
    return rows / torch.where(square == 0, torch.ones_like(square), square).sqrt()


def torch_module(model: Any) -> ConceptModule:
    """The module of a `ConceptModel`, float32, in training mode as modules are made."""
    mean, metric = model.space.image_mean, model.space.metric
    return ConceptModule(
        _tensor(model.concepts.embeddings),
        _tensor(model.head.coef),
        _tensor(model.head.intercept),
        rule=exportable_rule(model.rule, "torch"),
        mean=None if mean is None else _tensor(mean),
        whiten=None if metric is None else _tensor(metric.whiten),
    )


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float32)
