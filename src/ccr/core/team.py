"""Processes that share one fit: each reads its own part of the rows, and sums go over all parts."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Team(Protocol):
    """Every member makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Which member this process is, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of all members' arrays, the same to the bit for all; the array given may be overwritten."""
        ...

    def first(self, array: np.ndarray) -> np.ndarray:
        """The array of member 0."""
        ...


class Alone:
    """A team of one."""

    rank, size = 0, 1

    def sum(self, array: np.ndarray) -> np.ndarray:
        return array

    def first(self, array: np.ndarray) -> np.ndarray:
        return array


ALONE = Alone()


def part_of(team: Team, m: int) -> slice:
    """The rows, of m, that are this member's."""
    return slice(m * team.rank // team.size, m * (team.rank + 1) // team.size)


def own(team: Team, m: int, rows: np.ndarray) -> np.ndarray:
    """Which of these rows, of m, are this member's (len(rows),), bool."""
    part = part_of(team, m)
    return (rows >= part.start) & (rows < part.stop)
