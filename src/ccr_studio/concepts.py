"""Concepts: what each sees, how true it is to its words, and what it does to the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr_studio.edits import lesson_of
from ccr_studio.photo import tile
from ccr_studio.seen import Seen
from ccr_studio.session import State

#: Photos of a strip; classes in the list of weights.
PHOTOS, CLASSES = 12, 40


def concept_list(seen: Seen, state: State) -> list[dict[str, Any]]:
    """Every concept of the model in a line."""
    model, shown = seen.model, seen.photos.open
    counts = np.diff(seen.codes[shown].tocsc().indptr)
    strongest = np.abs(model.head.coef).argmax(axis=0)
    fidelity = seen.fidelity()
    total = max(int(shown.sum()), 1)
    return [
        {
            "name": name,
            "photos": int(counts[column]),
            "share": int(counts[column]) / total,
            "fidelity": plain(float(fidelity[column])),
            "class": seen.classes[int(strongest[column])],
            "weight": float(model.head.coef[strongest[column], column]),
            "classes": int(np.count_nonzero(model.head.coef[:, column])),
            "pinned": name in state.pinned,
        }
        for column, name in enumerate(model.names)
    ]


def concept_page(seen: Seen, state: State, name: str) -> dict[str, Any]:
    """What is known of a concept at once."""
    model, column = seen.model, seen.model.row(name)
    values, shown = seen.values(name), seen.photos.open
    active = seen.by_concept[:, [column]]
    rows, codes = active.indices, active.data
    keep = shown[rows] & (codes > 0)
    rows, codes = rows[keep], codes[keep]
    most, least = np.argsort(-codes, kind="stable")[:PHOTOS], np.argsort(codes, kind="stable")[:PHOTOS]
    return {
        "name": model.names[column],
        "photos": len(rows),
        "share": len(rows) / max(int(shown.sum()), 1),
        "threshold": seen.threshold(name),
        "values": {"low": float(values.min()), "high": float(values.max())},
        "pinned": name in state.pinned,
        "lesson": lesson_of(model, name)._asdict(),
        "most": [{**tile(seen, int(rows[i])), "value": float(codes[i])} for i in most],
        "borderline": [{**tile(seen, int(rows[i])), "value": float(codes[i])} for i in least],
        "weights": _weights(seen, column),
    }


def concept_drift(seen: Seen, name: str) -> dict[str, Any]:
    """Whether a concept still sees what its words see: fidelity, neighbours, photos gained and lost."""
    wanted = seen.model.names[seen.model.row(name)]
    drift = next(one for one in seen.audit().concepts if one.concept == wanted)
    rows = np.flatnonzero(seen.photos.open)
    pictures = {
        side: [{**tile(seen, int(rows[image.row])), "value": image.code} for image in getattr(drift, f"{side}_images")]
        for side in ("gained", "lost")
    }
    return {
        "name": wanted,
        "fidelity": drift.fidelity,
        "flags": list(drift.flags),
        "deviation": drift.deviation,
        "overlap": drift.overlap,
        "gained": {"count": drift.gained or 0, "photos": pictures["gained"]},
        "lost": {"count": drift.lost or 0, "photos": pictures["lost"]},
        "neighbours": plain(list(drift.nearest_after)),
    }


def _weights(seen: Seen, column: int) -> list[dict[str, Any]]:
    """The classes it speaks for and against: its weight, and what it adds on the class's own photos."""
    view, coef = seen.view(), seen.model.head.coef[:, column]
    order = [i for i in np.argsort(-np.abs(coef), kind="stable") if coef[i] != 0][:CLASSES]
    images = np.maximum(view.images, 1)
    return [
        {
            "class": seen.classes[i],
            "weight": float(coef[i]),
            "share": float(view.active[i, column] / images[i]),
            "carries": float(coef[i] * view.totals[i, column] / images[i]),
        }
        for i in order
    ]


def check_concept(seen: Seen, name: str) -> str:
    """A concept's name as the model has it."""
    if not name.strip():
        raise CCRError("which concept? give its name")
    return seen.model.names[seen.model.row(name)]
