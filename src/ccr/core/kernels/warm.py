"""Compiling ahead: kernels are compiled at their first call, half a minute in all, and then kept on disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ccr.core.kernels import pursuit, rows, select, step
from ccr.core.kernels.compiling import AVAILABLE

#: Seconds after which a wait is worth a word.
PATIENCE = 1.0
MESSAGE = "compiling the CPU kernels, once for this machine: about half a minute"

_ready = threading.Event()


def warm_up(say: Callable[[str], None] | None = None) -> None:
    """Compile or load every kernel now; `say` gets a line of text if that takes longer than a second."""
    if _ready.is_set() or not AVAILABLE:
        return
    timer = threading.Timer(PATIENCE, say, (MESSAGE,)) if say is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        _compile_elsewhere()
        _call_each()
    finally:
        if timer is not None:
            timer.cancel()
    _ready.set()


def _compile_elsewhere() -> None:
    """Compile in another process, if nothing is on disk yet: the compiler would leave half a gigabyte in this one.

    Where that fails (nothing can be written, no process can be started), the kernels compile here as they are called.
    """
    cached = [kernel.stats.cache_path for kernel in (select.select_active, step.move_concepts)]
    if all(path is not None and any(Path(path).glob("*.nbi")) for path in cached):
        return
    program = "from ccr.core.kernels import warm; warm._call_each()"
    with suppress(OSError):
        subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)


def _call_each() -> None:
    """Call every kernel on one row, with the types that the engines use."""
    one, ints = np.ones(1, np.float32), np.zeros(1, np.int32)
    square, zeros = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    pointers = np.zeros(2, np.int32)
    step_of = select.select_active(square, 0, np.float32(0.5), 0, 0, 0, 0, pointers, ints, one.copy())
    assert step_of == 1
    y, counts, starts = np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([0, 1])
    step.head_slopes(
        pointers, ints, one, np.float32(1), y, one, square, zeros, True, square.copy(), one.copy(), one.copy()
    )
    step.logits(pointers, ints, one, square, zeros, square.copy())
    step.count_concepts(ints, 1, counts)
    step.by_concept(0, pointers, ints, one, one, np.zeros(1, np.int64), ints, one.copy(), one.copy())
    step.move_concepts(
        0, 1, True, 0.9, 1.0, 1.0, starts, ints, one, one, square, square, square.copy(), square.copy(), one.copy(),
        np.float32(0), 0.1, True, square.copy(), square.copy(), one.copy(), square, 0.1, 0.1,
    )  # fmt: skip
    rows.prepare_rows(square, zeros[:0], square.copy())
    pursuit.pursue_fast(square, square.copy(), one, True, 1, ints, one.copy(), counts)
    eye = np.ones((1, 1))
    pursuit.pursue(eye, np.ones((1, 1)), np.ones(1), True, 1, ints, one.copy(), counts)
