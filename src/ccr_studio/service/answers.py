"""Answers: what a model says about embeddings, in the API's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

import ccr
from ccr import metrics
from ccr.explain import Contribution
from ccr.explain.terms import plain
from ccr.io.provenance import signature_in_words
from ccr.model import ConceptModel
from ccr_studio.service.schemas import (
    ClassProbability,
    Contrast,
    Counterfactual,
    Explanation,
    ModelInfo,
    Prediction,
    Question,
    Term,
)


def predictions(model: ConceptModel, rows: np.ndarray, *, classes: int, concepts: int) -> list[Prediction]:
    """The prediction of each row (m, d), with its most probable classes and largest contributions."""
    known = None if model.calibration is None else model.predict_set(rows).labels
    return [
        _prediction(model, row, shares, None if known is None else known[at], classes=classes, concepts=concepts)
        for at, (row, shares) in enumerate(zip(rows, model.predict_proba(rows), strict=True))
    ]


def explanation(name: str, model: ConceptModel, row: np.ndarray, *, against: str | None, top: int) -> Explanation:
    """The sum behind the prediction of one row (d,), its contrast with a class, and what would change it."""
    explained = model.explain(row)
    contrast = None if against is None else explained.contrast(against)
    change = explained.counterfactual()
    shown, rest = explained.contributions[:top], explained.contributions[top:]
    return Explanation(
        model=name,
        prediction=plain(explained.prediction),
        probability=explained.probability,
        logit=explained.logit,
        bias=explained.bias,
        contributions=_terms(shown),
        other_contributions=sum(term.contribution for term in rest),
        probabilities=_most_probable(model, explained.probabilities, len(model.classes)),
        contrast=None if contrast is None else Contrast.model_validate(contrast.to_dict()),
        counterfactual=None if change is None else Counterfactual.model_validate(change.to_dict()),
    )


def model_info(name: str, model: ConceptModel, *, reads_photos: bool) -> ModelInfo:
    """What the model is and where it comes from."""
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
        signature=signature_in_words(model),
        edits=len(origin.edits),
        metrics=plain(origin.metrics),
    )


def _prediction(
    model: ConceptModel, row: np.ndarray, shares: np.ndarray, may_be: list[Any] | None, *, classes: int, concepts: int
) -> Prediction:
    first, second = _most_probable(model, shares, 2)
    abstains = None if may_be is None else len(may_be) != 1
    question = model.question(row) if abstains else None
    return Prediction(
        prediction=first.name,
        probability=first.probability,
        runner_up=second.name,
        runner_up_probability=second.probability,
        classes=_most_probable(model, shares, classes),
        contributions=_terms(model.explain(row).contributions[:concepts]) if concepts else [],
        may_be=may_be,
        abstains=abstains,
        ask=None if question is None else Question.model_validate(question.to_dict()),
    )


def _most_probable(model: ConceptModel, shares: np.ndarray, count: int) -> list[ClassProbability]:
    names: list[Any] = model.classes.tolist()
    order = np.argsort(-shares, kind="stable")[:count]
    return [ClassProbability(name=names[at], probability=float(shares[at])) for at in order]


def _terms(contributions: Iterable[Contribution]) -> list[Term]:
    return [Term(**asdict(term)) for term in contributions]
