"""Common: names, numbers and small parts that several of the studio's answers have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ccr_studio.service.schemas import ClassProbability, Term

Name = Annotated[str, Field(min_length=1, max_length=200)]
Row = Annotated[int, Field(ge=0, le=2**40)]
Share = Annotated[float, Field(ge=0, le=1)]
Scope = Literal["validation", "train", "test", "shown"]


class Answer(BaseModel):
    """An answer about one model."""

    version: str = Field(description="The step of the session whose model answered; never a mixture of two.")


class Tile(BaseModel):
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
    contributions: list[Term]
    probabilities: list[ClassProbability]


class Neighbour(BaseModel):
    concept: str
    cosine: float
