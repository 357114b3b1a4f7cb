"""One photo: the sum that made its prediction, what could change it, and what is like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.explain import Explanation
from ccr.explain.terms import plain
from ccr_studio.seen import Seen
from ccr_studio.uploads import Uploads

#: Photos like this one; classes in the list of probabilities; concepts that a slider can bring in.
NEAREST, TOP_CLASSES, SUGGESTED = 8, 8, 12


@dataclass(frozen=True, eq=False)
class Subject:
    """What a photo page is about: a row of the store, or a dropped photo. `embedding` (d,) is the encoder's."""

    id: str
    row: int | None
    name: str
    explanation: Explanation
    embedding: np.ndarray


def subject(seen: Seen, uploads: Uploads, key: str) -> Subject:
    """The photo that an id names: a row's number, or what a dropped photo was answered with."""
    if key.startswith("u"):
        upload = uploads.get(key)
        return Subject(key, None, upload.name, seen.model.explain(upload.embedding), upload.embedding)
    row = seen.photos.row(key)
    return Subject(key, row, seen.photos.name(row), seen.explain(row), np.asarray(seen.photos.store[row], np.float32))


def photo_facts(seen: Seen, about: Subject) -> dict[str, Any]:
    """Everything that a photo's page shows at first."""
    why, row = about.explanation, about.row
    truth = None if row is None or seen.truth[row] < 0 else seen.classes[seen.truth[row]]
    change = why.counterfactual()
    split = None if row is None else seen.photos.splits[seen.photos.split[row]] or None
    return {
        "id": about.id,
        "name": about.name,
        "split": split,
        "truth": truth,
        **explained(why),
        "in_play": len(why.contributions),
        "active": [{"concept": name, "code": float(code)} for name, code in zip(why.active, why.codes, strict=True)],
        "counterfactual": None if change is None else change.to_dict(),
        "mistake": _mistake(seen, why, truth),
        "suggested": _suggested(seen, why),
        "nearest": nearest(seen, about),
    }


def explained(why: Explanation) -> dict[str, Any]:
    """A prediction and its sum."""
    order = np.argsort(-why.probabilities, kind="stable")[:TOP_CLASSES]
    return {
        "prediction": str(why.prediction),
        "probability": why.probability,
        "logit": why.logit,
        "bias": why.bias,
        "contributions": plain(list(why.contributions)),
        "probabilities": [{"name": str(why.classes[i]), "probability": float(why.probabilities[i])} for i in order],
    }


def intervened(about: Subject, codes: Mapping[str, float]) -> dict[str, Any]:
    """The prediction with entries of the code set by hand."""
    moved = about.explanation.intervene(codes)
    return {**explained(moved.after), "changed": moved.changed, "shifts": plain(list(moved.shifts))}


def nearest(seen: Seen, about: Subject) -> list[dict[str, Any]]:
    """The training photos most like this one, in the model's space, itself left out."""
    rows = seen.photos.training if len(seen.photos.training) else np.flatnonzero(seen.photos.open)
    place = seen.model.images(about.embedding[None]).span(0, 1)[0].numpy()
    cosines = seen.scores(place)[rows]
    if about.row is not None:
        cosines = np.where(rows == about.row, -2.0, cosines)
    best = np.argpartition(-cosines, min(NEAREST, len(rows) - 1))[: NEAREST + 1]
    best = best[np.argsort(-cosines[best], kind="stable")]
    found = [(int(rows[i]), float(cosines[i])) for i in best if cosines[i] > -2.0][:NEAREST]
    return [{**tile(seen, row), "value": cosine} for row, cosine in found]


def tile(seen: Seen, row: int) -> dict[str, Any]:
    """What the wall says of a photo."""
    truth = int(seen.truth[row])
    return {
        "row": row,
        "name": seen.photos.name(row),
        "truth": seen.classes[truth] if truth >= 0 else None,
        "predicted": seen.classes[int(seen.predicted[row])],
        "confidence": float(seen.confidence[row]),
        "right": bool(seen.right[row]) if truth >= 0 else None,
        "split": seen.photos.splits[int(seen.photos.split[row])] or None,
    }


def _mistake(seen: Seen, why: Explanation, truth: str | None) -> dict[str, Any] | None:
    if truth is None or str(why.prediction) == truth:
        return None
    mistake = why.mistake(truth, view=seen.view(), top=6)
    return {
        "rank": mistake.rank,
        "probability": mistake.probability,
        "missing": plain(list(mistake.missing or ())),
    }


def _suggested(seen: Seen, why: Explanation) -> list[str]:
    """Concepts that are not active here and weigh most for the first classes: worth a slider."""
    first = np.argsort(-why.logits)[:3]
    weight = np.abs(seen.model.head.coef[first]).max(axis=0)
    weight[why.columns] = 0
    order = np.argsort(-weight, kind="stable")[:SUGGESTED]
    return [seen.model.names[column] for column in order if weight[column] > 0]
