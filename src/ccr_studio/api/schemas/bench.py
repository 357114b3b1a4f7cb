"""The bench: where the session stands, refits, what they brought, and what is saved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ccr_studio.api.schemas.common import Answer, Name
from ccr_studio.service.schemas import Strict


class EffectLine(BaseModel):
    """A class before and after."""

    name: str
    n: int
    before: float
    after: float
    before_interval: list[float]
    after_interval: list[float]


class Effect(Answer):
    """Accuracy before and after, on photos that no refit trained on."""

    scope: str
    n: int
    before_version: str
    before: float | None = None
    after: float | None = None
    before_interval: list[float] | None = None
    after_interval: list[float] | None = None
    changed: int | None = None
    classes: list[EffectLine]
    looks: int = Field(description="How often test photos were looked at in this session.")
    before_flattered: bool = Field(description="The model before may have been trained on the validation photos.")
    flattered: bool = Field(description="So may the model as it is now.")


class StepInfo(BaseModel):
    id: str
    words: str
    edit: dict[str, Any]
    at: str


class JobInfo(BaseModel):
    """A refit: its curve grows while it runs."""

    id: int
    kind: Literal["full", "head"]
    settings: dict[str, Any]
    state: Literal["running", "done", "failed", "cancelled"]
    epochs: int
    curve: list[dict[str, float | int | None]]
    message: str
    version: str | None
    seconds: float


class State(Answer):
    """Where the session stands."""

    title: str
    store: str
    photos: int
    pictures: str = Field(description="Digest of the photos, for `of` of /thumbnails.")
    classes: list[str]
    splits: dict[str, int]
    training: int
    validation: int
    test: int
    held_out: bool = Field(description="The store has no split val: some photos are held out instead.")
    concepts: int
    threshold: float | None
    accuracy: float | None = Field(description="On the validation photos.")
    interval: list[float] | None
    length: float
    settings: dict[str, Any]
    encoder: str
    read_only: bool
    decides: bool = Field(description="Answers of reviewers are taken.")
    signed: bool = Field(description="Every claim of the model is confirmed, and somebody signed it.")
    steps: list[StepInfo]
    position: int
    looks: int
    can_undo: bool
    can_redo: bool
    job: JobInfo | None
    flattered: bool = Field(description="The model as it is now may have been trained on the validation photos.")
    where: bool = Field(description="Whether photos can be asked where a concept is.")


class Refit(Strict):
    """What to fit anew: everything from the concepts' texts on, or the head alone. What is not given stays."""

    kind: Literal["full", "head"] = "full"
    fidelity: float | None = Field(default=None, ge=0, le=1)
    length: float | None = Field(default=None, ge=1, le=1000)
    weights_per_class: Annotated[int, Field(ge=1, le=1000)] | Literal["all"] | None = None
    random_state: int | None = Field(default=None, ge=0, le=2**32 - 1)


class Expected(Strict):
    """The step that is taken back, or that another one is done after; None: whichever is current."""

    version: Name | None = None


class SaveAs(Strict):
    name: Name


class Saved(Answer):
    path: str
