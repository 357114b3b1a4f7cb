"""Answers of the API: their types, and how they are made from the library's own results."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

import ccr
from ccr import metrics
from ccr.explain import Contrast, Contribution, Counterfactual
from ccr.explain.explanation import Question
from ccr.explain.terms import plain
from ccr.io.provenance import signature_sentence
from ccr.model import ConceptModel

Label = str | bool | int | float
#: At most this many numbers in one embedding, and characters in a name.
MOST_DIMENSIONS, MOST_CHARACTERS = 65_536, 1_000

Embedding = Annotated[list[FiniteFloat], Field(min_length=1, max_length=MOST_DIMENSIONS)]
ClassName = Annotated[str, Field(max_length=MOST_CHARACTERS)]
#: Bounds of every top-n: how many of the largest to show.
Top = Annotated[int, Field(ge=0, le=1000)]


class Strict(BaseModel):
    """Unknown fields are refused: a misspelt option must not be ignored."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(BaseModel):
    """Error response: the reason why a request was refused."""

    error: str = Field(description="The rule, the value and the remedy, in words.")


class ClassProbability(BaseModel):
    """A class and its probability."""

    name: Label
    probability: float


class PredictionAnswer(BaseModel):
    """Prediction of an image."""

    prediction: Label
    probability: float
    runner_up: Label
    runner_up_probability: float
    classes: list[ClassProbability] = Field(description="The most probable classes, as many as were asked for.")
    contributions: list[Contribution] = Field(
        description="The largest contributions to the predicted class, as many as were asked for."
    )
    may_be: list[Label] | None = Field(
        description="The classes that it may be, at the coverage that the model was calibrated for; null if it was not."
    )
    abstains: bool | None = Field(
        description="Whether the answer is left to a person: that is not exactly one class, or no concept is a reason."
    )
    ask: Question | None = Field(
        default=None, description="Of an abstention, the one concept whose confirmation by a person would settle it."
    )


class PhotoPrediction(BaseModel):
    """A photo's prediction, or why there is none."""

    name: str = Field(description="The file's name as it was sent.")
    prediction: PredictionAnswer | None = None
    error: str | None = Field(default=None, description="Why the photo could not be read.")


class PhotoPredictions(BaseModel):
    """One result for each photo, in the order in which they were sent."""

    model: str
    results: list[PhotoPrediction]


class EmbeddingPredictions(BaseModel):
    """One result for each embedding, in their order."""

    model: str
    results: list[PredictionAnswer]


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


class ExplanationAnswer(BaseModel):
    """A prediction as a sum: bias + all contributions = logit, to rounding."""

    model: str
    prediction: Label
    probability: float
    logit: float
    bias: float
    contributions: list[Contribution] = Field(description="Largest effect first, at most as many as were asked for.")
    other_contributions: float = Field(description="The sum of the contributions that are not listed.")
    probabilities: list[ClassProbability]
    contrast: Contrast | None = Field(default=None, description="Against the class that was asked for.")
    counterfactual: Counterfactual | None = Field(
        default=None, description="The fewest concepts whose removal changes the prediction; null if no removal does."
    )


class EmbeddingsToPredict(Strict):
    """Embeddings by the model's own encoder, one row per image."""

    embeddings: list[Embedding] = Field(min_length=1)


class EmbeddingToExplain(Strict):
    """An embedding by the model's own encoder, and what to say about it."""

    embedding: Embedding
    against: ClassName | None = Field(default=None, description="Also say why not this class.")
    top: Top = 10


class ModelInfo(BaseModel):
    """The model that the server uses: classes, concepts, encoder, claims, signature and metrics."""

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


def predictions(model: ConceptModel, rows: np.ndarray, *, classes: int, concepts: int) -> list[PredictionAnswer]:
    """The prediction of each row (m, d), with its most probable classes and largest contributions."""
    sets = None if model.calibration is None else model.predict_set(rows)
    known = [(None, None)] * len(rows) if sets is None else list(zip(sets.labels, sets.abstains.tolist(), strict=True))
    return [
        _prediction(model, row, shares, may_be, abstains, classes=classes, concepts=concepts)
        for row, shares, (may_be, abstains) in zip(rows, model.predict_proba(rows), known, strict=True)
    ]


def explanation(name: str, model: ConceptModel, row: np.ndarray, *, against: str | None, top: int) -> ExplanationAnswer:
    """The sum behind the prediction of one row (d,), its contrast with a class, and what would change it."""
    explained = model.explain(row)
    contrast = None if against is None else explained.contrast(against)
    shown, rest = explained.contributions[:top], explained.contributions[top:]
    return ExplanationAnswer(
        model=name,
        prediction=plain(explained.prediction),
        probability=explained.probability,
        logit=explained.logit,
        bias=explained.bias,
        contributions=list(shown),
        other_contributions=sum(term.contribution for term in rest),
        probabilities=_most_probable(model, explained.probabilities, len(model.classes)),
        contrast=contrast,
        counterfactual=explained.counterfactual(),
    )


def model_info(name: str, model: ConceptModel, *, reads_photos: bool) -> ModelInfo:
    """Description of a model, with its provenance, for `GET /model`."""
    origin = model.provenance
    return ModelInfo(
        name=name,
        library_version=ccr.__version__,
        classes=model.classes.tolist(),
        concepts=list(model.names),
        dimension=model.dimension,
        encoder=origin.encoder,
        encoder_fingerprint=origin.encoder_fingerprint,
        reads_photos=reads_photos,
        weights_per_class=metrics.weights_per_class(model.head),
        coverage=None if model.calibration is None else model.calibration.coverage,
        knowledge=None if origin.knowledge is None else origin.knowledge.digest,
        claims=model.claim_counts,
        signature=signature_sentence(model),
        edits=len(origin.edits),
        metrics=plain(origin.metrics),
    )


def _prediction(
    model: ConceptModel,
    row: np.ndarray,
    shares: np.ndarray,
    may_be: list[Any] | None,
    abstains: bool | None,
    *,
    classes: int,
    concepts: int,
) -> PredictionAnswer:
    first, second = _most_probable(model, shares, 2)
    question = model.question(row) if abstains else None
    return PredictionAnswer(
        prediction=first.name,
        probability=first.probability,
        runner_up=second.name,
        runner_up_probability=second.probability,
        classes=_most_probable(model, shares, classes),
        contributions=list(model.explain(row).contributions[:concepts]) if concepts else [],
        may_be=may_be,
        abstains=abstains,
        ask=question,
    )


def _most_probable(model: ConceptModel, shares: np.ndarray, count: int) -> list[ClassProbability]:
    names: list[Any] = model.classes.tolist()
    order = np.argsort(-shares, kind="stable")[:count]
    return [ClassProbability(name=names[at], probability=float(shares[at])) for at in order]
