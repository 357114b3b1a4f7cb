"""Which scores are active: past a threshold, or the largest of an image (Algorithms 1 and 2, docs/method.md).

Scores are float64, so that one within rounding of the threshold is decided as the full model decides it (Close calls,
docs/method.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.models.model_checks import check_rule_values

#: From scores (b, n) to codes (b, n).
Select = Callable[[np.ndarray], np.ndarray]
#: What the rules that can be read consist of.
_ENTRIES = {"ThresholdRule": {"threshold", "positive", "length", "factors"}, "TopRule": {"length"}}


def selection(rule: Mapping[str, Any], concepts: int) -> Select:
    """The function of a rule as a model's configuration holds it."""
    values = dict(rule)
    kind = values.pop("type", None)
    if kind not in _ENTRIES:
        raise CCRError(
            f"the light runtime codes by a threshold or the top k, this model by {kind}, whose codes are solved for "
            "image by image with compiled kernels: load it with ccr.ConceptModel"
        )
    if unknown := set(values) - _ENTRIES[kind]:
        raise FormatError(f"the model's rule has {', '.join(sorted(unknown))}, which a {kind} has not: save it again")
    check_rule_values(values)
    if kind == "ThresholdRule":
        factors = values.get("factors")
        if factors is not None and len(factors) != concepts:
            raise FormatError(f"the model's rule has {len(factors)} factors of its threshold: it needs {concepts}")
        return _threshold(float(values["threshold"]), factors, values.get("positive", False))
    length = values["length"]
    if not isinstance(length, int) or length > concepts:
        raise FormatError(
            f"the model's rule has length {length!r}: it must be a whole number above 0 and at most {concepts}"
        )
    return _top(length)


def _threshold(threshold: float, factors: Sequence[float] | None, positive: bool) -> Select:
    """Codes of scores past the threshold, times each concept's factor if there are factors; as the kernels compare."""
    limit = (np.float32(threshold) * np.array(1.0 if factors is None else factors, np.float32)).astype(np.float64)
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
