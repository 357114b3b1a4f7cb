"""Coders: embeddings -> sparse codes (METHOD 1 and 3).

A coder says what the user wants (`HardThreshold(length=12)`); its `rule` is that wish fitted to data
(`ThresholdRule(0.153)`), which decides entry by entry what of the scores `X D^T` stays in the code.
"""

from ccr.core.coding.coders import IPOMP, OMP, Coder, HardThreshold, NonNegativeLasso, Sign, TopK, check_length
from ccr.core.coding.codes import apply_rule, code_chunks, logits_of, map_codes
from ccr.core.coding.lasso import LassoRule
from ccr.core.coding.pursuit import PursuitRule
from ccr.core.coding.rules import (
    CALIBRATION_ROWS,
    NUDGE,
    ActiveEntries,
    Rule,
    Selection,
    ThresholdRule,
    TopRule,
    calibrate,
)
from ccr.core.coding.scoring import Panels, screens

__all__ = [
    "CALIBRATION_ROWS",
    "IPOMP",
    "NUDGE",
    "OMP",
    "ActiveEntries",
    "Coder",
    "HardThreshold",
    "LassoRule",
    "NonNegativeLasso",
    "Panels",
    "PursuitRule",
    "Rule",
    "Selection",
    "Sign",
    "ThresholdRule",
    "TopK",
    "TopRule",
    "apply_rule",
    "calibrate",
    "check_length",
    "code_chunks",
    "logits_of",
    "map_codes",
    "screens",
]
