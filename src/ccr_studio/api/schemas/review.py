"""The review: claims with their states, the photos of a claim, decisions, and a class."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ccr_studio.api.schemas.common import Answer, Name, Tile
from ccr_studio.api.schemas.views import ClassCount
from ccr_studio.service.schemas import Strict


class Overview(Answer):
    """Every claim of the model, by class."""

    classes: list[dict[str, Any]]
    counts: dict[str, int]
    rejected: int = Field(description="Claims that a refit takes away.")
    blocking: int = Field(description="Claims that keep the model from being signed.")
    policy: str
    reviewers: list[str]
    agreements: list[dict[str, Any]]
    thin: list[dict[str, Any]] = Field(description="Classes with fewer than two reasons.")
    signed: bool
    without: str = Field(description="The class of a photo that shows no concept.")


class ClaimEvidence(Answer):
    """What the photos say of one claim."""

    class_: str = Field(alias="class", serialization_alias="class")
    concept: str
    mine: list[Tile]
    others: list[Tile]
    share: float | None
    purity: float | None
    adds: float | None
    accuracy: float | None
    accuracy_without: float | None
    photos: int


class NextInLine(Answer):
    concepts: list[str]


class NewDecision(Strict):
    """An answer to "the class shows the concept"; no class: the concept is never a reason for any."""

    by: Name
    class_: Name | None = Field(default=None, alias="class")
    concept: Name
    answer: Literal["yes", "no", "unclear"]
    reason: Literal["", "background", "wrong of this class", "true of all classes", "not to be seen", "never"] = ""


class Reviewer(Strict):
    by: Name


class Decided(Answer):
    decision: dict[str, Any]


class ClassPage(Answer):
    """A class."""

    name: str
    photos: int
    right: int
    validation: int
    validation_right: int
    portraits: list[Tile]
    taken_for: list[ClassCount]
    taken_from: list[ClassCount]
    bias: float
    without: str
    against: list[str]


class Signed(Answer):
    """The signature of the model, None without a valid one."""

    signature: dict[str, Any] | None
