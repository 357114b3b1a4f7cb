"""ConceptClassifier: concepts, a coder and a linear head as one scikit-learn estimator."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state

from ccr.core import metrics
from ccr.core.coding import Coder, HardThreshold, apply_rule, code_chunks, logits_of, map_codes
from ccr.core.concepts import Concepts
from ccr.core.explain import Explanation, explain
from ccr.core.geometry import check_radius
from ccr.core.heads import LinearHead
from ccr.core.inputs import Embeddings
from ccr.core.refine import Training, refine
from ccr.core.refine.loop import Callback, EngineName, Folder
from ccr.core.refine.options import Optimizer, Schedule
from ccr.core.space import Angular, Center, Dispersion, Space, Symmetric
from ccr.core.threads import threads_for
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.models.fitted import Fitted, pack, stored_concepts, unpack
from ccr.models.labels import ClassWeight, as_labels, number_labels, training_weights, validation_rows
from ccr.models.persist import load_folder, save_folder
from ccr.models.questions import Questions
from ccr.models.unfitted import NotFittedError

#: The released thresholds (METHOD 3).
PAPER_THRESHOLDS = {"cifar10": 0.15, "cifar100": 0.215, "cub": 0.22, "imagenet": 0.24, "places365": 0.22}
#: Of symmetric dispersion: as accurate as full strength, and concepts stay closer to their texts
#: (measured: benchmarks/defaults.py).
DEFAULT_STRENGTH = 0.9
#: More validation images than this make no choice better.
MOST_VALIDATION = 20_000


class ConceptClassifier(Questions, ClassifierMixin, BaseEstimator):
    """A classifier whose every prediction is a short exact sum of named concepts.

    An image's code holds its scores on few of the `concepts`; a linear head on the code predicts; and the concepts
    themselves are refined by gradient steps inside a ball of `radius` around where they started (METHOD 3).

    Parameters
    ----------
    concepts : names and embeddings, from the same encoder as the images.
    coder : how a code is made; None is `HardThreshold(length=12)`: about twelve concepts an image.
    radius : how far a concept may move, in [0, 2]; 0 trains the head alone (the baseline).
    center : "data" measures images and concepts from their own means; None takes them as they are.
    dispersion : None, `Angular()` or `Symmetric()`: how concepts are spread before refinement; "auto" is
        `Symmetric(0.9)`.
    class_weight : None, "balanced" or {class: weight}.
    max_iter : passes over the training data; None is enough for about 1,000 steps.
    validation_fraction : share of the training data held out to choose the epoch; 0 keeps the last one.
    optimizer, batch_size, head_rate, dictionary_rate, momentum, dropout, alpha, schedule, n_iter_no_change, tol :
        how it is trained, see `ccr.core.refine.Training`.
    engine : "sparse" (compiled, CPU), "dense" (torch, any device); "auto" is sparse on a CPU. Both take the same steps.
    device : "auto", "cpu", "cuda", "mps".
    random_state : the same number gives the same model.

    Fitted attributes: `concepts_` (refined), `initial_concepts_` (where refinement started: centred and dispersed),
    `coef_` (classes, concepts), `intercept_`, `classes_`, `history_`, `best_epoch_`, `threshold_`, `space_`, `rule_`,
    `encoder_` and `encoder_fingerprint_` (of the store it was fitted on), `metrics_` (a dict, saved with the model),
    `edits_` (what was changed by hand since `fit`, saved with the model).
    """

    def __init__(
        self,
        concepts: Concepts | None = None,
        *,
        coder: Coder | None = None,
        radius: float = 0.1,
        center: Center = "data",
        dispersion: Dispersion | Literal["auto"] | None = "auto",
        class_weight: ClassWeight = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        optimizer: Optimizer = "adaptive",
        head_rate: float | None = None,
        dictionary_rate: float | None = None,
        momentum: float = 0.9,
        dropout: float = 0.1,
        alpha: float | None = None,
        schedule: Schedule = "cosine",
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        tol: float | None = None,
        engine: EngineName = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.concepts = concepts
        self.coder = coder
        self.radius = radius
        self.center = center
        self.dispersion = dispersion
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.head_rate = head_rate
        self.dictionary_rate = dictionary_rate
        self.momentum = momentum
        self.dropout = dropout
        self.alpha = alpha
        self.schedule = schedule
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.engine = engine
        self.device = device
        self.random_state = random_state

    @classmethod
    def paper(cls, dataset: str, concepts: Concepts | None = None, **overrides: Any) -> ConceptClassifier:
        """The released settings for cifar10, cifar100, cub, imagenet or places365 (METHOD 3).

        Codes are one-sided as in the released code; the projection is exact, and the epoch is chosen on
        validation data, where the released code overshoots the radius and reads the test set.
        """
        if dataset not in PAPER_THRESHOLDS:
            raise CCRError(f"the paper has settings for {', '.join(PAPER_THRESHOLDS)}, not for {dataset!r}")
        settings: dict[str, Any] = {
            "coder": HardThreshold(threshold=PAPER_THRESHOLDS[dataset], sign="positive"),
            "radius": 0.1,
            "center": None,
            "dispersion": Angular(),
            "max_iter": 20,
            "batch_size": 100,
            "optimizer": "sgd",
            "head_rate": 1.0,
            "dictionary_rate": 1e-4,
            "momentum": 0.9,
            "dropout": 0.5,
            "alpha": 0.0,
            "schedule": "constant",
            "n_iter_no_change": 20,
        }
        return cls(concepts, **{**settings, **overrides})

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any | None = None,
        *,
        validation: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
        checkpoint: Folder | None = None,
    ) -> ConceptClassifier:
        """Refine the concepts and train the head on X (m, d) and labels y (m,).

        X may be an array, memmap, tensor or embedding store; a store brings its own labels. `validation` is an
        (X, y) to choose the epoch on instead of a held-out share. `callback(epoch, epochs)` follows the training.
        `checkpoint` is a folder in which every epoch is kept: the same call continues an interrupted training there
        and ends with the same model to the bit; delete the folder when done.
        """
        concepts = self._checked_concepts()
        plain = Embeddings(X)
        plain.check_dimension(concepts.dimension)
        labels = number_labels(getattr(X, "y", None) if y is None else y, len(plain))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        mean = plain.unit_mean() if self.center else None
        dispersion = Symmetric(DEFAULT_STRENGTH) if self.dispersion == "auto" else self.dispersion
        with threads_for(concepts.embeddings.size * concepts.dimension):
            space = Space.fit(concepts.embeddings, mean, center=self.center, dispersion=dispersion)
            initial = concepts.with_embeddings(space.place(concepts.embeddings))
        embeddings = Embeddings(X, mean=space.image_mean).make_resident()
        held_out: Any
        if validation is not None:
            held_out = self._checked_validation(validation, space, labels.classes)
        else:
            held_out = validation_rows(labels, self.validation_fraction, seed=seed, most=MOST_VALIDATION)
        result = refine(
            initial,
            embeddings,
            labels.y,
            coder=HardThreshold(length=12) if self.coder is None else self.coder,
            radius=self.radius,
            classes=len(labels.classes),
            sample_weight=training_weights(labels, class_weight=self.class_weight, sample_weight=sample_weight),
            validation=held_out,
            training=self._training(seed),
            engine=self.engine,
            callback=callback,
            checkpoint=checkpoint,
        )
        self._adopt(
            Fitted(
                classes=labels.classes,
                initial=initial,
                refined=stored_concepts(initial.names, result.dictionary),
                coef=np.ascontiguousarray(result.weights.T),
                intercept=result.bias,
                space=space,
                rule=result.rule,
                history=result.history,
                best_epoch=result.best_epoch,
                encoder=getattr(X, "encoder", None),
                encoder_fingerprint=getattr(X, "fingerprint", None),
                metrics={},
            )
        )
        self.metrics_["training"] = self._training_metrics()
        self._warn_if_empty()
        return self

    @property
    def threshold_(self) -> float:
        """The threshold of the fitted coder, NaN where it has none."""
        self._check_fitted()
        return self.rule_.threshold

    @property
    def head_(self) -> LinearHead:
        """The head as an object."""
        self._check_fitted()
        return LinearHead(self.coef_, self.intercept_)

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Codes of X (m, n), CSR: the scores of the active concepts."""
        embeddings = self._read(X)
        return apply_rule(self.rule_, embeddings, self.concepts_.embeddings)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        self._check_fitted()
        return np.array(self.concepts_.names, dtype=object)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        return np.concatenate(self._map_logits(X, lambda logits: logits))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X."""
        winners = self._map_logits(X, lambda logits: logits.argmax(axis=1))
        return self.classes_[np.concatenate(winners)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes_`."""
        return np.concatenate(self._map_logits(X, lambda logits: softmax(logits.astype(np.float64), axis=1)))

    def evaluate(self, X: Any, y: Any = None) -> metrics.Evaluation:
        """Accuracy with its interval, length, sparsity, deviation, retention and accuracy by class."""
        embeddings = self._read(X)
        truth = self._known_labels(getattr(X, "y", None) if y is None else y, len(embeddings))
        winners, active = [], 0
        for codes in code_chunks(self.rule_, embeddings, self.concepts_.embeddings):
            winners.append(self.head_.logits(codes).argmax(axis=1))
            active += codes.nnz
        predicted = self.classes_[np.concatenate(winners)]
        right, m = int((predicted == truth).sum()), len(truth)
        return metrics.Evaluation(
            n=m,
            accuracy=right / m,
            interval=metrics.wilson_interval(right, m),
            length=active / m,
            sparsity=active / m / len(self.concepts_),
            deviation=metrics.deviation(self.concepts_, self.initial_concepts_),
            retention=metrics.retention(self.concepts_, self.initial_concepts_),
            per_class=metrics.per_class_accuracy(truth, predicted),
        )

    def explain(self, x: Any) -> Explanation:
        """Why the embedding x (d,) is predicted as it is."""
        self._check_fitted()
        x = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
        if x.ndim == 1:
            x = x[None, :]
        if len(x) != 1:
            raise CCRError(f"explain takes one embedding, got {len(x)} rows: explain(X[i])")
        return explain(self.transform(x), self.head_, concepts=self.concepts_.names, classes=self.classes_.tolist())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder; an older model there is replaced whole."""
        self._check_fitted()
        save_folder(path, *pack(self._fitted, self.get_params(deep=False)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ConceptClassifier:
        """Read a model written by `save`."""
        fitted, parameters = unpack(load_folder(path))
        unknown = set(parameters) - set(cls._get_param_names())
        if unknown:
            raise FormatError(f"{path} has settings that this ccr does not know: {', '.join(sorted(unknown))}")
        model = cls(**parameters)
        model._adopt(fitted)
        return model

    def history_table(self) -> dict[str, list[float]]:
        """`history_` by column, for a data frame or JSON."""
        self._check_fitted()
        records = [asdict(epoch) for epoch in self.history_]
        return {key: [record[key] for record in records] for key in (records[0] if records else {})}

    def _adopt(self, fitted: Fitted) -> None:
        self._fitted = fitted
        self.classes_, self.n_features_in_ = fitted.classes, fitted.refined.dimension
        self.concepts_, self.initial_concepts_ = fitted.refined, fitted.initial
        self.coef_, self.intercept_ = fitted.coef, fitted.intercept
        self.space_, self.rule_ = fitted.space, fitted.rule
        self.history_, self.best_epoch_ = fitted.history, fitted.best_epoch
        self.encoder_, self.encoder_fingerprint_ = fitted.encoder, fitted.encoder_fingerprint
        self.metrics_, self.edits_ = fitted.metrics, fitted.edits

    def _map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """`use` of the logits of some rows of X after the other."""
        embeddings = self._read(X)
        weights, bias = np.array(self.coef_.T, np.float32, order="C"), np.array(self.intercept_, np.float32)
        return map_codes(
            self.rule_, embeddings, self.concepts_.embeddings, lambda _, codes: use(logits_of(codes, weights, bias))
        )

    def _read(self, X: Any) -> Embeddings:
        self._check_fitted()
        theirs, ours = getattr(X, "fingerprint", None), self.encoder_fingerprint_
        if theirs is not None and ours is not None and theirs != ours:
            raise CCRError(
                f"this model reads embeddings of encoder {ours}, got a store of encoder {theirs}: "
                "embed the images with the model's encoder"
            )
        embeddings = Embeddings(X, mean=self.space_.image_mean)
        embeddings.check_dimension(self.concepts_.dimension)
        return embeddings

    def _known_labels(self, y: Any, m: int) -> np.ndarray:
        labels = as_labels(y, m)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            shown = ", ".join(repr(label) for label in unknown[:5].tolist()) + (", ..." if len(unknown) > 5 else "")
            raise CCRError(
                f"{len(unknown)} classes were not there when the model was fitted: {shown}; it knows "
                f"{len(self.classes_)}; drop those images or fit again with them"
            )
        return labels

    def _checked_concepts(self) -> Concepts:
        check_radius(self.radius)
        if not isinstance(self.concepts, Concepts):
            raise CCRError(f"concepts must be a Concepts(names, embeddings), got {type(self.concepts).__name__}")
        return self.concepts

    def _checked_validation(
        self, validation: tuple[Any, Any], space: Space, classes: np.ndarray
    ) -> tuple[Embeddings, np.ndarray]:
        X, y = validation
        embeddings = Embeddings(X, mean=space.image_mean).make_resident()
        assert self.concepts is not None
        embeddings.check_dimension(self.concepts.dimension)
        labels = as_labels(y, len(embeddings))
        known = np.isin(labels, classes)
        if not known.all():
            raise CCRError(f"validation has a class that the training data has not: {labels[~known][0].item()!r}")
        return embeddings, np.searchsorted(classes, labels).astype(np.int64)

    def _training(self, seed: int) -> Training:
        shared = [name for name in Training.__dataclass_fields__ if name not in ("seed",)]
        return Training(seed=seed, **{name: getattr(self, name) for name in shared})

    def _training_metrics(self) -> dict[str, float | None]:
        kept = asdict(self.history_[self.best_epoch_ - 1])
        kept["retention"] = metrics.retention(self.concepts_, self.initial_concepts_)
        return {name: None if math.isnan(value) else value for name, value in kept.items()}

    def _warn_if_empty(self) -> None:
        length = self.history_[self.best_epoch_ - 1].length
        if length == 0.0:
            warnings.warn(
                f"threshold {self.threshold_:g} leaves every code empty, so that all predictions come from the bias: "
                "lower it, or ask for a length, such as HardThreshold(length=12)",
                CCRWarning,
                stacklevel=3,
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "coef_"):
            raise NotFittedError("this ConceptClassifier is not fitted yet: call fit(X, y), or load a saved one")
