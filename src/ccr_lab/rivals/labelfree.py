"""Label-free concept bottleneck model (Oikarinen et al. 2023): a learned concept layer and a sparse head on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.estimator import FromModel
from ccr.heads import LinearHead
from ccr.inputs import Embeddings
from ccr.labels import Labels, as_labels, labels_of, number_labels, seed_of, validation_rows
from ccr.space import Center, Space
from ccr.utils.parameters import is_number
from ccr_lab.elastic_net import elastic_net_path
from ccr_lab.rivals.base import Rival
from ccr_lab.rivals.concept_layer import ConceptLayer, Judge, Pairs, fit_concept_layer, validation_judge

#: Share of the training images that is held out where no validation data is given, and the most that are looked at.
HELD_OUT, MOST_VALIDATION = 0.1, 5000
#: Halvings of the interval of alpha that holds the wanted length.
BISECTIONS = 8
#: A length that is so near to the wanted one is near enough.
NEAR = 0.99
#: Strengths of the path, from the first to the last.
N_ALPHAS, ALPHA_RATIO = 60, 1e-4
#: A concept whose spread over the images is below this part of its size is constant.
FLAT = 1e-5


class LabelFreeCBM(Rival):
    """Dense concept scores learned from features, and a head with few weights per class.

    The targets are the encoder's scores of the images on the concepts. A linear concept layer on the backbone's
    features maximises the mean cos-cubed similarity of its outputs to them; concepts that it does not reach are
    dropped; the outputs are normalised to mean 0 and spread 1; and an elastic-net path gives a head of the wanted
    length. Without features of another backbone the embeddings themselves are the features: the concepts' embeddings
    are then the best layer, at similarity 1, and nothing is trained.

    Parameters
    ----------
    concepts : names and embeddings, from the same encoder as X.
    length : mean number of nonzero weights of an image's predicted class; the head has the largest of the path that is
        not above. The path ends at a ten-thousandth of the penalty that leaves no weight, so that a very large length
        is not reached.
    l1_ratio : share of the absolute part in the penalty, in (0, 1].
    cutoff : concepts with a lower validation similarity are dropped.
    center : "data" measures images and concepts from their own means; None takes them as they are.
    max_iter : most steps of the concept layer.
    batch_size : images per step.
    random_state : the same number gives the same model.

    Fitted attributes: `names_`, `kept_` (rows of the concepts that are kept), `similarities_` (of all concepts),
    `concept_layer_` (kept, features), `mean_` and `scale_` of its outputs, `head_`, `alpha_`, `length_` (on the
    training images), `classes_`, `space_`, `n_iter_` (steps of the concept layer).
    """

    kept_ = FromModel("facts.kept")
    similarities_ = FromModel("facts.similarities")
    concept_layer_ = FromModel("layer")
    mean_ = FromModel("mean")
    scale_ = FromModel("scale")
    alpha_ = FromModel("facts.alpha")
    length_ = FromModel("facts.length")
    n_iter_ = FromModel("facts.n_iter")

    def __init__(
        self,
        concepts: Concepts | None = None,
        *,
        length: float = 12.0,
        l1_ratio: float = 0.99,
        cutoff: float = 0.45,
        center: Center = None,
        max_iter: int = 1000,
        batch_size: int = 4096,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.concepts = concepts
        self.length = length
        self.l1_ratio = l1_ratio
        self.cutoff = cutoff
        self.center = center
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, features: Any = None, validation: tuple[Any, ...] | None = None
    ) -> LabelFreeCBM:
        """Learn from embeddings X (m, d), labels y (m,) and backbone features (m, f) of the same images.

        `validation` is (X, y) or (X, y, features): the concept layer stops, and concepts are dropped, by the similarity
        there; None holds out a tenth of the training images for that.
        """
        concepts = self._checked()
        rows = Embeddings(X)
        rows.check_dimension(concepts.dimension)
        labels = number_labels(labels_of(X, y), len(rows))
        seed = seed_of(self.random_state)
        space = Space.fit(concepts.embeddings, X, center=self.center, dispersion=None)
        dictionary = torch.from_numpy(space.texts(concepts.embeddings))
        training = _pairs(space, X, features, dictionary)
        rows_used, judge = _held_out(space, training, labels, validation, seed)
        if features is None:
            layer = ConceptLayer(dictionary.numpy(), judge(dictionary).numpy(), 0)
        else:
            layer = fit_concept_layer(
                training, rows_used, judge, max_iter=self.max_iter, batch_size=self.batch_size, seed=seed
            )
        kept = self._kept(layer.similarities)
        weights = layer.weights[kept]
        codes = _standardised(training.features, weights)
        choice = self._choose_head(codes.values, labels.y, len(labels.classes))
        self.model_ = self._model(
            space, tuple(concepts.names[row] for row in kept), choice.head, labels.classes,
            layer=weights, mean=codes.mean, scale=codes.scale, raw=features is not None,
            kept=kept, similarities=layer.similarities, n_iter=layer.n_iter, alpha=choice.alpha, length=choice.length,
        )  # fmt: skip
        self.note_columns(X)
        return self

    def _checked(self) -> Concepts:
        if not isinstance(self.concepts, Concepts):
            raise CCRError(f"concepts must be a Concepts(names, embeddings), got {type(self.concepts).__name__}")
        if not (is_number(self.length) and self.length > 0):
            raise CCRError(
                f"length must be a positive number, got {self.length!r}: the weights of a predicted class; try 12"
            )
        if not (is_number(self.cutoff) and -1 <= self.cutoff <= 1):
            raise CCRError(f"cutoff must be in [-1, 1], got {self.cutoff!r}: it is a similarity; try 0.45")
        if not (is_number(self.max_iter) and is_number(self.batch_size)) or self.max_iter < 0 or self.batch_size < 2:
            raise CCRError(
                "max_iter must not be negative and batch_size at least 2, got "
                f"{self.max_iter!r} and {self.batch_size!r}: try 1000 and 4096"
            )
        return self.concepts

    def _kept(self, similarities: np.ndarray) -> np.ndarray:
        kept = np.flatnonzero(similarities >= self.cutoff)
        if not len(kept):
            raise CCRError(
                f"no concept reaches the cutoff {self.cutoff}: the best similarity is {similarities.max():.3f}; lower "
                "cutoff, or give features that show the concepts"
            )
        return kept

    def _choose_head(self, codes: np.ndarray, y: np.ndarray, classes: int) -> _Choice:
        """The head of the path with the largest length that is not above `length`."""
        options: dict[str, Any] = {"classes": classes, "l1_ratio": self.l1_ratio}

        def solved(alpha: float, start: LinearHead) -> _Choice:
            head = elastic_net_path(codes, y, alphas=[alpha], start=start, **options).heads[0]
            return _Choice(head, alpha, head_length(head, codes))

        path = elastic_net_path(
            codes, y, n_alphas=N_ALPHAS, alpha_ratio=ALPHA_RATIO, **options,
            stop=lambda head: head_length(head, codes) > self.length,
        )  # fmt: skip
        lengths = [head_length(head, codes) for head in path.heads]
        # The first head has no weights, and at most the last one is too long.
        last = len(path) - 1 if lengths[-1] <= self.length else len(path) - 2
        best = _Choice(path.heads[last], float(path.alphas[last]), lengths[last])
        low, high = float(path.alphas[-1]), best.alpha
        for _ in range(BISECTIONS if last + 1 < len(path) else 0):
            if best.length > NEAR * self.length:
                break
            middle = solved(float(np.sqrt(low * high)), best.head)
            if middle.length > self.length:
                low = middle.alpha
            else:
                high = middle.alpha
                best = middle if middle.length >= best.length else best
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


def _standardised(features: Embeddings, layer: np.ndarray) -> _Standardised:
    """Outputs of the layer (n, f) on all rows, standardised. A concept that is constant gets codes of 0."""
    codes, start = np.empty((len(features), len(layer)), np.float32), 0
    weights = torch.from_numpy(layer.T.copy())
    for part in features.chunks(len(layer)):
        codes[start : start + len(part)] = (part @ weights).numpy()
        start += len(part)
    size = np.abs(codes).max(axis=0)
    mean = codes.mean(axis=0, dtype=np.float64).astype(np.float32)
    codes -= mean
    spread = np.sqrt(np.mean(np.square(codes), axis=0, dtype=np.float64)).astype(np.float32)
    # Divided by infinity, later images get 0 as well.
    scale = np.where(spread > FLAT * size, spread, np.float32(np.inf))
    codes /= scale
    return _Standardised(codes, mean, scale)


def _pairs(space: Space, X: Any, features: Any, dictionary: torch.Tensor) -> Pairs:
    embeddings = space.images(X).make_resident()
    own = embeddings if features is None else Embeddings(features, normalize=False).make_resident()
    return Pairs(own, embeddings, dictionary)


def _held_out(
    space: Space, training: Pairs, labels: Labels, validation: tuple[Any, ...] | None, seed: int
) -> tuple[np.ndarray, Judge]:
    """Rows to train the concept layer on, and the similarities on others."""
    every = np.arange(len(labels.y))
    if validation is not None:
        pairs = _validation_pairs(space, validation, training)
        return every, validation_judge(pairs, np.arange(len(pairs.features))[:MOST_VALIDATION])
    held = validation_rows(labels, HELD_OUT, seed=seed, most=MOST_VALIDATION)
    if len(held) < 2:  # too few images to hold any out
        return every, validation_judge(training, every)
    return np.setdiff1d(every, held), validation_judge(training, held)


def _validation_pairs(space: Space, validation: tuple[Any, ...], training: Pairs) -> Pairs:
    own_features = training.features is training.embeddings
    if len(validation) not in (2, 3) or (len(validation) == 3 and validation[2] is not None) == own_features:
        wanted = "(X, y)" if own_features else "(X, y, features)"
        raise CCRError(f"validation must be {wanted}, as the training data is, got {len(validation)} parts")
    X, y = validation[:2]
    pairs = _pairs(space, X, validation[2] if len(validation) == 3 else None, training.dictionary)
    pairs.embeddings.check_dimension(training.dictionary.shape[1])
    width = training.features.shape[1]
    if pairs.features.shape[1] != width:
        raise CCRError(
            f"features must have the {width} columns of the training features, got {pairs.features.shape[1]}"
        )
    as_labels(labels_of(X, y), len(pairs.embeddings))
    if len(pairs.features) < 2:
        raise CCRError("validation needs at least two images to compare concepts on, got 1")
    return pairs


def head_length(head: LinearHead, codes: np.ndarray) -> float:
    """Mean number of nonzero weights of each code's predicted class (dense codes in Measures, docs/method.md)."""
    predicted = (codes @ head.coef.T.astype(codes.dtype) + head.intercept).argmax(axis=1)
    return float(np.count_nonzero(head.coef, axis=1)[predicted].mean())
