"""Compiling ahead: kernels are compiled at their first call, half a minute in all, and then kept on disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccr.core.kernels import elastic, lasso, pursuit, rows, select, step
from ccr.core.kernels.compiling import AVAILABLE

#: Seconds after which a wait is worth a word.
PATIENCE = 1.0
MESSAGE = "compiling the CPU kernels for {}, once for this machine: some twenty seconds"

_ready: set[str] = set()
_lock = threading.Lock()


def warm_up(say: Callable[[str], None] | None = None, *, group: str = "training") -> None:
    """Compile or load the kernels of a group now; `say` gets a line of text if that takes longer than a second."""
    with _lock:
        if group in _ready or not AVAILABLE:
            return
        timer = threading.Timer(PATIENCE, say or _silent, (MESSAGE.format(group),))
        timer.daemon = True
        timer.start()
        try:
            _compile_elsewhere(group)
            GROUPS[group].call()
        finally:
            timer.cancel()
        _ready.add(group)


def _silent(text: str) -> None:
    """Nobody listens."""


def _compile_elsewhere(group: str) -> None:
    """Compile in another process, if nothing is on disk yet: the compiler would leave half a gigabyte in this one.

    Where that fails (nothing can be written, no process can be started), the kernels compile here as they are called.
    """
    kernel = GROUPS[group].last
    place, name = kernel.stats.cache_path, kernel.py_func.__name__
    if place is not None and any(Path(place).glob(f"*{name}-*.nbi")):
        return
    program = f"from ccr.core.kernels import warm; warm.GROUPS[{group!r}].call()"
    with suppress(OSError):
        subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)


def _call_training() -> None:
    """Call every kernel of a training step on one row, with the types that the engine uses."""
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


def _call_pursuit() -> None:
    one, ints, counts = np.ones(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.int64)
    square = np.ones((1, 1), np.float32)
    pursuit.pursue_fast(square, square.copy(), one, True, 1, ints, one.copy(), counts)
    pursuit.pursue(np.ones((1, 1)), np.ones((1, 1)), np.ones(1), True, 1, ints, one.copy(), counts)


def _call_elastic() -> None:
    elastic.descend(np.ones((1, 1)), 1.0, 0.5, 0.1, 1e-6, 10, np.ones(1), np.ones(1))


def _call_lasso() -> None:
    lasso.nonnegative_lasso(np.ones((1, 1)), np.ones((1, 1)), 0.5, 1e-6, 10)


class Group(NamedTuple):
    """Kernels that are used together: how to call each once, and the one that is called last."""

    call: Callable[[], None]
    last: Any


GROUPS = {
    "training": Group(_call_training, rows.prepare_rows),
    "pursuit": Group(_call_pursuit, pursuit.pursue),
    "elastic": Group(_call_elastic, elastic.descend),
    "lasso": Group(_call_lasso, lasso.nonnegative_lasso),
}
