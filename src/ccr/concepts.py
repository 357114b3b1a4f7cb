"""Concepts: names and unit embeddings, frozen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.utils.arrays import is_tensor, unit_rows
from ccr.utils.texts import check_name, did_you_mean


@dataclass(frozen=True, eq=False)
class Concepts:
    """Named rows of a dictionary: `names` (n) and `embeddings` (n, d), made unit rows, float32, read-only.

    Names are unique, not empty, without control characters, and compared after trimming spaces.
    """

    names: tuple[str, ...]
    embeddings: np.ndarray

    def __init__(self, names: Iterable[str], embeddings: Any) -> None:
        rows = _checked_rows(embeddings)
        object.__setattr__(self, "names", _checked_names(names, len(rows)))
        object.__setattr__(self, "embeddings", rows)

    @classmethod
    def from_examples(
        cls,
        name: str,
        *,
        shows: Any,
        lacks: Any,
        text: np.ndarray | None = None,
        mean: np.ndarray | None = None,
        covariance: np.ndarray | None = None,
        among: Concepts | None = None,
    ) -> Concepts:
        """Learn a concept from photos: for what words or the encoder cannot say. `learn_direction` says how sure it is.

        Parameters
        ----------
        shows, lacks : (p, d) and (q, d), embeddings of photos that show it and that do not, at least two of each.
        text : (d,), the text embedding that it is drawn toward, measured from the mean of `among`. None: photos alone.
        mean, covariance : (d,) and (d, d), of many images. None: the same spread in all directions.
        among : the list that it will join: it is placed so that it has the learned direction from that list's mean.
        """
        from ccr.knowledge.grounding import learn_direction  # brings SciPy

        if among is not None and text is not None and np.shape(text) == (among.dimension,):
            text = unit_rows(np.asarray(text, np.float64)[None])[0] - among.embeddings.mean(axis=0)
        learned = learn_direction(shows, lacks, text=text, mean=mean, covariance=covariance)
        if among is None:
            return cls([name], learned.direction[None])
        return among.with_direction(name, learned.direction).subset([len(among)])

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self.names[:3]) + (", ..." if len(self) > 3 else "")
        return f"Concepts({len(self)} x {self.dimension}: {shown})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Concepts):
            return NotImplemented
        return self.names == other.names and np.array_equal(self.embeddings, other.embeddings)

    def __hash__(self) -> int:
        return hash(self.names)

    @property
    def dimension(self) -> int:
        return int(self.embeddings.shape[1])

    def index(self, name: str) -> int:
        """Row of the concept called `name`."""
        if not isinstance(name, str):
            raise CCRError(f"a concept is known by its name, a text, got {name!r}")
        try:
            return self.names.index(name.strip())
        except ValueError:
            raise unknown_concept(name, self.names) from None

    def subset(self, rows: Sequence[int] | np.ndarray) -> Concepts:
        """The concepts of these rows, in this order."""
        rows = list(np.arange(len(self))[np.asarray(rows)])
        return Concepts([self.names[row] for row in rows], self.embeddings[rows])

    def with_direction(self, name: str, direction: np.ndarray) -> Concepts:
        """These and one more that lies in this unit direction (d,) from their mean: models measure them from there."""
        mean = self.embeddings.mean(axis=0, dtype=np.float64)
        along = float(mean @ direction)
        row = mean + (np.sqrt(along**2 + 1.0 - float(mean @ mean)) - along) * direction
        return Concepts([*self.names, name], np.concatenate([self.embeddings, row[None]]))

    def with_embeddings(self, embeddings: Any) -> Concepts:
        """The same names with other embeddings."""
        return Concepts(self.names, embeddings)


def stored_concepts(names: Any, rows: np.ndarray) -> Concepts:
    """Concepts whose embeddings are these rows bit for bit; making them unit again could change the last digit."""
    concepts = Concepts(names, rows)
    exact = np.array(rows, dtype=np.float32)
    if not np.allclose(exact, concepts.embeddings, atol=1e-5):
        raise FormatError("the model's concepts are not unit vectors: the file was changed after it was saved")
    exact.setflags(write=False)
    object.__setattr__(concepts, "embeddings", exact)
    return concepts


def unknown_concept(name: object, known: Sequence[str]) -> CCRError:
    """The error for a name that no concept has."""
    close = did_you_mean(name, known)
    return CCRError(f"no concept is called {name!r}{close}; there are {len(known)}, such as {known[0]!r}")


def _checked_names(names: Iterable[str], n: int) -> tuple[str, ...]:
    if isinstance(names, str):
        raise CCRError(f"names must be a list of texts, got the one text {names!r}: put it in a list")
    texts = list(names)
    for row, name in enumerate(texts):
        if not isinstance(name, str) or not name.strip():
            raise CCRError(f"every concept needs a name, got {name!r} in row {row}: give a text that is not empty")
        check_name(name, "a concept's name")
    stripped = tuple(str(name).strip() for name in texts)
    if len(stripped) != n:
        raise CCRError(f"there must be one name for each embedding, got {len(stripped)} names and {n} rows")
    first: dict[str, int] = {}
    for row, name in enumerate(stripped):
        if name in first:
            raise CCRError(f"concept names must be unique, got {name!r} in rows {first[name]} and {row}: drop one")
        first[name] = row
    return stripped


def _checked_rows(embeddings: Any) -> np.ndarray:
    if is_tensor(embeddings):
        embeddings = embeddings.detach().cpu().double().numpy()  # NumPy has no bfloat16
    try:
        rows = np.array(embeddings, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CCRError(f"embeddings must be a matrix of numbers, got {type(embeddings).__name__}: {error}") from None
    if rows.ndim != 2 or 0 in rows.shape:
        raise CCRError(f"embeddings must be (concepts, dimensions) with at least one of each, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise CCRError(f"embeddings must be finite, got NaN or infinity in row {bad}: embed that text again")
    if not rows.any(axis=1).all():
        bad = int(np.flatnonzero(~rows.any(axis=1))[0])
        raise CCRError(f"row {bad} of the concepts is all zeros: embeddings need a norm above 0; embed that text again")
    unit = unit_rows(rows).astype(np.float32)
    unit.setflags(write=False)
    return unit
