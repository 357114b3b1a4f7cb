"""Parts that several of the studio's answers have: a photo's tile, a prediction as a sum, names and numbers."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import Query, Response
from pydantic import BaseModel, Field

from ccr.explain import Contribution, Explanation
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import ClassProbability

Name = Annotated[str, Field(min_length=1, max_length=200)]
#: A name as an argument of the address.
Called = Annotated[str, Query(min_length=1, max_length=200)]
Row = Annotated[int, Field(ge=0, le=2**40)]
Share = Annotated[float, Field(ge=0, le=1)]
Scope = Literal["validation", "train", "test", "shown"]
#: Whether photos have the predictions of refits that have not seen them.
Held = Annotated[
    bool,
    Query(description="Out of fold: predictions by refits that have not seen the photo, where they are known."),
]
#: Classes in a list of probabilities, and in a list of counts.
TOP_CLASSES = 8


class VersionedAnswer(BaseModel):
    """An answer about one model."""

    version: str = Field(description="The step of the session whose model answered; never a mixture of two.")


class PhotoTile(BaseModel):
    """A photo on the wall."""

    row: int
    name: str
    truth: str | None
    predicted: str
    confidence: float
    right: bool | None
    split: str | None
    value: float | None = Field(default=None, description="Of the concept that was sorted by, or the likeness.")


class Sum(BaseModel):
    """A prediction: bias + contributions = logit."""

    prediction: str
    probability: float
    logit: float
    bias: float
    contributions: list[Contribution]
    probabilities: list[ClassProbability]


class ClassCount(BaseModel):
    """How many photos of a class."""

    name: str
    count: int


def tile(seen: SeenModel, row: int, value: float | None = None) -> PhotoTile:
    """A photo as the wall shows it."""
    row, truth = int(row), int(seen.truth[row])
    return PhotoTile(
        row=row,
        name=seen.photos.name(row),
        truth=seen.classes[truth] if truth >= 0 else None,
        predicted=seen.classes[int(seen.predicted[row])],
        confidence=float(seen.confidence[row]),
        right=bool(seen.right[row]) if truth >= 0 else None,
        split=seen.photos.splits[int(seen.photos.split[row])] or None,
        value=None if value is None else float(value),
    )


def tiles(
    seen: SeenModel, rows: np.ndarray | list[int], values: np.ndarray | list[float] | None = None
) -> list[PhotoTile]:
    """Photos as the wall shows them, each with its value."""
    return [tile(seen, row, None if values is None else values[at]) for at, row in enumerate(rows)]


def sum_of(why: Explanation) -> Sum:
    """A prediction and its sum."""
    order = np.argsort(-why.probabilities, kind="stable")[:TOP_CLASSES]
    return Sum(
        prediction=str(why.prediction),
        probability=why.probability,
        logit=why.logit,
        bias=why.bias,
        contributions=list(why.contributions),
        probabilities=[
            ClassProbability(name=str(why.classes[i]), probability=float(why.probabilities[i])) for i in order
        ],
    )


def most_common(seen: SeenModel, numbers: np.ndarray) -> list[ClassCount]:
    """The most frequent classes among class numbers, with how often each is there."""
    counts = np.bincount(numbers, minlength=len(seen.classes))
    order = np.argsort(-counts, kind="stable")[:TOP_CLASSES]
    return [ClassCount(name=seen.classes[number], count=int(counts[number])) for number in order if counts[number]]


def attachment(content: str, name: str, kind: str, version: str) -> Response:
    """A file to download."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Model-Version": version}
    return Response(content.encode(errors="replace"), media_type=kind, headers=headers)
