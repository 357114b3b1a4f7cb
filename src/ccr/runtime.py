"""A fitted model without the library around it: NumPy and safetensors alone.

model = ccr.runtime.load("photos-model")
model.predict(X); model.predict_proba(X)            # X (m, d): embeddings of the model's encoder
model.explain(X[0]).contributions                   # the sum that made the prediction
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.explain.picture import picture
from ccr.explain.terms import Contrast, Contribution, contributions, plain, position
from ccr.io.checks import (
    check_rule_values,
    known_classes,
    known_names,
    optional,
    tensor,
    text_or_none,
    unpack_knowledge,
    unpack_shown,
)
from ccr.io.folder import ModelFolder, read_folder
from ccr.shown import STATED, Shown, of_photos
from ccr.utils.arrays import as_array


# Embeddings placed where concepts are: checked, made unit rows, measured from a mean, in a metric.
@dataclass(frozen=True, eq=False)
class Place:
    """Where images meet concepts: `mean` (d,) or None, and the matrix `whiten` (d, d) of the images' metric or None."""

    mean: np.ndarray | None
    whiten: np.ndarray | None

    def put(self, rows: np.ndarray, first: int = 0) -> np.ndarray:
        """Unit rows (b, d), float64; `first` is the number of the first row, for messages."""
        placed = _directions(rows, first)
        if self.mean is not None:
            placed = _unit(placed - self.mean)
        if self.whiten is not None:
            placed = _unit(placed @ self.whiten)
        return placed


def as_matrix(X: Any, dimension: int) -> np.ndarray:
    """X (m, d) as an array of numbers; a torch tensor or a data frame will do. Nothing is copied that need not be."""
    array = as_array(X)
    if array.ndim != 2 or 0 in array.shape:
        raise CCRError(f"X must be (images, dimensions), got shape {array.shape}: one embedding is X[None, :]")
    if array.dtype.kind not in "fiub":
        raise CCRError(f"X must hold real numbers, got {array.dtype}: convert it to float32")
    if array.shape[1] != dimension:
        raise CCRError(
            f"X must have the concepts' {dimension} dimensions, got {array.shape[1]}: embed images with the model's "
            "encoder"
        )
    return array


def _directions(rows: np.ndarray, first: int) -> np.ndarray:
    """Unit rows in float64; what points nowhere is refused."""
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)  # NaN where a number of the row is
    if not np.isfinite(largest).all():
        bad = first + int(np.flatnonzero(~np.isfinite(largest))[0])
        raise CCRError(f"X must be finite, got NaN or infinity in row {bad}: drop that image or embed it again")
    if not largest.all():
        bad = first + int(np.flatnonzero(largest == 0)[0])
        raise CCRError(f"an embedding must point somewhere, got only zeros in row {bad} of X: embed it again")
    return _unit(wide / largest)  # scaled first, so that squares neither vanish nor overflow


def _unit(rows: np.ndarray) -> np.ndarray:
    """Every row divided by its norm; zeros stay."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows / np.where(norms > 0, norms, 1.0)


# Which scores are active: past a threshold, or the largest of an image (Algorithms 1 and 2, docs/method.md). Scores
# are float64, so that one within rounding of the threshold is decided as the full model decides it (Close calls,
# docs/method.md).
#: From scores (b, n) to codes (b, n).
Select = Callable[[np.ndarray], np.ndarray]
#: What the rules that can be read consist of.
_ENTRIES = {"ThresholdRule": {"threshold", "positive", "length", "factors"}, "TopRule": {"length"}}


def selection(rule: Mapping[str, Any], concepts: int) -> Select:
    """The function of a rule as a model's configuration holds it."""
    values = dict(rule)
    kind = values.pop("type", None)
    if kind not in _ENTRIES:
        raise CCRError(
            f"the light runtime codes by a threshold or the top k, this model by {kind}, whose codes are solved for "
            "image by image with compiled kernels: load it with ccr.ConceptModel"
        )
    if unknown := set(values) - _ENTRIES[kind]:
        raise FormatError(f"the model's rule has {', '.join(sorted(unknown))}, which a {kind} has not: save it again")
    check_rule_values(values)
    if kind == "ThresholdRule":
        factors = values.get("factors")
        if factors is not None and len(factors) != concepts:
            raise FormatError(f"the model's rule has {len(factors)} factors of its threshold: it needs {concepts}")
        return _threshold(float(values["threshold"]), factors, values.get("positive", False))
    length = values["length"]
    if not isinstance(length, int) or length > concepts:
        raise FormatError(
            f"the model's rule has length {length!r}: it must be a whole number above 0 and at most {concepts}"
        )
    return _top(length)


def _threshold(threshold: float, factors: Sequence[float] | None, positive: bool) -> Select:
    """Codes of scores past the threshold, times each concept's factor if there are factors; as the kernels compare."""
    limit = (np.float32(threshold) * np.array(1.0 if factors is None else factors, np.float32)).astype(np.float64)
    if positive:
        return lambda scores: np.where(scores > limit, scores, 0.0)
    return lambda scores: np.where(np.abs(scores) >= limit, scores, 0.0)


def _top(length: int) -> Select:
    def select(scores: np.ndarray) -> np.ndarray:
        # Stable: of equals the first, as the kernels take them.
        kept = np.argsort(-np.abs(scores), axis=1, kind="stable")[:, :length]
        codes = np.zeros_like(scores)
        np.put_along_axis(codes, kept, np.take_along_axis(scores, kept, axis=1), axis=1)
        return codes

    return select


# RuntimeExplanation: one prediction as a short, exact sum of named contributions.
@dataclass(frozen=True, eq=False)
class RuntimeExplanation:
    """One prediction: `bias` + sum of contributions == `logit`, to rounding.

    `contributions` holds every active concept with a weight for the predicted class, largest effect first; `active`
    and `codes` all active concepts, `weights` (classes, active) theirs, `biases` (classes,) those of all classes, and
    `answers` (classes, active) what is known of them, `shown` (active,) the probabilities that the image shows them;
    from `stated` on they are stated by name.
    """

    prediction: Any
    probability: float
    logit: float
    bias: float
    contributions: tuple[Contribution, ...]
    classes: tuple[Any, ...] = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    active: tuple[str, ...] = field(repr=False)
    codes: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    biases: np.ndarray = field(repr=False)
    answers: np.ndarray = field(repr=False)
    shown: np.ndarray | None = field(default=None, repr=False)
    stated: float = field(default=STATED, repr=False)

    def contributions_to(self, name: Any) -> tuple[Contribution, ...]:
        """Every active concept's contribution to the class `name`, whatever was predicted."""
        number = position(self.classes, name)
        known = self.answers[number]
        return contributions(self.active, self.codes, self.weights[number], known, self.shown, self.stated)

    def contrast(self, other: Any) -> Contrast:
        """Why this class and not `other`: weights are the differences of the two classes' weights."""
        mine, rival = position(self.classes, self.prediction), position(self.classes, other)
        bias = float(self.biases[mine] - self.biases[rival])
        terms = contributions(self.active, self.codes, self.weights[mine] - self.weights[rival])
        difference = bias + sum(term.contribution for term in terms)
        return Contrast(self.prediction, self.classes[rival], difference, bias, terms)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON; the same as the full model's."""
        return {
            "prediction": plain(self.prediction),
            "probability": self.probability,
            "logit": self.logit,
            "bias": self.bias,
            "contributions": [vars(term).copy() for term in self.contributions],
            "probabilities": {str(name): float(p) for name, p in zip(self.classes, self.probabilities, strict=True)},
        }

    def _repr_html_(self) -> str:
        return picture(self)


# From a model's folder to a RuntimeModel, checked as the full model checks it.
#: How far the norm of a concept may be from 1.
UNIT_TOLERANCE = 1e-5


def load(path: str | os.PathLike[str]) -> RuntimeModel:
    """The model in a folder that `save` or `ccr fit` wrote, with NumPy and safetensors alone.

    Models that code by a threshold or the top k are read; those that code by a pursuit or the lasso need the full
    library, which the error says.
    """
    model: RuntimeModel = read_folder(path, _unpack)
    return model


def _unpack(folder: ModelFolder) -> RuntimeModel:
    config, tensors = folder
    kind = config.get("model")
    if kind != "ConceptClassifier":
        raise FormatError(f"this folder holds a {kind}: the light runtime reads concept classifiers")
    names = known_names(config["concepts"])
    concepts = tensor(tensors, "refined", (len(names), tensors["refined"].shape[-1]))
    if not np.allclose(np.linalg.norm(concepts, axis=1), 1.0, atol=UNIT_TOLERANCE):
        raise FormatError("the model's concepts are not unit vectors: the file was changed after it was saved")
    classes = known_classes(config)
    return RuntimeModel(
        place=_place(tensors, concepts.shape[1]),
        names=names,
        concepts=concepts.astype(np.float64),
        select=selection(config["rule"], len(names)),
        coef=tensor(tensors, "coef", (len(classes), len(names)), narrow=False),
        intercept=tensor(tensors, "intercept", (len(classes),), narrow=False),
        classes=classes,
        answers=_answers(config, tensors, classes, names),
        shown=unpack_shown(config, tensors, len(names)),
        encoder=text_or_none(config, "encoder"),
        encoder_fingerprint=text_or_none(config, "encoder_fingerprint"),
    )


def _answers(config: Any, tensors: Any, classes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """What the model's knowledge says of its classes and concepts; unknown without any."""
    known = unpack_knowledge(config, tensors)
    if known is None:
        return np.zeros((len(classes), len(names)), np.int8)
    return known.aligned(classes.tolist(), names)


def _place(tensors: Any, d: int) -> Place:
    """In float64, in which rows are placed."""
    mean, whiten = optional(tensors, "image_mean", (d,)), optional(tensors, "metric_whiten", (d, d))
    return Place(
        None if mean is None else mean.astype(np.float64), None if whiten is None else whiten.astype(np.float64)
    )


#: About this many numbers are worked on at once, so that memory does not grow with the rows.
CHUNK_VALUES = 1_000_000


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """A fitted model that predicts and explains; `ccr.runtime.load` reads it.

    Parameters
    ----------
    place : where images are put before they meet concepts.
    names : of the concepts (n).
    concepts : their unit embeddings (n, d), float64, in which scores are computed.
    select : from scores (b, n) to codes.
    coef, intercept : weights (classes, n) and biases (classes,).
    classes : labels (classes,), sorted.
    answers : what is known of each class and concept (classes, n): 1 yes, -1 no, 0 unknown.
    shown : from scores to the probability that an image shows a concept; None where the model has no such map.
    encoder, encoder_fingerprint : which encoder's embeddings it reads; None where nobody knows.
    """

    place: Place
    names: tuple[str, ...]
    concepts: np.ndarray
    select: Select
    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    answers: np.ndarray
    shown: Shown | None = None
    encoder: str | None = None
    encoder_fingerprint: str | None = None

    @property
    def dimension(self) -> int:
        """Columns that X must have."""
        return int(self.concepts.shape[1])

    def encode(self, X: Any) -> np.ndarray:
        """Codes (m, n) of the embeddings X (m, d): the scores of the active concepts, zero elsewhere."""
        return np.concatenate(list(self._codes(X)))

    def logits(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        weights, bias = self.coef.T.astype(np.float32), self.intercept.astype(np.float32)
        return np.concatenate([codes @ weights + bias for codes in self._codes(X)])

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X (m, d)."""
        return self.classes[self.logits(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes`."""
        return self._probabilities(self.logits(X))

    def explain(self, x: Any) -> RuntimeExplanation:
        """Why the embedding x (d,) is predicted as it is."""
        rows = np.atleast_2d(as_array(x))
        if len(rows) != 1:
            raise CCRError(f"explain takes one embedding, got {len(rows)} rows: explain(X[i])")
        (code,) = self.encode(rows).astype(np.float64)
        columns = np.flatnonzero(code)
        weights, biases = self.coef[:, columns].astype(np.float64), self.intercept.astype(np.float64)
        active, values = tuple(self.names[column] for column in columns), code[columns]
        logits = weights @ values + biases
        winner = int(logits.argmax())
        probabilities = self._probabilities(logits[None])[0]
        classes = self.classes.tolist()
        shown = of_photos(self.shown)
        likely, stated = (None, STATED) if shown is None else (shown.probabilities(values, columns), shown.stated)
        known = self.answers[winner, columns]
        return RuntimeExplanation(
            prediction=classes[winner],
            probability=float(probabilities[winner]),
            logit=float(logits[winner]),
            bias=float(biases[winner]),
            contributions=contributions(active, values, weights[winner], known, likely, stated),
            classes=tuple(classes),
            probabilities=probabilities,
            active=active,
            codes=values,
            weights=weights,
            biases=biases,
            answers=self.answers[:, columns],
            shown=likely,
            stated=stated,
        )

    def _codes(self, X: Any) -> Iterator[np.ndarray]:
        """Codes of some rows of X after the other, in order."""
        rows = as_matrix(X, self.dimension)
        size = max(1, CHUNK_VALUES // max(self.concepts.shape))
        for start in range(0, len(rows), size):
            scores = self.place.put(rows[start : start + size], start) @ self.concepts.T
            yield self.select(scores).astype(np.float32)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        wide = logits.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
