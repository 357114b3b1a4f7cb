"""The tiers of kernels: the choice of one, made once, when this is imported; and compiling its kernels ahead.

Kernels are compiled at their first call, half a minute in all, and then kept on disk.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.kernels.compiling import CACHE
from ccr.kernels.plain import pursuit, rows, select, training
from ccr.kernels.plain.arguments import PADDING, TWO_SIDED, BatchPlan, Criterion, Entries, StepSettings, StepState
from ccr.utils.processes import isolated_python
from ccr.utils.threads import Workers

log = logging.getLogger("ccr")

#: Values of CCR_KERNELS: the plain kernels, the best of the x86 ones, or those of some instructions
#: (`ccr.kernels.x86.variants`).
WISHES = ("plain", "x86", "avx2", "avx2vnni", "avx512", "avx512vnni")


class Tier(NamedTuple):
    """Exports of a tier, under the names that `ccr.kernels` has for them.

    `TIER` is its name, `VARIANT` the instructions that it is made of, `SCREENS` whether it can compute scores in bytes
    first. `PackedConcepts` is a dictionary made ready for `code_rows` and `StepKernels`; `logits` are products of codes
    with the head. `last` is the kernel of each group that is compiled last.
    """

    TIER: str
    VARIANT: str
    SCREENS: bool
    PackedConcepts: Callable[..., Any]
    StepKernels: Callable[..., Any]
    code_rows: Callable[..., int]
    logits: Callable[..., None]
    last: Mapping[str, Any]


def _plain() -> Tier:
    last = {"coding": select.select_active, "training": training.update_concepts}
    return Tier(
        "plain", "plain", False, select.DictionaryInFloats, training.PlainSteps, select.code_rows, training.logits, last
    )


def _x86() -> Tier:
    # Imported here: the folder may be deleted, and the CPU may lack the instructions, which is an ImportError.
    from ccr.kernels.x86 import phases, rounding, score, training, variants

    last = {"coding": score.code_panels, "training": training.train}
    variant = variants.VARIANT.name
    return Tier(
        "x86", variant, True, rounding.DictionaryInPanels, training.X86Steps, score.code_rows, phases.logits, last
    )


def choose_tier(wish: str) -> Tier:
    """The tier that is wished for; "" is x86 where it works. Which instructions x86 uses is decided when it is imported
    for the first time."""
    if wish not in ("", *WISHES):
        raise CCRError(
            f"CCR_KERNELS must be one of {', '.join(WISHES)}, got {wish!r}: unset it to have the fastest one chosen"
        )
    if wish == "plain":
        return _plain()
    try:
        return _x86()
    except Exception as reason:
        if wish:
            raise CCRError(
                f"CCR_KERNELS={wish} cannot be used here: {reason}; unset it or use CCR_KERNELS=plain"
            ) from reason
        # Anything but an ImportError comes from an llvmlite that is not the one these kernels were written for.
        expected = isinstance(reason, ImportError)
        log.log(logging.INFO if expected else logging.WARNING, "slower kernels are used (plain): %s", reason)
        return _plain()


tier = choose_tier(os.environ.get("CCR_KERNELS", ""))

#: Seconds after which a wait is worth a word.
PATIENCE = 1.0
MESSAGE = "compiling the CPU kernels for {}, once for this machine: about half a minute"
LOADING = "loading the compiled CPU kernels for {}"

_ready: set[str] = set()
_lock = threading.Lock()


def warm_up(say: Callable[[str], None] | None = None, *, group: str = "training", elsewhere: bool = False) -> None:
    """Compile or load the kernels of a group now; `say` gets a line of text if that takes longer than a second.

    `elsewhere`: what is not on disk yet is compiled by another process, because the compiler leaves half a gigabyte of
    memory behind.
    """
    with _lock:
        if group in _ready:
            return
        message = LOADING if _on_disk(group) else MESSAGE
        timer = threading.Timer(PATIENCE, say or _silent, (message.format(group),))
        timer.daemon = True
        timer.start()
        try:
            if elsewhere:
                _compile_elsewhere(group)
            GROUPS[group].call()
        finally:
            timer.cancel()
        _ready.add(group)


def warm_up_before_timing(*groups: str) -> None:
    """Compile or load the kernels of these groups, none: of all, so that a clock that starts now does not see it."""
    for group in groups or GROUPS:
        warm_up(log.info, group=group, elsewhere=True)


def _silent(text: str) -> None:
    """Default log: discard the message."""


def _compile_elsewhere(group: str) -> None:
    """Compile in another process, if nothing is on disk yet. Where that fails (nothing can be written, no process can
    be started), the kernels compile here as they are called."""
    if CACHE is None or _on_disk(group):
        return
    program = isolated_python(f"from ccr.kernels import tiers; tiers.GROUPS[{group!r}].call()")
    with suppress(OSError):
        subprocess.run(program, check=False, capture_output=True, cwd=CACHE)


def _on_disk(group: str) -> bool:
    """Whether the kernels of the group have been compiled before."""
    kernel = GROUPS[group].last
    return CACHE is not None and any(Path(kernel.stats.cache_path).glob(f"*.{kernel.py_func.__name__}-*.nbi"))


def _call_coding() -> None:
    """Call every kernel of a prediction on two rows, with the types that it has there."""
    line, square = np.ones(2, np.float32), np.eye(2, dtype=np.float32)
    entries = Entries(np.array([0, 1, 2], np.int32), np.zeros(2, np.int32), line.copy())
    rows.prepare_rows(square, line[:0], square.copy())
    tier.logits(*entries, square, line, square.copy())
    packed = tier.PackedConcepts(square, screened=tier.SCREENS, seed=0)
    tier.code_rows(square, packed, Criterion(TWO_SIDED, np.float32(0.5), 0), entries)


def _call_training() -> None:
    """Call every kernel of a training on two rows, with the types that the engine uses."""
    _call_coding()
    line, square = np.ones(2, np.float32), np.eye(2, dtype=np.float32)
    head, bias = np.zeros((2, PADDING), np.float32), np.zeros(PADDING, np.float32)
    parameters = StepState(
        square.copy(), square, square.copy(), line.copy(), head, head.copy(), line.copy(), bias, bias.copy(),
        np.zeros(1), np.full(1, 0.5), np.zeros(1, np.int64), head.copy(),
    )  # fmt: skip
    settings = StepSettings(
        refine=True, adaptive=True, momentum=0.9, radius=0.1, penalty=0.0, scale=1.0, kind=TWO_SIDED, length=0,
        target_length=1.0, nudge=0.05, dropped=0, keep=1.0, seed=0, classes=2,
    )  # fmt: skip
    plan = BatchPlan(square, np.arange(2, dtype=np.int32), np.arange(2), line, 2, np.zeros((1, 2)))
    packed = tier.PackedConcepts(parameters.dictionary, screened=tier.SCREENS, seed=0)
    tier.StepKernels(parameters).take(plan, settings, packed, Workers(1), lasting=True)


def _call_pursuit() -> None:
    one, ints, counts = np.ones(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.int64)
    square = np.ones((1, 1), np.float32)
    pursuit.pursue_fast(square, square.copy(), one, True, 1, ints, one.copy(), counts)
    pursuit.pursue(np.ones((1, 1)), np.ones((1, 1)), np.ones(1), True, 1, ints, one.copy(), counts)


def _call_lasso() -> None:
    pursuit.nonnegative_lasso(np.ones((1, 1)), np.ones((1, 1)), 0.5, 1e-6, 10)


class Group(NamedTuple):
    """Kernels that are used together: how to call each once, and the one that is called last."""

    call: Callable[[], None]
    last: Any


GROUPS = {
    "training": Group(_call_training, tier.last["training"]),
    "coding": Group(_call_coding, tier.last["coding"]),
    "pursuit": Group(_call_pursuit, pursuit.pursue),
    "lasso": Group(_call_lasso, pursuit.nonnegative_lasso),
}
