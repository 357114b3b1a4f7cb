"""Mistakes: which classes are taken for which, and what spoke for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.metrics import wilson_interval
from ccr.utils.texts import did_you_mean
from ccr_studio.photo import tile
from ccr_studio.seen import Seen

#: Classes of a matrix; of more, those with most errors are shown. Photos and concepts of a cell.
MOST_CLASSES, PHOTOS, CONCEPTS = 40, 60, 8


def scope_rows(seen: Seen, scope: str) -> np.ndarray:
    """Labelled rows of a scope: validation, train, test, or shown (all but test)."""
    photos = seen.photos
    rows = {"validation": photos.validation, "train": photos.training, "test": photos.test}.get(scope)
    if scope == "shown":
        rows = np.flatnonzero(photos.open)
    if rows is None:
        raise CCRError(f"mistakes are counted on validation, train, test or shown photos, got {scope!r}")
    return rows[seen.truth[rows] >= 0]


def matrix(seen: Seen, scope: str) -> dict[str, Any]:
    """The confusion matrix of a scope; of many classes, those with most errors."""
    rows = scope_rows(seen, scope)
    size = len(seen.classes)
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (seen.truth[rows], seen.predicted[rows]), 1)
    right = int(np.trace(counts))
    errors = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    shown = np.arange(size)
    if size > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[:MOST_CLASSES])
    return {
        "scope": scope,
        "n": len(rows),
        "right": right,
        "accuracy": right / len(rows) if len(rows) else None,
        "interval": list(wilson_interval(right, len(rows))) if len(rows) else None,
        "classes": [seen.classes[number] for number in shown],
        "left_out": size - len(shown),
        "counts": counts[np.ix_(shown, shown)].tolist(),
        "confused": _confused(seen, counts),
    }


def cell(seen: Seen, scope: str, truth: str, predicted: str) -> dict[str, Any]:
    """The photos of one cell, and what spoke for the prediction and for the truth, on average."""
    numbers = [_number(seen, name) for name in (truth, predicted)]
    rows = scope_rows(seen, scope)
    inside = rows[(seen.truth[rows] == numbers[0]) & (seen.predicted[rows] == numbers[1])]
    inside = inside[np.argsort(-seen.confidence[inside], kind="stable")]
    return {
        "truth": truth,
        "predicted": predicted,
        "n": len(inside),
        "photos": [tile(seen, int(row)) for row in inside[:PHOTOS]],
        **_spoken(seen, inside, *numbers),
    }


def _confused(seen: Seen, counts: np.ndarray) -> list[dict[str, Any]]:
    """The cells with most errors."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:10]
    pairs = [divmod(int(place), len(counts)) for place in order]
    return [
        {"truth": seen.classes[t], "predicted": seen.classes[p], "errors": int(wrong[t, p]), "of": int(counts[t].sum())}
        for t, p in pairs
        if wrong[t, p]
    ]


def _spoken(seen: Seen, rows: np.ndarray, truth: int, predicted: int) -> dict[str, Any]:
    """Mean contributions to the difference of the two classes' logits; of the diagonal, to the class's own logit."""
    head = seen.model.head
    weights = head.coef[predicted].astype(np.float64)
    bias = float(head.intercept[predicted])
    if truth != predicted:
        weights = weights - head.coef[truth]
        bias -= float(head.intercept[truth])
    if not len(rows):
        return {"bias": bias, "spoke_for": [], "spoke_against": [], "difference": None}
    codes = seen.codes[rows]
    means = np.asarray(codes.mean(axis=0)).ravel() * weights
    shares = np.asarray((codes != 0).mean(axis=0)).ravel()
    order = np.argsort(-np.abs(means), kind="stable")
    terms = [
        {"concept": seen.model.names[i], "contribution": float(means[i]), "share": float(shares[i])}
        for i in order
        if means[i] != 0
    ]
    return {
        "bias": bias,
        "spoke_for": [term for term in terms if term["contribution"] > 0][:CONCEPTS],
        "spoke_against": [term for term in terms if term["contribution"] < 0][:CONCEPTS],
        "difference": bias + float(means.sum()),
    }


def _number(seen: Seen, name: str) -> int:
    number = seen.number(name)
    if number < 0:
        raise CCRError(f"no class is called {name!r}{did_you_mean(name, seen.classes)}")
    return number
