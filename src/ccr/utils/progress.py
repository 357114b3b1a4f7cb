"""Fits elsewhere: what a study asks of a cluster (`ccr.scale.RayPool`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

# How long work says how far it has come.
#: Called as work goes on: (steps done, steps in all, what is being done).
Tell = Callable[[int, int, str], None]


def no_progress(done: int, total: int, what: str) -> None:
    """The `Tell` of work that nobody watches."""


class Done(NamedTuple):
    """The result of item `number`, or why there is none; `refused`: for a reason in words."""

    number: int
    result: Any = None
    reason: str | None = None
    refused: bool = False


class Pool(Protocol):
    """Where pieces of a study run at the same time."""

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[Done]:
        """`work(shared, item)` of all items, each as it is done."""
        ...
