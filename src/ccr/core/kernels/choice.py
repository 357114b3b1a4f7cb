"""Which tier of kernels is used: chosen once, when they are imported."""

from __future__ import annotations

import importlib
import logging
import os
from types import ModuleType

from ccr.core.kernels.plain import tier as plain
from ccr.errors import CCRError

log = logging.getLogger("ccr")


def choose_tier(wish: str) -> ModuleType:
    """The tier that is wished for, "plain" or "x86"; "" is x86 where it works."""
    if wish not in ("", "plain", "x86"):
        raise CCRError(f"CCR_KERNELS must be plain or x86, got {wish!r}: unset it to have the faster one chosen")
    if wish == "plain":
        return plain
    try:
        return importlib.import_module("ccr.core.kernels.x86.tier")
    except Exception as reason:
        if wish == "x86":
            raise CCRError(f"CCR_KERNELS=x86 cannot be had: {reason}; unset it or use CCR_KERNELS=plain") from reason
        # Anything but an ImportError comes from an llvmlite that is not the one these kernels were written for.
        expected = isinstance(reason, ImportError)
        log.log(logging.INFO if expected else logging.WARNING, "slower kernels are used (plain): %s", reason)
        return plain


tier = choose_tier(os.environ.get("CCR_KERNELS", ""))
