"""Views of many photos: mistakes, the map, selections, and two models side by side."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, FiniteFloat

from ccr_studio.api.schemas.common import Answer, Row, Sum, Tile
from ccr_studio.service.schemas import Strict, Term


class SpokenTerm(BaseModel):
    """What a concept said on average over the photos of a cell, and the share of them that show it."""

    concept: str
    contribution: float
    share: float


class ConfusedPair(BaseModel):
    """One class taken for another."""

    truth: str
    predicted: str
    errors: int
    of: int


class Matrix(Answer):
    """The confusion matrix: counts[true][predicted]."""

    scope: str
    n: int
    right: int
    accuracy: float | None
    interval: list[float] | None
    classes: list[str]
    left_out: int = Field(description="Classes that are not shown because there are many.")
    counts: list[list[int]]
    confused: list[ConfusedPair]


class Cell(Answer):
    """One cell of the confusion matrix."""

    truth: str
    predicted: str
    n: int
    photos: list[Tile]
    bias: float
    spoke_for: list[SpokenTerm]
    spoke_against: list[SpokenTerm]
    difference: float | None


class MapState(Answer):
    """Whether the map is there."""

    state: Literal["computing", "ready"]
    method: Literal["umap", "pca"]
    why_not: str | None = Field(description="Why UMAP, though it is installed, did not lay out this map.")
    photos: int


class Lasso(Strict):
    """Corners of an outline on the map, in its coordinates from 0 to 1."""

    corners: list[tuple[FiniteFloat, FiniteFloat]] = Field(min_length=3, max_length=2000)


class Rows(Strict):
    """Photos by their rows."""

    rows: list[Row] = Field(min_length=1, max_length=1_000_000)


class ShareInOut(BaseModel):
    """The share of photos inside and outside a selection that show a concept."""

    concept: str
    inside: float
    outside: float


class ClassCount(BaseModel):
    name: str
    count: int


class Selection(Answer):
    """A selection of photos, and what sets it apart."""

    id: str
    n: int
    right: int
    labelled: int
    concepts: list[ShareInOut]
    classes: list[ClassCount]


class ModelChoice(BaseModel):
    id: str
    words: str


class Models(Answer):
    models: list[ModelChoice]


class PairTile(Tile):
    other: str
    other_confidence: float


class Differences(Answer):
    """Two models on the same photos."""

    other: str
    n: int
    accuracy: list[float | None]
    intervals: list[list[float] | None]
    groups: dict[str, int]
    total: int
    photos: list[PairTile]


class ComparedTerm(BaseModel):
    concept: str
    first: Term | None
    second: Term | None


class Beside(Answer):
    """Both models' sums for one photo."""

    other: str
    photo: Tile
    first: Sum
    second: Sum
    shared: list[str]
    overlap: float | None
    compared: list[ComparedTerm] | None
