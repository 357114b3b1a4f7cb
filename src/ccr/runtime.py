"""A fitted model without the library around it: NumPy and safetensors alone.

model = ccr.runtime.load("photos-model")
model.predict(X); model.predict_proba(X)            # X (m, d): embeddings of the model's encoder
model.explain(X[0]).contributions                   # the sum that made the prediction
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ccr.coding import FEW_ROWS, ThresholdRule, TopRule, few_codes, rule_from_dict
from ccr.errors import CCRError, FormatError
from ccr.explain.explanation import Explanation, explain
from ccr.heads import LinearHead, few_logits
from ccr.inputs import Embeddings, one_row
from ccr.io.folder import ModelFolder, read_folder
from ccr.io.format import (
    check_rule,
    known_classes,
    known_names,
    optional,
    tensor,
    text_or_none,
    unpack_knowledge,
    unpack_shown,
)
from ccr.kernels import Entries
from ccr.shown import Shown, of_photos
from ccr.utils.arrays import softmax

#: Largest deviation of a concept's norm from 1.
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
    names, rule = known_names(config["concepts"]), rule_from_dict(config["rule"])
    if not isinstance(rule, (ThresholdRule, TopRule)):
        raise CCRError(
            f"the light runtime codes by a threshold or the top k, this model by {type(rule).__name__}, whose codes "
            "are solved for image by image with compiled kernels: load it with ccr.ConceptModel"
        )
    check_rule(rule, len(names))
    concepts = tensor(tensors, "refined", (len(names), tensors["refined"].shape[-1]))
    if not np.allclose(np.linalg.norm(concepts, axis=1), 1.0, atol=UNIT_TOLERANCE):
        raise FormatError("the model's concepts are not unit vectors: the file was changed after it was saved")
    classes, d = known_classes(config), concepts.shape[1]
    whiten = optional(tensors, "metric_whiten", (d, d))
    return RuntimeModel(
        mean=optional(tensors, "image_mean", (d,)),
        metric=None if whiten is None else whiten.astype(np.float64),
        names=names,
        concepts=concepts.astype(np.float64),
        rule=rule,
        head=LinearHead(
            tensor(tensors, "coef", (len(classes), len(names)), narrow=False),
            tensor(tensors, "intercept", (len(classes),), narrow=False),
        ),
        classes=classes,
        answers=_answers(config, tensors, classes, names),
        shown=unpack_shown(config, tensors, len(names)),
        encoder=text_or_none(config, "encoder"),
        encoder_fingerprint=text_or_none(config, "encoder_fingerprint"),
    )


def _answers(config: Any, tensors: Any, classes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Known answers about the model's classes and concepts (classes, n); 0, unknown, without knowledge."""
    known = unpack_knowledge(config, tensors)
    if known is None:
        return np.zeros((len(classes), len(names)), np.int8)
    return known.aligned(classes.tolist(), names)


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """A fitted model that predicts and explains; `ccr.runtime.load` reads it.

    Parameters
    ----------
    mean, metric : (d,) and (d, d), from and in which images are measured before they meet concepts; the metric is
        float64. None: as they are.
    names : of the concepts (n).
    concepts : their unit embeddings (n, d), float64, in which scores are computed.
    rule : which scores are active.
    head : weights (classes, n) and intercept (classes,).
    classes : labels (classes,), sorted.
    answers : what is known of each class and concept (classes, n): 1 yes, -1 no, 0 unknown.
    shown : from scores to the probability that an image shows a concept; None where the model has no such map.
    encoder, encoder_fingerprint : which encoder's embeddings it reads; None where nobody knows.
    """

    mean: np.ndarray | None
    metric: np.ndarray | None
    names: tuple[str, ...]
    concepts: np.ndarray
    rule: ThresholdRule | TopRule
    head: LinearHead
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
        return np.concatenate([self._dense(codes) for codes in self._codes(X)])

    def logits(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        weights, bias = self._weights
        return np.concatenate([few_logits(codes, weights, bias) for codes in self._codes(X)])

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X (m, d)."""
        return self.classes[self.logits(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes`."""
        return softmax(self.logits(X).astype(np.float64), axis=1)

    def explain(self, x: Any) -> Explanation:
        """Why the embedding x (d,) is predicted as it is."""
        (code,) = self._codes(one_row(x))
        return explain(
            code,
            self.head,
            concepts=self.names,
            classes=self.classes.tolist(),
            answers=self.answers,
            shown=of_photos(self.shown),
        )

    def _codes(self, X: Any) -> Iterator[Entries]:
        """Codes of some rows of X after the other, in order."""
        images = Embeddings(X, mean=self.mean, metric=self.metric, wide_metric=self.metric)
        images.check_dimension(self.dimension)
        for start in range(0, len(images), FEW_ROWS):
            rows = np.arange(start, min(start + FEW_ROWS, len(images)))
            yield few_codes(self.rule, images.exact(rows), self.concepts)

    def _dense(self, codes: Entries) -> np.ndarray:
        dense = np.zeros((len(codes.pointers) - 1, len(self.names)), np.float32)
        dense[np.repeat(np.arange(len(dense)), np.diff(codes.pointers)), codes.indices] = codes.data
        return dense

    @cached_property
    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.head.astype(np.float32).transposed()
