"""Threads and devices: worker pools, and the device that torch works on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ccr.errors import CCRError
from ccr.utils.arrays import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

# Threads: one pool at a time, so that no two compete for the cores. Small products run on one thread, because waking
# others costs more than it saves. Large work is cut into pieces that a few Python threads take one after the other
# (`Workers`); inside a piece, torch and the kernels use one thread. These threads sleep while they wait. Those of
# torch and numba spin: on a busy machine, or beside each other, every product then takes a scheduling quantum (8 ms).

#: Multiplications below which a product is not worth a second thread (measured: benchmarks/threads.py).
WORTH_A_THREAD = 50_000_000

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@contextmanager
def threads_for(multiplications: float) -> Iterator[None]:
    """Let torch use one thread inside, if its products are smaller than `WORTH_A_THREAD`."""
    before = torch.get_num_threads()
    if multiplications >= WORTH_A_THREAD or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers:
    """Thread pool of as many threads as torch may use, for work that releases the GIL; torch uses one in each while it
    is entered.

    `with Workers() as workers: workers.map(function, pieces)`.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or torch.get_num_threads()
        self._pool: ThreadPoolExecutor | None = None
        self._before = self.threads

    def __enter__(self) -> Workers:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._before)
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """`function` of each piece, in order; each thread takes the next piece when it is done with one."""
        if self.threads == 1 or len(pieces) == 1:
            return [function(piece) for piece in pieces]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, initializer=torch.set_num_threads, initargs=(1,))
        results: list[Result | None] = [None] * len(pieces)
        waiting = iter(range(len(pieces)))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                results[number] = function(pieces[number])

        helpers = [self._pool.submit(work) for _ in range(min(self.threads, len(pieces)) - 1)]
        try:
            work()
        finally:
            for helper in helpers:
                helper.result()
        return results  # type: ignore[return-value]


def resolve_device(name: str) -> torch.device:
    """`auto` is cuda if there is one, else mps, else cpu; other names as torch has them here."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        torch.ones(1, device=chosen).item()  # "meta" has tensors, but nothing in them
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CCRError(
            f'device must be "auto", "cpu", "cuda" or "mps", one that torch has here, got {name!r}: {reason}'
        ) from None
    return chosen
