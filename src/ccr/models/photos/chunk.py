"""A chunk: predictions of a fixed run of photos, the smallest step of a run on one machine or on many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ccr.core.explain.terms import contributions, plain
from ccr.data.datasets import Sample
from ccr.data.encoders import Encoder
from ccr.data.store.workers import Decoded
from ccr.errors import UnreachableError
from ccr.models.photos.prediction import Prediction


def predict_samples(
    model: Any,
    encoder: Encoder,
    samples: Sequence[Sample],
    decoded: Iterable[Decoded],
    *,
    explain: int,
    batch_size: int,
) -> list[Prediction]:
    """One prediction for each sample, in order; `decoded` holds their images, or why there is none.

    The numbers depend on the samples of this call alone, so that chunks may be made anywhere and in any order.

    Parameters
    ----------
    model : a `ConceptModel`.
    explain : concepts per photo, from 0.
    batch_size : images that the encoder gets at a time, from 1.
    """
    items = list(islice(decoded, len(samples)))
    for item in items:
        if item.failure is not None:  # no fault of the photo's: the run stops, and goes on when it is called again
            raise UnreachableError(item.failure)
    images = [item.image for item in items if item.image is not None]
    rows = encoder.embed_images(images, batch_size=batch_size) if images else np.empty((0, encoder.dimension))
    paths = [printable(sample.key) for sample, item in zip(samples, items, strict=True) if item.image is not None]
    seen = iter(predict_rows(model, rows, paths, explain=explain))
    return [
        next(seen)
        if item.image is not None
        else Prediction(printable(sample.key), error=item.reason or "no reason known")
        for sample, item in zip(samples, items, strict=True)
    ]


def predict_rows(model: Any, X: Any, paths: Sequence[str], *, explain: int) -> list[Prediction]:
    """The predictions for embeddings X (m, d) of the photos at these paths."""
    if not len(paths):
        return []
    codes = model.encode(X)
    logits, probabilities = model.head.logits(codes), model.predict_proba(X)
    classes = [plain(name) for name in model.classes]
    made = []
    for row, path in enumerate(paths):
        first = int(logits[row].argmax())
        second = _second(logits[row], first)
        found = Prediction(
            path=path,
            prediction=classes[first],
            probability=float(probabilities[row, first]),
            runner_up=classes[second],
            runner_up_probability=float(probabilities[row, second]),
            **(_sum(model, codes, row, first, explain) if explain else {}),
        )
        made.append(found)
    return made


def printable(path: str) -> str:
    """A path that any file can hold: bytes that are not UTF-8 become escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _second(logits: np.ndarray, first: int) -> int:
    others = logits.copy()
    others[first] = -np.inf
    return int(others.argmax())


def _sum(model: Any, codes: Any, row: int, winner: int, explain: int) -> dict[str, Any]:
    """The sum behind the winner's logit: its bias, the largest contributions, the others together."""
    part = slice(codes.indptr[row], codes.indptr[row + 1])
    columns, values = codes.indices[part], codes.data[part].astype(np.float64)
    weights = model.head.coef[winner, columns].astype(np.float64)
    known = None if model.answers is None else model.answers[winner, columns]
    terms = contributions([model.names[column] for column in columns], values, weights, known)
    bias, others = float(model.head.intercept[winner]), sum(term.contribution for term in terms[explain:])
    total = bias + sum(term.contribution for term in terms)
    return {"logit": total, "bias": bias, "concepts": terms[:explain], "others": float(others)}
