"""Compiled CPU kernels (numba). Each assumes valid input and works on contiguous float32 arrays, without the GIL, on
the rows or concepts that it is given: who calls it decides about threads (`ccr.core.threads.Workers`)."""

from ccr.core.kernels.compiling import AVAILABLE
from ccr.core.kernels.elastic import descend
from ccr.core.kernels.lasso import nonnegative_lasso
from ccr.core.kernels.packing import pack_concepts
from ccr.core.kernels.pursuit import pursue, pursue_fast
from ccr.core.kernels.rows import NOT_FINITE, prepare_rows
from ccr.core.kernels.score import code_rows
from ccr.core.kernels.select import ONE_SIDED, TOP, TWO_SIDED, select_active
from ccr.core.kernels.step import cap_row, head_slopes, logits
from ccr.core.kernels.training import train
from ccr.core.kernels.warm import warm_up

__all__ = [
    "AVAILABLE",
    "NOT_FINITE",
    "ONE_SIDED",
    "TOP",
    "TWO_SIDED",
    "cap_row",
    "code_rows",
    "descend",
    "head_slopes",
    "logits",
    "nonnegative_lasso",
    "pack_concepts",
    "prepare_rows",
    "pursue",
    "pursue_fast",
    "select_active",
    "train",
    "warm_up",
]
