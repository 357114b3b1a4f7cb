"""How long work says how far it has come."""

from __future__ import annotations

from collections.abc import Callable

#: Called as work goes on: (steps done, steps in all, what is being done).
Tell = Callable[[int, int, str], None]


def no_progress(done: int, total: int, what: str) -> None:
    """The `Tell` of work that nobody watches."""
