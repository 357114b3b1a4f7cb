"""Progress callbacks, Ctrl-C, and Python processes that import nothing from the current folder."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

# Progress callbacks for long-running work, and pools for the fits of a study (a cluster's: `ccr.scale.RayPool`).

#: Progress callback: (steps done, steps in all, what is being done).
OnProgress = Callable[[int, int, str], None]


def no_progress(done: int, total: int, what: str) -> None:
    """Default progress callback: discard the progress."""


class Done(NamedTuple):
    """The result of item `number`, or why there is none; `refused`: for a reason in words."""

    number: int
    result: Any = None
    reason: str | None = None
    refused: bool = False


class Pool(Protocol):
    """Pool that runs pieces of a study in parallel."""

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[Done]:
        """`work(shared, item)` of all items, each as it is done."""
        ...


# Ctrl-C ends the command line within two seconds, whatever is being computed, and prints what is kept. Files are
# written whole or not at all (`ccr.io.files`), so a process may end anywhere.

#: Seconds that an interrupted computation has to end by itself.
PATIENCE = 1.5
CODE = 130
_SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

_state = {"kept": "nothing half-written is left", "interrupted": False, "said": False}
_saying = threading.Lock()


def watch() -> None:
    """Install the SIGINT handler: an interrupted process ends by KeyboardInterrupt, or where that comes too late, at
    once.

    The byte that the system's handler writes reaches the thread also while the main thread is inside compiled code or
    an import, where Python's own handler has to wait.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_end_soon_after, args=(readable,), daemon=True).start()


def keep(words: str) -> None:
    """Note what is left, and how to go on, should the command be stopped."""
    _state["kept"] = words


@contextmanager
def sigint_left_to_caller() -> Iterator[None]:
    """Leave SIGINT to the caller inside, such as a server that drains its requests first."""
    waking = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)


def interrupted() -> bool:
    """Did Ctrl-C come?"""
    return bool(_state["interrupted"])


def report_stopped() -> None:
    """Say once, as JSON if that was asked for, that the command was stopped and what is kept."""
    with _saying:
        if _state["said"]:
            return
        _state["said"] = True
        message = f"stopped: {_state['kept']}"
        if "--json" in sys.argv:
            os.write(1, (json.dumps({"error": message}) + "\n").encode())
        else:  # os.write: a stream may be locked by the code that was interrupted
            cursor = _SHOW_CURSOR if os.isatty(2) else ""
            os.write(2, f"{cursor}\n{message}\n".encode(errors="backslashreplace"))


def _interrupt(number: int, frame: FrameType | None) -> None:
    _state["interrupted"] = True
    raise KeyboardInterrupt


def _end_soon_after(readable: int) -> None:
    while os.read(readable, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(PATIENCE)
    report_stopped()
    os._exit(CODE)


def end_with_parent() -> None:
    """End this process when its stdin closes: the one that started it, and would use its result, is gone then."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def isolated_python(program: str) -> list[str]:
    """The command line of a Python that runs `program` and may import what this process can, the current folder not.

    -I leaves the current folder and PYTHONPATH out, so this process's own path is handed on, with this ccr first.
    """
    ours = str(Path(__file__).parents[2])  # the folder that ccr lies in, not its modules
    path = [ours, *(entry for entry in sys.path if entry)]  # "" is the current folder
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {program}"]
