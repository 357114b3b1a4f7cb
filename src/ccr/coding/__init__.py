"""Coders: embeddings -> sparse codes (Information pursuit and Algorithm 2, docs/method.md).

A coder says what the user wants (`HardThreshold(length=12)`); its `rule` is that wish fitted to data
(`ThresholdRule(0.153)`), which every rule turns into codes.
"""

from ccr.coding.coders import (
    CODERS,
    IPOMP,
    OMP,
    Coder,
    HardThreshold,
    NonNegativeLasso,
    Sign,
    TopK,
    is_differentiable,
    rule_from_dict,
    rule_to_dict,
    score_rule,
)
from ccr.coding.codes import (
    FEW_ROWS,
    Decide,
    apply_rule,
    code_chunks,
    code_size,
    decider,
    few_codes,
    map_codes,
    no_tie_break,
    root_mean_square,
)
from ccr.coding.pursuit import LassoRule, active_rows
from ccr.coding.rules import (
    NUDGE,
    Encode,
    Entries,
    Panels,
    Rule,
    ScoreRule,
    ThresholdRule,
    TopRule,
    calibrate,
    rule_at_length,
    screens,
)

__all__ = [
    "CODERS",
    "FEW_ROWS",
    "IPOMP",
    "NUDGE",
    "OMP",
    "Coder",
    "Decide",
    "Encode",
    "Entries",
    "HardThreshold",
    "LassoRule",
    "NonNegativeLasso",
    "Panels",
    "Rule",
    "ScoreRule",
    "Sign",
    "ThresholdRule",
    "TopK",
    "TopRule",
    "active_rows",
    "apply_rule",
    "calibrate",
    "code_chunks",
    "code_size",
    "decider",
    "few_codes",
    "is_differentiable",
    "map_codes",
    "no_tie_break",
    "root_mean_square",
    "rule_at_length",
    "rule_from_dict",
    "rule_to_dict",
    "score_rule",
    "screens",
]
