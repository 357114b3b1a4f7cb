"""Two models on the same photos: what one gained over the other, and where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.edit.session import edit_effect
from ccr.explain.terms import plain
from ccr.metrics import wilson_interval
from ccr_studio.mistakes import scope_rows
from ccr_studio.photo import explained, tile
from ccr_studio.seen import Seen

#: The groups of photos, by who is right.
GROUPS = ("differ", "first", "second", "neither", "both")


def effect(before: Seen, after: Seen, scope: str) -> dict[str, Any]:
    """Accuracy before and after on a scope, in all and by class, with intervals."""
    rows = scope_rows(after, scope)
    names = np.array(after.classes)
    facts: dict[str, Any] = {"scope": scope, "n": len(rows), "before_version": before.version, "classes": []}
    if not len(rows):
        return facts
    truth = names[after.truth[rows]]
    found = edit_effect(truth, np.array(before.classes)[before.predicted[rows]], names[after.predicted[rows]])
    kept = {key: value for key, value in found.to_dict().items() if key != "classes"}
    return {**facts, **kept, "classes": [_class_line(line) for line in found.classes]}


def differing(first: Seen, second: Seen, scope: str, group: str, offset: int, limit: int) -> dict[str, Any]:
    """Photos by who is right; those on which the models differ come surest first."""
    rows = scope_rows(first, scope)
    own, other = (np.array(one.classes)[one.predicted[rows]] for one in (first, second))
    truth = np.array(first.classes)[first.truth[rows]]
    right, theirs = own == truth, other == truth
    masks = {
        "differ": own != other,
        "first": right & ~theirs,
        "second": ~right & theirs,
        "neither": ~right & ~theirs,
        "both": right & theirs,
    }
    chosen = np.flatnonzero(masks[group])
    sure = np.maximum(first.confidence[rows[chosen]], second.confidence[rows[chosen]])
    order = np.lexsort((-sure, own[chosen] == other[chosen]))
    shown = chosen[order][offset : offset + limit]
    return {
        "n": len(rows),
        "accuracy": [_share(right), _share(theirs)],
        "intervals": [_interval(right), _interval(theirs)],
        "groups": {name: int(mask.sum()) for name, mask in masks.items()},
        "total": len(chosen),
        "photos": [_pair(first, second, int(rows[i])) for i in shown],
    }


def beside(first: Seen, second: Seen, row: int) -> dict[str, Any]:
    """Both models' sums for a photo, and the contributions of each to the first one's prediction."""
    one, two = first.explain(row), second.explain(row)
    shared = set(one.active) & set(two.active)
    compared = one.compare(two) if str(one.prediction) in map(str, two.classes) else None
    return {
        "photo": tile(first, row),
        "first": explained(one),
        "second": explained(two),
        "shared": sorted(shared),
        "overlap": None if compared is None else compared.overlap,
        "compared": None if compared is None else plain(list(compared.concepts[:14])),
    }


def _pair(first: Seen, second: Seen, row: int) -> dict[str, Any]:
    theirs = tile(second, row)
    return {**tile(first, row), "other": theirs["predicted"], "other_confidence": theirs["confidence"]}


def _class_line(line: Any) -> dict[str, Any]:
    before, after = (round(share * line.n) for share in (line.before, line.after))
    return {
        "name": str(line.name),
        "n": line.n,
        "before": line.before,
        "after": line.after,
        "before_interval": list(wilson_interval(before, line.n)),
        "after_interval": list(wilson_interval(after, line.n)),
    }


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if len(right) else None


def _interval(right: np.ndarray) -> list[float] | None:
    return list(wilson_interval(int(right.sum()), len(right))) if len(right) else None
