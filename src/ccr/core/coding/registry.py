"""Rules and coders by name: how they lie in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ccr.core.coding.coders import IPOMP, OMP, HardThreshold, NonNegativeLasso, TopK
from ccr.core.coding.lasso import LassoRule
from ccr.core.coding.pursuit import PursuitRule
from ccr.core.coding.rules import Rule, ScoreRule, ThresholdRule, TopRule
from ccr.errors import CCRError, FormatError

CODERS: dict[str, Any] = {kind.__name__: kind for kind in (HardThreshold, TopK, OMP, IPOMP, NonNegativeLasso)}
RULES: dict[str, Any] = {kind.__name__: kind for kind in (ThresholdRule, TopRule, PursuitRule, LassoRule)}


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """A rule as JSON types."""
    name = type(rule).__name__
    if RULES.get(name) is not type(rule):
        raise CCRError(f"a {name} cannot be saved: the rules that can are {', '.join(RULES)}")
    values = asdict(rule)  # type: ignore[call-overload]
    if values.get("factors") is None:  # as in files of versions that knew no thresholds by concept
        values.pop("factors", None)
    return {"type": name, **values}


def rule_from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule of `rule_to_dict`."""
    given = dict(values)
    kind = RULES.get(str(given.pop("type", None)))
    if kind is None:
        raise FormatError(f"a rule is one of {', '.join(RULES)}, got {values.get('type')!r}: a newer ccr may know it")
    rule: Rule = kind(**given)
    return rule


def score_rule(values: Mapping[str, Any]) -> ScoreRule:
    """The rule of `rule_to_dict`, one that selects by scores."""
    rule = rule_from_dict(values)
    if not isinstance(rule, (ThresholdRule, TopRule)):
        raise FormatError(f"codes that are refined through are made by a threshold or the top k, got {rule!r}")
    return rule
