"""Which models can leave the library: those whose codes are scores, kept or dropped one by one."""

from __future__ import annotations

from ccr.core.coding import Rule, ThresholdRule, TopRule
from ccr.errors import CCRError


def exportable_rule(rule: Rule, target: str) -> ThresholdRule | TopRule:
    """The rule itself if `target`, such as "ONNX", can compute it; an error with the reason otherwise."""
    if isinstance(rule, (ThresholdRule, TopRule)):
        return rule
    raise CCRError(
        f"{target} takes codes that are a threshold or the top k of the scores, this model's are made by "
        f"{type(rule).__name__}, which solves a problem of its own for every image, concept after concept: fit with "
        "HardThreshold or TopK to export, or run this model in Python"
    )
