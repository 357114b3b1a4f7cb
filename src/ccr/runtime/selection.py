"""Which scores are active: past a threshold, or the largest of an image (Algorithms 1 and 2, docs/method.md).

Scores are float64, so that one within rounding of the threshold is decided as the full model decides it (Close calls,
docs/method.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError

#: From scores (b, n) to codes (b, n).
Select = Callable[[np.ndarray], np.ndarray]


def selection(rule: Mapping[str, Any], concepts: int) -> Select:
    """The function of a rule as a model's configuration holds it."""
    kind = rule.get("type")
    if kind == "ThresholdRule":
        return _threshold(float(rule["threshold"]), bool(rule["positive"]))
    if kind == "TopRule":
        length = int(rule["length"])
        if not 1 <= length <= concepts:
            raise FormatError(f"the model's rule has length {length}: it must be above 0 and at most {concepts}")
        return _top(length)
    raise CCRError(
        f"the light runtime codes by a threshold or the top k, this model by {kind}, whose codes are solved for image "
        "by image with compiled kernels: load it with ccr.ConceptModel"
    )


def _threshold(bound: float, positive: bool) -> Select:
    if not 0 <= bound <= np.finfo(np.float32).max:
        raise FormatError(f"the model's rule has threshold {bound}: it must be a number from 0")
    limit = float(np.float32(bound))  # as the kernels compare
    if positive:
        return lambda scores: np.where(scores > limit, scores, 0.0)
    return lambda scores: np.where(np.abs(scores) >= limit, scores, 0.0)


def _top(length: int) -> Select:
    def select(scores: np.ndarray) -> np.ndarray:
        # Stable: of equals the first, as the kernels take them.
        kept = np.argsort(-np.abs(scores), axis=1, kind="stable")[:, :length]
        codes = np.zeros_like(scores)
        np.put_along_axis(codes, kept, np.take_along_axis(scores, kept, axis=1), axis=1)
        return codes

    return select
