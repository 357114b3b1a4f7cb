"""Whether threads divide the rows or the concepts among themselves when they code: decided by what was seen."""

from __future__ import annotations

import numpy as np

from ccr.kernels.x86.tiles import PANEL

#: Plans on which each way is tried, and how much less time shared concepts must take: less may be luck.
TRIALS, GAIN = 4, 0.05


class Division:
    """Either one owner has all concepts, and threads share the rows; or every thread owns concepts, for all rows. The
    first reads each row once, the second finds the concepts in the cache of the core that moved them. Which is faster
    depends on how large that cache is and how far it is from one core to the other, so both are tried in turns, and the
    second stays if it is clearly faster. It changes no number."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, int], list[float]] = {}

    def owners(self, most: int) -> int:
        """How many owners the concepts have in the next plan, where there may be up to `most`."""
        ways = sorted({1, max(1, most)})
        tries = [self.seconds.get((most, count), []) for count in ways]
        fewest = min(len(seconds) for seconds in tries)
        if len(ways) == 1 or fewest < TRIALS:
            return ways[[len(seconds) for seconds in tries].index(fewest)]
        rows, concepts = (min(seconds) for seconds in tries)
        return ways[int(concepts < (1.0 - GAIN) * rows)]

    def took(self, most: int, owners: int, seconds: float) -> None:
        """Take note that a plan with so many owners took so many seconds per row."""
        tries = self.seconds.setdefault((most, owners), [])
        if len(tries) < TRIALS:
            tries.append(seconds)


def first_concepts(owners: int, n: int) -> np.ndarray:
    """The first concept of each owner, and n; owners have whole panels."""
    panels = -(-n // PANEL)
    return np.array([number * panels // owners * PANEL for number in range(owners)] + [n])
