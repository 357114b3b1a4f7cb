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

from ccr.core.kernels import arguments, elastic, lasso, packing, pursuit, rows, score, select, step, tiles, training
from ccr.core.kernels.compiling import AVAILABLE
from ccr.core.kernels.llvm import LANES

#: Seconds after which a wait is worth a word.
PATIENCE = 1.0
MESSAGE = "compiling the CPU kernels for {}, once for this machine: up to half a minute"

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


def _call_coding() -> None:
    """Call every kernel of a prediction on two rows, with the types that it has there."""
    line, ints, square = np.ones(2, np.float32), np.zeros(2, np.int32), np.eye(2, dtype=np.float32)
    pointers = np.array([0, 1, 2], np.int32)
    rows.prepare_rows(square, line[:0], square.copy())
    step.logits(pointers, ints, line, square, line, square.copy())
    screen, floats = packing.empty_screen(1, 2), np.zeros((0, 2, tiles.PANEL), np.float32)
    packing.pack_concepts(0, 2, square, screen, floats)
    bound = np.float32(0.5)
    score.code_rows(square, square, screen, floats, select.TWO_SIDED, bound, 0, pointers, ints, line.copy())


def _call_training() -> None:
    """Call every kernel of a training on two rows, with the types that the engine uses."""
    _call_coding()
    line, square = np.ones(2, np.float32), np.eye(2, dtype=np.float32)
    head, bias = np.zeros((2, LANES), np.float32), np.zeros(LANES, np.float32)
    parameters = arguments.Parameters(
        square.copy(), square, square.copy(), line.copy(), head, head.copy(), line.copy(), bias, bias.copy(),
        np.zeros(1), np.full(1, 0.5), np.zeros(1, np.int64),
    )  # fmt: skip
    manner = arguments.Manner(True, True, 0.9, 0.1, 0.0, 1.0, select.TWO_SIDED, 0, 1.0, 0.05, 0, 1.0, 0, 2)
    places = np.arange(2, dtype=np.int32)
    kept, zeros = packing.unrounded(2, 2), np.zeros((1, 3))
    lesson = arguments.Lesson(square, kept, places, np.arange(2), line, 2, zeros[:, :2].copy(), zeros)
    entries, values = np.zeros(12, np.int32), np.zeros(12, np.float32)
    room = arguments.Room(
        screen=packing.empty_screen(1, 2), floats=np.zeros((0, 2, tiles.PANEL), np.float32),
        pointers=np.zeros((1, tiles.ROWS + 1), np.int32), indices=entries[None].copy(), codes=values[None].copy(),
        through=values[None].copy(), slopes=head.copy(), bias_slopes=head[:1].copy(), sums=np.zeros((1, 3)),
        counts=np.zeros((1, 2), np.int32), starts=np.zeros(3, np.int32), sorted_rows=entries,
        sorted_sources=entries.copy(), sorted_codes=values, sorted_through=values.copy(),
        logits=np.zeros((0, 0, 0), np.float32),
    )  # fmt: skip
    training.train(np.zeros(16, np.int64), parameters, manner, lesson, room)


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
    "training": Group(_call_training, training.train),
    "coding": Group(_call_coding, score.code_rows),
    "pursuit": Group(_call_pursuit, pursuit.pursue),
    "elastic": Group(_call_elastic, elastic.descend),
    "lasso": Group(_call_lasso, lasso.nonnegative_lasso),
}
