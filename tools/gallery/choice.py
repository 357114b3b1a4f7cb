"""Which photos the gallery shows, by rules: nobody picks the flattering ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccr import ConceptClassifier
from ccr.data.store import EmbeddingStore
from ccr.edit import EditEffect, EditSession


@dataclass(frozen=True)
class Predictions:
    """What a model says of every photo: the class, how surely, and the concept that contributes most."""

    predicted: np.ndarray
    sure: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, model: ConceptClassifier, photos: EmbeddingStore) -> Predictions:
        explained = [model.explain(photos[row]) for row in range(len(photos))]
        first = [e.contributions[0].concept if e.contributions else "" for e in explained]
        return cls(
            np.array([e.prediction for e in explained]),
            np.array([e.probability for e in explained]),
            np.array(first),
        )


def surest(rows: np.ndarray, sure: np.ndarray, kinds: np.ndarray, most: int) -> list[int]:
    """Of these rows the surest, but only one of a kind."""
    ordered = rows[np.argsort(-sure[rows], kind="stable")]
    _, first = np.unique(kinds[ordered], return_index=True)
    return [int(row) for row in ordered[np.sort(first)][:most]]


def right(seen: Predictions, truth: np.ndarray, most: int) -> list[int]:
    """The surest right predictions, of different classes."""
    return surest(np.flatnonzero(seen.predicted == truth), seen.sure, truth, most)


def wrong(seen: Predictions, truth: np.ndarray, most: int) -> list[int]:
    """The surest wrong predictions, of different true classes."""
    return surest(np.flatnonzero(seen.predicted != truth), seen.sure, truth, most)


def surprising(seen: Predictions, truth: np.ndarray, around: Iterable[str], most: int) -> list[int]:
    """Right for a doubtful reason: what contributes most is not of the fruit but of its surroundings."""
    rows = np.flatnonzero((seen.predicted == truth) & np.isin(seen.first, list(around)))
    return surest(rows, seen.sure, seen.first, most)


def surroundings(concepts: Path) -> list[str]:
    """The concepts of a list below its heading "# Surroundings"."""
    lines = concepts.read_text(encoding="utf-8").split("# Surroundings\n")[1].splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@dataclass(frozen=True)
class Correction:
    """A model without some concepts, its head fitted again; what that changed."""

    model: ConceptClassifier
    suppressed: tuple[str, ...]
    effect: EditEffect


def correct(model: ConceptClassifier, away: Iterable[str], train: EmbeddingStore, test: EmbeddingStore) -> Correction:
    """Take away every concept of `away` that the model has, and refit the head."""
    session: EditSession = model.edit()
    suppressed = tuple(name for name in away if name in model.model_.names)
    for name in suppressed:
        session = session.suppress(name)
    session = session.refit(train)
    return Correction(ConceptClassifier.of(session.model()), suppressed, session.effect(test))
