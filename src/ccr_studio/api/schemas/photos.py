"""Photos: the wall, a photo, what moves it, and what was dropped on the page."""

from __future__ import annotations

from pydantic import BaseModel, Field, FiniteFloat

from ccr_studio.api.schemas.common import Answer, Name, Sum, Tile
from ccr_studio.service.schemas import Contrast, Counterfactual, Strict


class ValueHistogram(BaseModel):
    """Where the values of a concept lie."""

    concept: str
    low: float
    high: float
    counts: list[int]
    threshold: float | None


class Counts(BaseModel):
    """How many photos each filter would leave, all others applied."""

    total: int
    classes: dict[str, int]
    predicted: dict[str, int]
    splits: dict[str, int]
    right: dict[str, int]
    confidence: list[int]
    values: ValueHistogram | None


class PhotoPage(Answer):
    """Some of the photos that the filters leave."""

    total: int
    offset: int
    photos: list[Tile]
    counts: Counts | None = None


class ActiveConcept(BaseModel):
    """A concept that a photo shows, and its code."""

    concept: str
    code: float


class MissingConcept(BaseModel):
    """A concept of the true class that the photo does not show."""

    concept: str
    code: float
    weight: float
    contribution: float
    share: float


class MistakeFacts(BaseModel):
    """Where the true class came in, and what was missing for it."""

    rank: int
    probability: float
    missing: list[MissingConcept]


class Photo(Answer, Sum):
    """A photo's page."""

    id: str
    name: str
    split: str | None
    truth: str | None
    in_play: int
    active: list[ActiveConcept]
    counterfactual: Counterfactual | None
    mistake: MistakeFacts | None
    suggested: list[str]
    nearest: list[Tile]


class ContrastAnswer(Answer, Contrast):
    """Why one class and not another."""


class Shift(BaseModel):
    """An entry of the code that was moved."""

    concept: str
    before: float
    after: float
    change: float


class Intervention(Answer, Sum):
    """The prediction with entries of the code set by hand."""

    changed: bool
    shifts: list[Shift]


class Codes(Strict):
    """Entries of the code to set; 0 removes a concept."""

    codes: dict[Name, FiniteFloat] = Field(max_length=200)


class Where(Answer):
    """Where a concept is: how much each patch of the photo adds to it, row by row."""

    concept: str
    rows: int
    columns: int
    values: list[float]
    code: float = Field(description="The concept's code: the patches and the rest add up to it.")
    rest: float = Field(description="What no patch carries.")
    left: float = Field(description="Where in the photo the patches begin, and how much they cover: shares of it.")
    top: float
    width: float
    height: float


class UploadInfo(BaseModel):
    id: str
    name: str
