"""Concepts that a sparse head gave no weight: not in the model, but kept beside it for the next fit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from ccr.concepts import Concepts
from ccr.io.format import stored_concepts
from ccr.io.provenance import Provenance


def kept_concepts(concepts: Concepts, rows: np.ndarray) -> Concepts:
    """The concepts of these rows, bit for bit."""
    if len(rows) == len(concepts):
        return concepts
    return stored_concepts([concepts.names[row] for row in rows], concepts.embeddings[rows])


def left_out_facts(texts: Concepts, kept: np.ndarray) -> dict[str, Any]:
    """The texts that are not among these sorted rows: fields of a `Provenance`."""
    gone = np.setdiff1d(np.arange(len(texts)), kept)
    if not len(gone):
        return {}
    return {
        "left_out": tuple(texts.names[row] for row in gone),
        "left_out_texts": texts.embeddings[gone],
        "left_out_places": np.searchsorted(kept, gone),
    }


def left_out_text(origin: Provenance, name: str) -> np.ndarray | None:
    """The text embedding (d,) of a concept that was left out, if the model knows it."""
    if origin.left_out_texts is None or not isinstance(name, str) or name.strip() not in origin.left_out:
        return None
    return origin.left_out_texts[origin.left_out.index(name.strip())]


def without(origin: Provenance, names: Collection[str]) -> Provenance:
    """The same, where concepts of these names are left out no longer: they are in the model."""
    rows = [row for row, name in enumerate(origin.left_out) if name not in names]
    if len(rows) == len(origin.left_out):
        return origin
    texts, places = origin.left_out_texts, origin.left_out_places
    return replace(
        origin,
        left_out=tuple(origin.left_out[row] for row in rows),
        left_out_texts=texts[rows] if texts is not None and rows else None,
        left_out_places=places[rows] if places is not None and rows else None,
    )


def whole_list(origin: Provenance) -> Concepts | None:
    """The list that the model was fitted with, as it is after edits: the model's own concepts and, in their places,
    those that were left out. A model of an older version knows its own alone."""
    texts, others, places = origin.texts, origin.left_out_texts, origin.left_out_places
    if texts is None or others is None or places is None:
        return texts
    known = set(texts.names)
    back = [row for row, name in enumerate(origin.left_out) if name not in known]  # edited models may have both
    places = np.minimum(places[back], len(texts))
    names = np.insert(np.array(texts.names, object), places, [origin.left_out[row] for row in back])
    return stored_concepts(names.tolist(), np.insert(texts.embeddings, places, others[back], axis=0))
