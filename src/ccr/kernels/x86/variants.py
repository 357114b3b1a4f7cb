"""The decorators of `ccr.kernels.compiling`, with a folder of compiled kernels for each variant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from llvmlite import binding
from numba import config

from ccr.kernels.compiling import decorator


# Instruction sets of the x86 kernels: the best that the CPU has, or the one that CCR_KERNELS names.
class Variant(NamedTuple):
    """`lanes` numbers of 32 bits fit into a register; `dots`: one instruction multiplies bytes and adds four products
    to a sum of 32 bits (VNNI). `needs` are what LLVM calls the CPU's features, one of each group."""

    name: str
    lanes: int
    dots: bool
    needs: tuple[tuple[str, ...], ...]


_WIDE = (("avx512f",), ("avx512bw",), ("avx512dq",), ("avx512vl",))
#: The best first.
VARIANTS = (
    Variant("avx512vnni", 16, True, (*_WIDE, ("avx512vnni",))),
    Variant("avx512", 16, False, _WIDE),
    Variant("avx2vnni", 8, True, (("avx2",), ("fma",), ("avxvnni", "avx512vnni"), ("avxvnni", "avx512vl"))),
    Variant("avx2", 8, False, (("avx2",), ("fma",))),
)


def runnable(features: Mapping[str, bool]) -> tuple[Variant, ...]:
    """The variants that a CPU with these features can run, the best first."""
    return tuple(variant for variant in VARIANTS if not lacking(variant, features))


def lacking(variant: Variant, features: Mapping[str, bool]) -> list[str]:
    """CPU features that a variant needs and that are missing from `features`."""
    return [" or ".join(group) for group in variant.needs if not any(features.get(name) for name in group)]


def choose(wish: str, features: Mapping[str, bool]) -> Variant:
    """The variant of that name; for any other wish the best one."""
    usable = runnable(features)
    if not usable:
        raise ImportError("this CPU has no AVX2 and FMA")
    for variant in VARIANTS:
        if variant.name == wish and variant not in usable:
            names = ", ".join(each.name for each in usable)
            raise ImportError(f"this CPU has no {', '.join(lacking(variant, features))}, and can run {names}")
    return next((variant for variant in usable if variant.name == wish), usable[0])


# If numba compiles for another CPU, the plain tier is used, which runs on every CPU.
if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
    raise ImportError("numba compiles for another CPU (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES)")

FEATURES: Mapping[str, bool] = binding.get_host_cpu_features()
VARIANT = choose(os.environ.get("CCR_KERNELS", ""), FEATURES)


compiled = decorator(folder=VARIANT.name)
inlined = decorator(inline="always", folder=VARIANT.name)
fused = decorator("contract", folder=VARIANT.name)
