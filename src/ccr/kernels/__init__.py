"""Compiled CPU kernels (numba), in two tiers: `plain` is numba alone, the reference and what works on every CPU; `x86`
is written for LLVM and the instructions that the CPU has, AVX2 at least, and faster. The environment variable
CCR_KERNELS chooses a tier, or fewer instructions; otherwise it is the fastest that works here. Each kernel assumes
valid input and works on contiguous float32 arrays, without the GIL, on the rows or concepts that it is given: who calls
it decides about threads (`ccr.utils.threads.Workers`)."""

from ccr.kernels.choice import tier
from ccr.kernels.plain.arguments import (
    FAR_BELOW,
    PADDING,
    SIZE_DECAY,
    SIZE_FLOOR,
    BatchPlan,
    Criterion,
    Entries,
    Parameters,
    StepSettings,
    line_zeros,
)
from ccr.kernels.plain.lasso import nonnegative_lasso
from ccr.kernels.plain.pursuit import pursue, pursue_fast
from ccr.kernels.plain.rows import NOT_FINITE, prepare_rows
from ccr.kernels.plain.select import ONE_SIDED, TOP, TWO_SIDED
from ccr.kernels.warm import warm_up, warm_up_before_timing

#: The tier in use, "plain" or "x86", and the instructions it is made of ("plain", "avx2", ...); then what it has:
#: whether it can compute scores in bytes first, a dictionary made ready for `code_rows` and for `Training`, and
#: products of codes with the head.
TIER: str = tier.NAME
VARIANT: str = tier.VARIANT
SCREENS: bool = tier.SCREENS
PackedConcepts = tier.PackedConcepts
Training = tier.Training
code_rows = tier.code_rows
logits = tier.logits

__all__ = [
    "FAR_BELOW",
    "NOT_FINITE",
    "ONE_SIDED",
    "PADDING",
    "SCREENS",
    "SIZE_DECAY",
    "SIZE_FLOOR",
    "TIER",
    "TOP",
    "TWO_SIDED",
    "VARIANT",
    "BatchPlan",
    "Criterion",
    "Entries",
    "PackedConcepts",
    "Parameters",
    "StepSettings",
    "Training",
    "code_rows",
    "line_zeros",
    "logits",
    "nonnegative_lasso",
    "prepare_rows",
    "pursue",
    "pursue_fast",
    "warm_up",
    "warm_up_before_timing",
]
