"""Rows that a team of processes shares: each member keeps its own part at hand and reads others' when it must."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.core.team import Team, part_of

#: Up to this many bytes, as they are stored, a member keeps its part in memory.
RESIDENT_BYTES = 4 << 30


class SharedRows:
    """X (m, d), an array or a store, shared by a team; a store brings its labels and its encoder."""

    ndim = 2

    def __init__(self, X: Any, team: Team) -> None:
        self._source, self._team = X, team
        self.shape, self.dtype = tuple(X.shape), X.dtype
        self._part = part_of(team, len(self))
        self._kept: np.ndarray | None = None
        size = (self._part.stop - self._part.start) * self.shape[1] * np.dtype(str(X.dtype)).itemsize
        self._keep = not isinstance(X, np.ndarray) and size <= RESIDENT_BYTES

    @property
    def shared_by(self) -> Team:
        """The team, for `ccr.core.inputs.Embeddings`."""
        return self._team

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def y(self) -> Any:
        """Labels of a store; None of an array."""
        return self._of_store("y")

    @property
    def encoder(self) -> Any:
        return self._of_store("encoder")

    @property
    def fingerprint(self) -> Any:
        return self._of_store("fingerprint")

    def _of_store(self, name: str) -> Any:
        return getattr(self._source, name) if hasattr(type(self._source), name) else None

    def __getitem__(self, index: Any) -> np.ndarray:
        rows = np.arange(*index.indices(len(self))) if isinstance(index, slice) else np.asarray(index)
        start, stop = self._part.start, self._part.stop
        if not self._keep or not rows.size or rows.min() < start or rows.max() >= stop:
            return np.asarray(self._source[index])
        if self._kept is None:
            self._kept = np.array(self._source[start:stop])  # a store: read once, by ranges
            self.release()
        return self._kept[rows - start]

    def release(self) -> None:
        """Let go of mapped pages."""
        if hasattr(self._source, "release"):
            self._source.release()
