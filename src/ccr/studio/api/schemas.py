"""Schemas: what goes in and out of the studio's API. Every answer about a model names its `version`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, FiniteFloat

from ccr.serve.schemas import ClassProbability, Contrast, Counterfactual, Strict, Term

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


class Sum(BaseModel):
    """A prediction: bias + contributions = logit."""

    prediction: str
    probability: float
    logit: float
    bias: float
    contributions: list[Term]
    probabilities: list[ClassProbability]


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
    left: float = Field(description="Where in the photo the patches begin, and how much they cover: shares of it.")
    top: float
    width: float
    height: float


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
    photos: int


class Lasso(Strict):
    """Corners of an outline on the map, in its coordinates from 0 to 1."""

    corners: list[tuple[FiniteFloat, FiniteFloat]] = Field(min_length=3, max_length=2000)
    splits: list[Name] = Field(default=[], max_length=16)


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


class Concept(Answer):
    """A concept's page."""

    name: str
    photos: int
    share: float
    threshold: float | None
    values: Range
    pinned: bool
    most: list[Tile]
    borderline: list[Tile]
    weights: list[ClassWeight]


class Neighbour(BaseModel):
    concept: str
    cosine: float


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
    steps: list[StepInfo]
    position: int
    looks: int
    can_undo: bool
    can_redo: bool
    job: JobInfo | None
    flattered: bool = Field(description="The opened model may have been trained on the validation photos.")
    where: bool = Field(description="Whether photos can be asked where a concept is.")


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


class Refit(Strict):
    """What to fit anew: everything from the concepts' texts on, or the head alone. What is not given stays."""

    kind: Literal["full", "head"] = "full"
    fidelity: float | None = Field(default=None, ge=0, le=1)
    length: float | None = Field(default=None, ge=1, le=1000)
    weights_per_class: Annotated[int, Field(ge=1, le=1000)] | Literal["all"] | None = None
    random_state: int | None = Field(default=None, ge=0, le=2**32 - 1)


class SaveAs(Strict):
    name: Name


class Saved(Answer):
    path: str


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


class UploadInfo(BaseModel):
    id: str
    name: str
