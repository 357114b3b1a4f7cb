"""Schemas: what goes in and out of the API, typed and documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Label = str | bool | int | float
#: At most this many numbers in one embedding, and characters in a name.
MOST_DIMENSIONS, MOST_CHARACTERS = 65_536, 1_000

Embedding = Annotated[list[FiniteFloat], Field(min_length=1, max_length=MOST_DIMENSIONS)]
ClassName = Annotated[str, Field(max_length=MOST_CHARACTERS)]
#: Of every top-n: how many of the largest to show.
Top = Annotated[int, Field(ge=0, le=1000)]


class Strict(BaseModel):
    """Unknown fields are refused: a misspelt option must not be ignored."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What is wrong with a request."""

    error: str = Field(description="The rule, the value and the remedy, in words.")


class Term(BaseModel):
    """One active concept: contribution = code x weight."""

    concept: str
    code: float
    weight: float
    contribution: float
    claim: Literal["confirmed", "unknown", "contradicted"] | None = Field(
        default=None,
        description="What is known of the claim that the class shows the concept, which a positive weight makes; null "
        "for a weight that claims nothing.",
    )
    shown: float | None = Field(
        default=None,
        description="Probability that the image shows the concept; null where the model has no map for it.",
    )


class ClassProbability(BaseModel):
    """A class and its probability."""

    name: Label
    probability: float


class Question(BaseModel):
    """Does the image show the concept? If so, exactly one class is left."""

    concept: str
    code: float
    confirmed: float
    settles: Label
    probability: float
    denied: Label | None


class Prediction(BaseModel):
    """What an image is predicted to be."""

    prediction: Label
    probability: float
    runner_up: Label
    runner_up_probability: float
    classes: list[ClassProbability] = Field(description="The most probable classes, as many as were asked for.")
    contributions: list[Term] = Field(
        description="The largest contributions to the predicted class, as many as were asked for."
    )
    may_be: list[Label] | None = Field(
        description="The classes that it may be, at the coverage that the model was calibrated for; null if it was not."
    )
    abstains: bool | None = Field(description="Whether that is not exactly one class: the answer is left to a person.")
    ask: Question | None = Field(
        default=None, description="Of an abstention, the one concept whose confirmation by a person would settle it."
    )


class PhotoPrediction(BaseModel):
    """A photo's prediction, or why there is none."""

    name: str = Field(description="The file's name as it was sent.")
    prediction: Prediction | None = None
    error: str | None = Field(default=None, description="Why the photo could not be read.")


class PhotoPredictions(BaseModel):
    """One result for each photo, in the order in which they were sent."""

    model: str
    results: list[PhotoPrediction]


class EmbeddingPredictions(BaseModel):
    """One result for each embedding, in their order."""

    model: str
    results: list[Prediction]


class PhotoEmbedding(BaseModel):
    """A photo's embedding, or why there is none."""

    name: str
    embedding: list[float] | None = None
    error: str | None = None


class PhotoEmbeddings(BaseModel):
    """One embedding for each photo, in the order in which they were sent."""

    encoder: str
    fingerprint: str
    results: list[PhotoEmbedding]


class Contrast(BaseModel):
    """Why the prediction and not `other`: bias + sum of contributions = difference of their logits."""

    prediction: Label
    other: Label
    difference: float
    bias: float
    contributions: list[Term]


class Counterfactual(BaseModel):
    """Without the removed concepts, and with no fewer, the prediction would be `becomes`."""

    prediction: Label
    becomes: Label
    probability: float
    margin: float
    margin_after: float
    removed: list[Term]


class Explanation(BaseModel):
    """A prediction as a sum: bias + all contributions = logit, to rounding."""

    model: str
    prediction: Label
    probability: float
    logit: float
    bias: float
    contributions: list[Term] = Field(description="Largest effect first, at most as many as were asked for.")
    other_contributions: float = Field(description="The sum of the contributions that are not listed.")
    probabilities: list[ClassProbability]
    contrast: Contrast | None = Field(default=None, description="Against the class that was asked for.")
    counterfactual: Counterfactual | None = Field(
        default=None, description="The fewest concepts whose removal changes the prediction; null if no removal does."
    )


class Embeddings(Strict):
    """Embeddings by the model's own encoder, one row per image."""

    embeddings: list[Embedding] = Field(min_length=1)


class EmbeddingToExplain(Strict):
    """An embedding by the model's own encoder, and what to say about it."""

    embedding: Embedding
    against: ClassName | None = Field(default=None, description="Also say why not this class.")
    top: Top = 10


class ModelInfo(BaseModel):
    """What the server answers with."""

    name: str
    library_version: str
    classes: list[Label]
    concepts: list[str]
    dimension: int
    encoder: str | None
    encoder_fingerprint: str | None
    reads_photos: bool
    weights_per_class: float
    coverage: float | None = Field(description="What `may_be` was calibrated for; null if it was not.")
    knowledge: str | None = Field(default=None, description="Digest of the knowledge that it was fitted with.")
    claims: dict[str, int] = Field(description="Claims, positive weights, that are confirmed, unknown, contradicted.")
    signature: str | None = Field(
        default=None, description="Who confirmed all its claims, and whether that still holds; null: nobody signed it."
    )
    edits: int = Field(description="Changes made by hand since the model was fitted.")
    metrics: dict[str, Any] = Field(description="What was measured when the model was fitted, by data split.")


class Health(BaseModel):
    """Whether the server answers, and with which model."""

    status: str
    model: str
    waiting: int = Field(description="Photos that wait for the encoder.")
