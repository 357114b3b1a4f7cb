"""Time and memory of a piece of work."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ccr import kernels

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Usage:
    """Seconds, and bytes of memory at the peak beyond those at the start; None where the system cannot say."""

    seconds: float = 0.0
    memory: int | None = None


@contextmanager
def resource_usage() -> Iterator[Usage]:
    """Measure what happens inside the block, never the compiling of kernels; the `Usage` is filled in when it ends."""
    kernels.warm_up_before_timing()
    usage = Usage()
    before = _reset_peak()
    start = time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - start
        peak = _resident("VmHWM")
        usage.memory = None if before is None or peak is None else max(0, peak - before)


def _reset_peak() -> int | None:
    """Let the peak begin at what is resident now, and say how much that is; None where Linux does not do this."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory that was freed but kept would hide what is taken next
        RESET.write_text("5")
        return _resident("VmRSS")
    return None


def _resident(field: str) -> int | None:
    with suppress(OSError), STATUS.open() as lines:
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), None)
    return None
