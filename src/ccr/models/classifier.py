"""ConceptClassifier: concepts, a coder and a linear head as one scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from ccr.core.coding import Coder, HardThreshold
from ccr.core.concepts import Concepts
from ccr.core.geometry import check_radius
from ccr.core.heads import LinearHead
from ccr.core.inputs import Embeddings
from ccr.core.refine import Callback, Training, refine
from ccr.core.refine.choice import EngineName
from ccr.core.refine.options import Optimizer, Schedule
from ccr.core.space import Center, Dispersion, Space, Symmetric
from ccr.errors import CCRError
from ccr.models.checkpoint import CheckpointFolder
from ccr.models.concept_model import ConceptModel
from ccr.models.edit import EditSession
from ccr.models.estimator import FromModel, ModelEstimator, answered_by
from ccr.models.labels import (
    ClassWeight,
    Labels,
    labels_of,
    number_labels,
    training_weights,
    validation_numbers,
    validation_rows,
)
from ccr.models.model_format import stored_concepts
from ccr.models.paper_settings import paper_settings
from ccr.models.provenance import Provenance, encoder_of, training_facts

#: Of symmetric dispersion: as accurate as full strength, and concepts stay closer to their texts
#: (measured: benchmarks/defaults.py).
DEFAULT_STRENGTH = 0.9
#: More validation images than this make no choice better.
MOST_VALIDATION = 20_000
#: Hyperparameters that are those of `Training`.
TRAINING = tuple(name for name in Training.__dataclass_fields__ if name != "seed")


class ConceptClassifier(ModelEstimator):
    """A classifier whose every prediction is a short exact sum of named concepts.

    An image's code holds its scores on few of the `concepts`; a linear head on the code predicts; and the concepts
    themselves are refined by gradient steps inside a ball of `radius` around where they started (Algorithm 2,
    docs/method.md). `fit` makes the frozen `model_`, a `ConceptModel`; all other fitted attributes are read-only views
    of it.

    Parameters
    ----------
    concepts : names and embeddings (n, d), from the same encoder as the images.
    coder : how a code is made; None is `HardThreshold(length=12)`: about twelve concepts per image.
    radius : how far a concept may move, in [0, 2]; 0 trains the head alone (the baseline).
    center : "data" measures images and concepts from their own means; None takes them as they are.
    dispersion : None, `Angular()` or `Symmetric()`: how concepts are spread before refinement; "auto" is
        `Symmetric(0.9)`.
    class_weight : None, "balanced" or {class: weight}.
    max_iter : passes over the training data; None is enough for about 1,000 steps.
    validation_fraction : share of the training data in [0, 1) held out to choose the epoch; 0 keeps the last one.
    optimizer, batch_size, head_rate, dictionary_rate, momentum, dropout, alpha, schedule, n_iter_no_change, tol :
        how it is trained, see `ccr.core.refine.Training`.
    engine : "sparse" (compiled, CPU), "dense" (torch, any device); "auto" is sparse on a CPU. Both take the same steps.
    device : "auto", "cpu", "cuda", "mps".
    random_state : the same number gives the same model.

    Fitted attributes: `model_`; of it `concepts_` (refined), `initial_concepts_` (where refinement started: centred and
    dispersed), `coef_` (classes, n), `intercept_`, `head_`, `classes_`, `space_`, `rule_`, `threshold_`, `history_`,
    `best_epoch_`, `n_iter_` (epochs), `engine_`, `stopped_` (why training ended), `encoder_` and `encoder_fingerprint_`
    (of the store that it was fitted on), `metrics_`, `edits_` (what was changed by hand since `fit`).
    """

    model_kind = ConceptModel

    concepts_ = FromModel("concepts")
    initial_concepts_ = FromModel("initial")
    space_ = FromModel("space")
    rule_ = FromModel("rule")
    threshold_ = FromModel("rule.threshold")
    history_ = FromModel("provenance.history")
    best_epoch_ = FromModel("provenance.best_epoch")
    n_iter_ = FromModel("provenance.epochs")
    engine_ = FromModel("provenance.engine")
    stopped_ = FromModel("provenance.stopped")
    edits_ = FromModel("provenance.edits")

    evaluate = answered_by(ConceptModel.evaluate)
    view = answered_by(ConceptModel.view)
    coactivation = answered_by(ConceptModel.coactivation)
    images_of = answered_by(ConceptModel.images_of)
    audit = answered_by(ConceptModel.audit)
    intervention_curve = answered_by(ConceptModel.intervention_curve)
    history_table = answered_by(ConceptModel.history_table)
    edit = answered_by(EditSession)

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
        """The released settings for cifar10, cifar100, cub, imagenet or places365, which never change."""
        return cls(concepts, **{**paper_settings(dataset), **overrides})

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any | None = None,
        *,
        validation: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> ConceptClassifier:
        """Refine the concepts and train the head on X (m, d) and labels y (m,).

        X may be an array, memmap, tensor or embedding store; a store brings its own labels. `validation` is an
        (X, y) to choose the epoch on instead of a held-out share. `callback(epoch, epochs)` follows the training.
        `checkpoint` is a folder in which every epoch is kept: the same call continues an interrupted training there
        and ends with the same model to the bit; delete the folder when done.
        """
        texts = self._checked_concepts()
        rows = Embeddings(X)
        rows.check_dimension(texts.dimension)
        labels = number_labels(labels_of(X, y), len(rows))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        dispersion = Symmetric(DEFAULT_STRENGTH) if self.dispersion == "auto" else self.dispersion
        space = Space.fit(texts.embeddings, X, center=self.center, dispersion=dispersion)
        initial = texts.with_embeddings(space.texts(texts.embeddings))
        result = refine(
            initial,
            space.images(X).make_resident(),
            labels.y,
            coder=HardThreshold(length=12) if self.coder is None else self.coder,
            radius=self.radius,
            classes=len(labels.classes),
            sample_weight=training_weights(labels, class_weight=self.class_weight, sample_weight=sample_weight),
            validation=self._held_out(validation, space, labels, seed),
            training=Training(seed=seed, **{name: getattr(self, name) for name in TRAINING}),
            engine=self.engine,
            callback=callback,
            checkpoint=None if checkpoint is None else CheckpointFolder(checkpoint),
        )
        origin = Provenance(settings=self.settings(), texts=texts, **encoder_of(X), **training_facts(result, initial))
        self.model_ = ConceptModel(
            space=space,
            concepts=stored_concepts(initial.names, result.dictionary),
            initial=initial,
            rule=result.rule,
            head=LinearHead(np.ascontiguousarray(result.weights.T), result.bias),
            classes=labels.classes,
            provenance=origin,
        )
        return self

    def _checked_concepts(self) -> Concepts:
        check_radius(self.radius)
        if not isinstance(self.concepts, Concepts):
            raise CCRError(f"concepts must be a Concepts(names, embeddings), got {type(self.concepts).__name__}")
        return self.concepts

    def _held_out(self, validation: tuple[Any, Any] | None, space: Space, labels: Labels, seed: int) -> Any:
        """Rows of the training data, or the validation data in the model's space with class numbers."""
        if validation is None:
            return validation_rows(labels, self.validation_fraction, seed=seed, most=MOST_VALIDATION)
        rows = space.images(validation[0]).make_resident()
        assert self.concepts is not None
        rows.check_dimension(self.concepts.dimension)
        return rows, validation_numbers(labels_of(*validation), len(rows), labels.classes)
