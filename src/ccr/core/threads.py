"""Threads: small products run on one, because waking others costs more than they bring.

On a busy machine a thread that waits for its turn holds up every product by a scheduling quantum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Multiplications below which a product is not worth a second thread (measured: benchmarks/threads.py).
WORTH_A_THREAD = 50_000_000


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
