"""Coders: embeddings -> sparse codes (Information pursuit and Algorithm 2, docs/method.md).

A coder says what the user wants (`HardThreshold(length=12)`); its `rule` is that wish fitted to data
(`ThresholdRule(0.153)`), which every rule turns into codes.
"""

from ccr.coding.coders import (
    CODERS,
    IPOMP,
    OMP,
    RULES,
    Coder,
    HardThreshold,
    NonNegativeLasso,
    ScoreCoder,
    Sign,
    TopK,
    check_length,
    is_differentiable,
    rule_from_dict,
    rule_to_dict,
    score_rule,
)
from ccr.coding.codes import (
    FEW_ROWS,
    Decide,
    apply_rule,
    as_it_falls,
    code_chunks,
    code_size,
    decider,
    few_codes,
    map_codes,
    root_mean_square,
)
from ccr.coding.lasso import LassoRule, active_rows
from ccr.coding.pursuit import PursuitRule
from ccr.coding.rules import (
    CALIBRATION_ROWS,
    NUDGE,
    Encode,
    Rule,
    ScoreRule,
    ThresholdRule,
    TopRule,
    calibrate,
    rule_at_length,
)
from ccr.coding.scoring import Entries, Panels, Selection, screens

__all__ = [
    "CALIBRATION_ROWS",
    "CODERS",
    "FEW_ROWS",
    "IPOMP",
    "NUDGE",
    "OMP",
    "RULES",
    "Coder",
    "Decide",
    "Encode",
    "Entries",
    "HardThreshold",
    "LassoRule",
    "NonNegativeLasso",
    "Panels",
    "PursuitRule",
    "Rule",
    "ScoreCoder",
    "ScoreRule",
    "Selection",
    "Sign",
    "ThresholdRule",
    "TopK",
    "TopRule",
    "active_rows",
    "apply_rule",
    "as_it_falls",
    "calibrate",
    "check_length",
    "code_chunks",
    "code_size",
    "decider",
    "few_codes",
    "is_differentiable",
    "map_codes",
    "root_mean_square",
    "rule_at_length",
    "rule_from_dict",
    "rule_to_dict",
    "score_rule",
    "screens",
]
