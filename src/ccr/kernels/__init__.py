"""Compiled CPU kernels (numba), in two tiers: `plain` is numba alone, the reference and what works on every CPU; `x86`
is written for LLVM and the instructions that the CPU has, AVX2 at least, and faster. The environment variable
CCR_KERNELS chooses a tier, or fewer instructions; otherwise it is the fastest that works here. Each kernel assumes
valid input and works on contiguous float32 arrays, without the GIL, on the rows or concepts that it is given: who calls
it decides about threads (`ccr.utils.threads.Workers`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ccr.kernels.plain.arguments import (
    FAR_BELOW,
    ONE_SIDED,
    PADDING,
    SIZE_DECAY,
    SIZE_FLOOR,
    TOP,
    TWO_SIDED,
    BatchPlan,
    Criterion,
    Entries,
    StepSettings,
    StepState,
    line_zeros,
)

if TYPE_CHECKING:
    from ccr.kernels.plain.pursuit import nonnegative_lasso, pursue, pursue_fast
    from ccr.kernels.plain.rows import NOT_FINITE, prepare_rows
    from ccr.kernels.plain.select import DictionaryInFloats as PackedConcepts
    from ccr.kernels.plain.select import code_rows
    from ccr.kernels.plain.training import PlainSteps as StepKernels
    from ccr.kernels.plain.training import logits
    from ccr.kernels.tiers import warm_up, warm_up_before_timing

    TIER: str
    VARIANT: str
    SCREENS: bool

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
    "StepKernels",
    "StepSettings",
    "StepState",
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

#: Exports of the tier in use (`ccr.kernels.tiers.Tier`), and the homes of the others.
_OF_TIER = ("TIER", "VARIANT", "SCREENS", "PackedConcepts", "StepKernels", "code_rows", "logits")
_HOMES = {
    "NOT_FINITE": "plain.rows",
    "nonnegative_lasso": "plain.pursuit",
    "prepare_rows": "plain.rows",
    "pursue": "plain.pursuit",
    "pursue_fast": "plain.pursuit",
    "warm_up": "tiers",
    "warm_up_before_timing": "tiers",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: numba takes a second, and a few rows are coded without it.
    if name in _OF_TIER:
        export = getattr(import_module("ccr.kernels.tiers").tier, name)
    elif name in _HOMES:
        export = getattr(import_module(f"ccr.kernels.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'ccr.kernels' has no attribute {name!r}")
    globals()[name] = export
    return export
