"""Label-free concept bottleneck model (Oikarinen et al. 2023): a learned concept layer and a sparse head on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.estimator import FromModel
from ccr.heads import LinearHead
from ccr.inputs import Embeddings
from ccr.knowledge import Knowledge
from ccr.labels import Labels, as_labels, labels_of, number_labels, seed_of, validation_rows
from ccr.refine.region import Claims
from ccr.space import Center, Space
from ccr.utils.parameters import is_number
from ccr_lab.rivals.elastic_net import elastic_net_path
from ccr_lab.rivals.model import Rival, head_mask

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
        self,
        X: Any,
        y: Any = None,
        *,
        features: Any = None,
        validation: tuple[Any, ...] | None = None,
        knowledge: Knowledge | None = None,
        claims: Claims = "open",
    ) -> LabelFreeCBM:
        """Learn from embeddings X (m, d), labels y (m,) and backbone features (m, f) of the same images.

        `validation` is (X, y) or (X, y, features): the concept layer stops, and concepts are dropped, by the similarity
        there; None holds out a tenth of the training images for that. `knowledge` forbids weights as it does in a
        `ConceptClassifier` with these `claims`, and does nothing else.
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
        names = tuple(concepts.names[row] for row in kept)
        permitted = None if knowledge is None else head_mask(knowledge, labels.classes, names, claims)
        choice = self._choose_head(codes.values, labels.y, len(labels.classes), permitted)
        self.model_ = self._model(
            space, names, choice.head, labels.classes,
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

    def _choose_head(self, codes: np.ndarray, y: np.ndarray, classes: int, permitted: np.ndarray | None) -> _Choice:
        """The head of the path with the largest length that is not above `length`, of `permitted` weights alone."""
        options: dict[str, Any] = {"classes": classes, "l1_ratio": self.l1_ratio, "permitted": permitted}

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


def _pairs(space: Space, X: Any, features: Any, dictionary: torch.Tensor) -> FeaturePairs:
    embeddings = space.images(X).make_resident()
    own = embeddings if features is None else Embeddings(features, normalize=False).make_resident()
    return FeaturePairs(own, embeddings, dictionary)


def _held_out(
    space: Space, training: FeaturePairs, labels: Labels, validation: tuple[Any, ...] | None, seed: int
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


def _validation_pairs(space: Space, validation: tuple[Any, ...], training: FeaturePairs) -> FeaturePairs:
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


#: Strengths of the ridge regression that are tried, as shares of the features' mean variance.
RIDGES = (1e-4, 1e-2, 1.0)
#: Steps between two looks at the validation similarity, and looks without a gain after which training ends.
EVERY, PATIENCE = 25, 4
#: A gain of the mean similarity that counts.
GAIN = 1e-4
RATE = 1e-3
#: From weights (n, f) to the similarity (n,) of every concept on validation data.
Judge = Callable[[torch.Tensor], torch.Tensor]


def cubed_similarity(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cosine of the cubed columns of outputs and targets (m, n), centred over the rows; 0 where one is constant."""
    return (_cubes(outputs) * _cubes(targets)).sum(dim=0)


def _cubes(columns: torch.Tensor) -> torch.Tensor:
    centered = columns - columns.mean(dim=0)
    spread = centered.square().mean(dim=0).sqrt()
    flat = spread <= FLAT * columns.abs().amax(dim=0)
    # Divided before cubing: cubes of small numbers lose their digits.
    cubes = torch.where(flat, 0.0, centered / torch.where(flat, 1.0, spread)) ** 3
    return cubes / cubes.norm(dim=0).clamp_min(1e-12)


@dataclass(frozen=True, eq=False)
class FeaturePairs:
    """Features (m, f) and embeddings (m, d) of the same images; targets are the embeddings' scores on the concepts."""

    features: Embeddings
    embeddings: Embeddings
    dictionary: torch.Tensor

    def __post_init__(self) -> None:
        if len(self.features) != len(self.embeddings):
            raise CCRError(
                f"there must be features for each row of X, got {len(self.features)} for {len(self.embeddings)} rows"
            )

    def take(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and targets of these rows."""
        return self.features.take(rows), self.embeddings.take(rows) @ self.dictionary.T

    def parts(self, rows: np.ndarray, size: int = 4096) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Features and embeddings of these rows, some at a time."""
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield self.features.take(part), self.embeddings.take(part)


@dataclass(frozen=True, eq=False)
class ConceptLayer:
    """Weights (n, f), and the similarity (n,) that each concept reached on validation data."""

    weights: np.ndarray
    similarities: np.ndarray
    n_iter: int


@dataclass(frozen=True, eq=False)
class _Moments:
    mean: torch.Tensor
    scale: torch.Tensor
    covariance: torch.Tensor
    cross: torch.Tensor


def fit_concept_layer(
    training: FeaturePairs, rows: np.ndarray, judge: Judge, *, max_iter: int, batch_size: int, seed: int
) -> ConceptLayer:
    """Weights that maximise the mean similarity on the training `rows`, by Adam on random batches.

    `judge(weights)` gives the validation similarities; training ends when their mean no longer rises, and the best
    weights are kept. It starts from the ridge regression of the targets on the features, which is near: a linear map
    that predicts the scores well has outputs that agree with them.
    """
    moments = _moments(training, rows)
    best = max((_ridge(moments, strength) for strength in RIDGES), key=lambda start: float(judge(start).mean()))
    reached = float(judge(best).mean())
    # In units of each feature's spread and of each concept's size, which the similarity does not see.
    scaled = best * moments.scale
    weights = (scaled / scaled.norm(dim=1, keepdim=True).clamp_min(1e-12)).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=RATE)
    rng, waited, step = np.random.default_rng([seed, 0xCB]), 0, 0
    while step < max_iter and waited < PATIENCE:
        chosen = rows if len(rows) <= batch_size else np.sort(rng.choice(rows, batch_size, replace=False))
        features, targets = training.take(chosen)
        loss = -cubed_similarity(((features - moments.mean) / moments.scale) @ weights.T, targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0 or step == max_iter:
            now = (weights / moments.scale).detach()
            similarity = float(judge(now).mean())
            waited = 0 if similarity > reached + GAIN else waited + 1
            if similarity > reached:
                best, reached = now.clone(), similarity
    return ConceptLayer(best.numpy(), judge(best).numpy(), step)


def _moments(training: FeaturePairs, rows: np.ndarray) -> _Moments:
    """Mean and spread of the features, their covariance, and that with the targets, in units of the spread."""
    width, dimension = training.features.shape[1], training.embeddings.shape[1]
    total, square = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
    cross, other = torch.zeros(width, dimension, dtype=torch.float64), torch.zeros(dimension, dtype=torch.float64)
    first = training.features.take(rows[:1])[0]  # measured from one row: no digits lost to a large mean
    for features, embeddings in training.parts(rows):
        moved = features - first
        total, other = total + moved.sum(dim=0), other + embeddings.sum(dim=0)
        square, cross = square + moved.T @ moved, cross + moved.T @ embeddings
    m = len(rows)
    mean, other = total / m, other / m
    covariance = square / m - torch.outer(mean, mean)
    spread = covariance.diagonal().clamp_min(0).sqrt()
    flat = spread <= FLAT * (first.double() + mean).abs()
    scale = torch.where(flat | (spread == 0), 1.0, spread)
    unit = torch.where(flat, 0.0, 1 / scale)
    targets = (cross / m - torch.outer(mean, other)) @ training.dictionary.T.double()
    return _Moments(
        mean=(first + mean).float(),
        scale=scale.float(),
        covariance=covariance * torch.outer(unit, unit),
        cross=targets * unit[:, None],
    )


def _ridge(moments: _Moments, strength: float) -> torch.Tensor:
    """Weights (n, f) of the ridge regression of the targets on the features."""
    matrix = moments.covariance.clone()
    matrix.diagonal().add_(strength)
    return (torch.linalg.solve(matrix, moments.cross).T / moments.scale).float()


def validation_judge(pairs: FeaturePairs, rows: np.ndarray) -> Judge:
    """A function from weights to the similarity of every concept on these rows."""
    features, targets = pairs.take(rows)
    targets = _cubes(targets)

    def judge(weights: torch.Tensor) -> torch.Tensor:
        return (_cubes(features @ weights.T) * targets).sum(dim=0)

    return judge
