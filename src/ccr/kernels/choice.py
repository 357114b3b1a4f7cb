"""Choice of the tier of kernels, made once, when they are imported."""

from __future__ import annotations

import importlib
import logging
import os
from types import ModuleType

from ccr.errors import CCRError
from ccr.kernels.plain import tier as plain

log = logging.getLogger("ccr")

#: Values of CCR_KERNELS: the plain kernels, the best of the x86 ones, or those of some instructions
#: (`ccr.kernels.x86.variants`).
WISHES = ("plain", "x86", "avx2", "avx2vnni", "avx512", "avx512vnni")


def choose_tier(wish: str) -> ModuleType:
    """The tier that is wished for; "" is x86 where it works. Which instructions x86 uses is decided when it is imported
    for the first time."""
    if wish not in ("", *WISHES):
        raise CCRError(
            f"CCR_KERNELS must be one of {', '.join(WISHES)}, got {wish!r}: unset it to have the fastest one chosen"
        )
    if wish == "plain":
        return plain
    try:
        return importlib.import_module("ccr.kernels.x86.tier")
    except Exception as reason:
        if wish:
            raise CCRError(
                f"CCR_KERNELS={wish} cannot be used here: {reason}; unset it or use CCR_KERNELS=plain"
            ) from reason
        # Anything but an ImportError comes from an llvmlite that is not the one these kernels were written for.
        expected = isinstance(reason, ImportError)
        log.log(logging.INFO if expected else logging.WARNING, "slower kernels are used (plain): %s", reason)
        return plain


tier = choose_tier(os.environ.get("CCR_KERNELS", ""))
