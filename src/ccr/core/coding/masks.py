"""Which entries of scores are active, in torch: for the rules, and for modules that are compiled or exported."""

from __future__ import annotations

import torch


def threshold_mask(scores: torch.Tensor, threshold: torch.Tensor, positive: bool) -> torch.Tensor:
    """|s| >= threshold, or s > threshold when `positive`; zeros never (Algorithm 2, docs/method.md). The
    threshold is one number (), or one for each concept (n,)."""
    if positive:
        return scores > threshold
    return (scores.abs() >= threshold) & (scores != 0)


def top_mask(scores: torch.Tensor, length: int) -> torch.Tensor:
    """The `length` scores of largest absolute value in each row, of equals the first; zeros never."""
    size = scores.abs()
    bound = size.topk(length, dim=1).values[:, -1:]
    above, equal = size > bound, size == bound
    # Of equals the first ones, as the kernels take them; topk takes any.
    fits = equal & (equal.cumsum(dim=1) <= length - above.sum(dim=1, keepdim=True))
    return (above | fits) & (scores != 0)
