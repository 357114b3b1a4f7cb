"""What stays beside the driver for workers to ask or to tell. These actors import nothing else, so that each takes a
moment to start and no half gigabyte of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Board:
    """Where workers write how far they are, for the process that waits for them."""

    def __init__(self) -> None:
        self.lines: list[tuple[tuple[Any, ...], int]] = []

    def tell(self, values: tuple[Any, ...], epochs: int) -> None:
        self.lines.append((values, epochs))

    def take(self) -> list[tuple[tuple[Any, ...], int]]:
        """What was written since it was last taken."""
        taken, self.lines = self.lines, []
        return taken


class Desk:
    """Hands out what belongs to chunks: photos, or what rows are called."""

    def __init__(self, items: Sequence[Any], size: int) -> None:
        self.items, self.size = items, size

    def chunk(self, number: int) -> list[Any]:
        """What belongs to one."""
        return list(self.items[number * self.size : (number + 1) * self.size])
