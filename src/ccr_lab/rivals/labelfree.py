"""Label-free concept bottleneck model (Oikarinen et al. 2023): all scores of the concepts and a sparse head on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ccr.classifier import FromModel
from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.knowledge import Knowledge
from ccr.labels import labels_of, number_labels
from ccr.refine.region import Claims
from ccr.space import Center, Space
from ccr.utils.parameters import is_number
from ccr_lab.rivals.elastic_net import elastic_net_path
from ccr_lab.rivals.model import Rival, head_mask

#: Halvings of the interval of alpha that holds the wanted length.
BISECTIONS = 8
#: A length that is so near to the wanted one is near enough.
NEAR = 0.99
#: Strengths of the path, from the first to the last.
N_ALPHAS, ALPHA_RATIO = 60, 1e-4
#: A concept whose spread over the images is below this part of its size is constant.
FLAT = 1e-5


class LabelFreeCBM(Rival):
    """Dense concept scores, and a head with few weights per class.

    The published method learns a concept layer on a backbone's features that imitates the encoder's scores of the
    images on the concepts. Here the embeddings are the features, so that the concepts' embeddings are the best layer
    and nothing is trained. Scores are normalised to mean 0 and spread 1, and an elastic-net path gives a head of the
    wanted length.

    Parameters
    ----------
    concepts : names and embeddings, from the same encoder as X.
    length : mean number of nonzero weights of an image's predicted class; the head has the largest of the path that is
        not above. The path ends at a ten-thousandth of the penalty that leaves no weight, so that a very large length
        is not reached.
    l1_ratio : share of the absolute part in the penalty, in (0, 1].
    center : "data" measures images and concepts from their own means; None takes them as they are.

    Fitted attributes: `names_`, `mean_` and `scale_` of the scores, `head_`, `alpha_`, `length_` (on the training
    images), `classes_`, `space_`.
    """

    mean_ = FromModel("mean")
    scale_ = FromModel("scale")
    alpha_ = FromModel("facts.alpha")
    length_ = FromModel("facts.length")

    def __init__(
        self, concepts: Concepts | None = None, *, length: float = 12.0, l1_ratio: float = 0.99, center: Center = None
    ) -> None:
        self.concepts = concepts
        self.length = length
        self.l1_ratio = l1_ratio
        self.center = center

    def fit(
        self, X: Any, y: Any = None, *, knowledge: Knowledge | None = None, claims: Claims = "open"
    ) -> LabelFreeCBM:
        """Learn from embeddings X (m, d) and labels y (m,). `knowledge` forbids weights as it does in a
        `ConceptClassifier` with these `claims`, and does nothing else."""
        concepts = self.concepts
        if not isinstance(concepts, Concepts):
            raise CCRError(f"concepts must be a Concepts(names, embeddings), got {type(concepts).__name__}")
        if not (is_number(self.length) and self.length > 0):
            raise CCRError(
                f"length must be a positive number, got {self.length!r}: the weights of a predicted class; try 12"
            )
        rows = Embeddings(X)
        rows.check_dimension(concepts.dimension)
        labels = number_labels(labels_of(X, y), len(rows))
        space = Space.fit(concepts.embeddings, X, center=self.center, dispersion=None)
        weights = space.texts(concepts.embeddings)
        codes = _standardised(space.images(X), weights)
        permitted = None if knowledge is None else head_mask(knowledge, labels.classes, concepts.names, claims)
        choice = self._choose_head(codes.values, labels.y, len(labels.classes), permitted)
        self.model_ = self._model(
            space, concepts.names, choice.head, labels.classes,
            layer=weights, mean=codes.mean, scale=codes.scale, alpha=choice.alpha, length=choice.length,
        )  # fmt: skip
        self.note_columns(X)
        return self

    def _choose_head(self, codes: np.ndarray, y: np.ndarray, classes: int, permitted: np.ndarray | None) -> _Choice:
        """The head of the path with the largest length that is not above `length`, of `permitted` weights alone."""
        options: dict[str, Any] = {"classes": classes, "l1_ratio": self.l1_ratio, "permitted": permitted}
        path = elastic_net_path(
            codes, y, n_alphas=N_ALPHAS, alpha_ratio=ALPHA_RATIO, **options,
            stop=lambda head: head_length(head, codes) > self.length,
        )  # fmt: skip
        lengths = [head_length(head, codes) for head in path.heads]
        # The first head has no weights, and at most the last one is too long.
        last = len(lengths) - (1 if lengths[-1] <= self.length else 2)
        best = _Choice(path.heads[last], float(path.alphas[last]), lengths[last])
        low, high = float(path.alphas[-1]), best.alpha
        for _ in range(BISECTIONS if last + 1 < len(lengths) else 0):
            if best.length > NEAR * self.length:
                break
            alpha = float(np.sqrt(low * high))
            head = elastic_net_path(codes, y, alphas=[alpha], start=best.head, **options).heads[0]
            length = head_length(head, codes)
            if length > self.length:
                low = alpha
                continue
            high = alpha
            if length >= best.length:
                best = _Choice(head, alpha, length)
        return best._replace(head=best.head.astype(np.float32))


class _Choice(NamedTuple):
    head: LinearHead
    alpha: float
    length: float


class _Standardised(NamedTuple):
    """Codes (m, n) of mean 0 and spread 1, and what they were measured from and in."""

    values: np.ndarray
    mean: np.ndarray
    scale: np.ndarray


def _standardised(images: Embeddings, layer: np.ndarray) -> _Standardised:
    """Scores of all images on the rows of the layer (n, d), standardised. A constant concept gets codes of 0."""
    weights = torch.from_numpy(layer.T.copy())
    codes = np.concatenate([(part @ weights).numpy() for part in images.chunks(len(layer))])
    size = np.abs(codes).max(axis=0)
    mean = codes.mean(axis=0, dtype=np.float64).astype(np.float32)
    codes -= mean
    spread = np.sqrt(np.mean(np.square(codes), axis=0, dtype=np.float64)).astype(np.float32)
    # Divided by infinity, later images get 0 as well.
    scale = np.where(spread > FLAT * size, spread, np.float32(np.inf))
    codes /= scale
    return _Standardised(codes, mean, scale)


def head_length(head: LinearHead, codes: np.ndarray) -> float:
    """Mean number of nonzero weights of each code's predicted class (dense codes in Measures, docs/method.md)."""
    predicted = (codes @ head.coef.T.astype(codes.dtype) + head.intercept).argmax(axis=1)
    return float(np.count_nonzero(head.coef, axis=1)[predicted].mean())
