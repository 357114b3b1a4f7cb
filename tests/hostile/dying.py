"""Processes that die on purpose: at the k-th call that changes the disk, or when the disk is full."""

from __future__ import annotations

import builtins
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

from ccr.io import files

#: Calls of `os` that change files or folders, or make a change last.
CALLS = ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "chmod", "close")


def dies_at(call: int, work: Callable[[], object]) -> bool:
    """Do the work in another process that is killed just before its `call`-th call, from 0; False if it made fewer."""

    def child() -> None:
        _count_calls(call)
        work()

    return os.WTERMSIG(status) == signal.SIGKILL if os.WIFSIGNALED(status := _forked(child)) else False


def with_full_disk(size: int, work: Callable[[], object]) -> int:
    """The exit code of another process that does the work where no file can grow beyond `size` bytes; 3 is a
    WriteError."""

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        work()

    return os.waitstatus_to_exitcode(_forked(child))


def _forked(child: Callable[[], None]) -> int:
    from ccr.errors import WriteError

    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        child()
    except WriteError:
        os._exit(3)
    except BaseException:
        os._exit(4)
    os._exit(0)


def _count_calls(last: int) -> None:
    """From now on this process dies before the call with this number."""
    left = iter(range(last))

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    builtins.open = counted(builtins.open)  # type: ignore[assignment]
    files._exchange = counted(files._exchange)
