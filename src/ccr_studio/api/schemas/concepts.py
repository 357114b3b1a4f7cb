"""Concepts: in a list, on their pages, found by words; and edits by hand."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, FiniteFloat

from ccr_studio.api.schemas.common import Answer, Name, Neighbour, Row, Tile
from ccr_studio.service.schemas import Strict


class ConceptLine(BaseModel):
    """A concept in a list."""

    name: str
    photos: int
    share: float
    fidelity: float | None
    class_: str = Field(alias="class", serialization_alias="class")
    weight: float
    classes: int
    pinned: bool


class ConceptList(Answer):
    concepts: list[ConceptLine]
    left_out: list[str] = Field(description="Concepts of the list that the model gave no weight.")


class ClassWeight(BaseModel):
    """A concept in a class: its weight, the share of the class's photos that show it, what it adds on average."""

    class_: str = Field(alias="class", serialization_alias="class")
    weight: float
    share: float
    carries: float


class Range(BaseModel):
    low: float
    high: float


class PastLesson(BaseModel):
    """The photos by which a concept was taught."""

    shows: list[int]
    lacks: list[int]
    error: float | None = Field(description="Share of them on the wrong side, each left out in turn.")


class Concept(Answer):
    """A concept's page."""

    name: str
    photos: int
    share: float
    threshold: float | None
    values: Range
    pinned: bool
    lesson: PastLesson
    most: list[Tile]
    borderline: list[Tile]
    weights: list[ClassWeight]


class Moved(BaseModel):
    """Photos that a concept gained or lost against its own words."""

    count: int
    photos: list[Tile]


class Drift(Answer):
    """Whether a concept still sees what its words see."""

    name: str
    fidelity: float | None
    flags: list[str]
    deviation: float
    overlap: float | None
    gained: Moved
    lost: Moved
    neighbours: list[Neighbour]


class Search(Answer):
    """Photos that show what the words say, most first."""

    words: str
    photos: list[Tile]
    nearest: list[Neighbour] = Field(description="Concepts of the model that mean nearly the same.")
    known: bool = Field(description="Whether the model has a concept of this name already.")


class Edit(Strict):
    """One edit by hand."""

    action: Literal["suppress", "scale", "rename", "pin", "set_weight", "zero_weight", "merge"]
    concept: Name
    to: Name | None = Field(default=None, description="rename: the new name; merge: the other concept.")
    factor: FiniteFloat | None = Field(default=None, ge=-100, le=100, description="scale")
    class_: Name | None = Field(default=None, alias="class", description="set_weight, zero_weight")
    value: FiniteFloat | None = Field(default=None, ge=-1e6, le=1e6, description="set_weight")


class NewConcept(Strict):
    """A concept by words."""

    name: Name
    text: Name | None = Field(default=None, description="What is put to the encoder; by default the name.")


class Lesson(Strict):
    """A concept by photos that show it and photos that do not."""

    name: Name
    shows: list[Row] = Field(min_length=1, max_length=500)
    lacks: list[Row] = Field(min_length=1, max_length=500)
    by_name: bool = Field(default=True, description="Draw it toward its name, the more the fewer the photos.")
