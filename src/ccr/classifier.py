"""ConceptClassifier: concepts, a coder and a linear head as one scikit-learn estimator."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ccr.calibration import SHARE, CodedLabels, check_coverage, fewest_images, half_rows, halves
from ccr.coding import Coder, HardThreshold, ThresholdRule, TopRule, apply_rule
from ccr.coding.coders import usual_length
from ccr.concepts import Concepts, stored_concepts
from ccr.edit import EditSession
from ccr.errors import CCRError
from ccr.estimator import FromModel, ModelEstimator, answered_by
from ccr.heads import LinearHead
from ccr.inputs import Embeddings
from ccr.io.hub import OnHub
from ccr.io.provenance import Provenance, encoder_of, kept_concepts, left_out_facts, training_facts
from ccr.knowledge import Knowledge
from ccr.labels import (
    MOST_VALIDATION,
    ClassWeight,
    Labels,
    fit_parts,
    held_out,
    labels_of,
    number_labels,
    seed_of,
    training_weights,
    validation_rows,
)
from ccr.metrics import fidelity
from ccr.model import ConceptModel
from ccr.refine import Callback, Refinement, Training, refine
from ccr.refine.data import Permitted, split
from ccr.refine.engines import EngineName
from ccr.refine.likely import (
    FitData,
    PhotoAnswers,
    check_probability,
    check_stated_truth,
    refine_likely,
    stating,
    takes_thresholds,
    whole_dictionary,
)
from ccr.refine.loop import PartedCheckpoint, refine_with
from ccr.refine.measure import CheckpointFolder
from ccr.refine.options import Optimizer, Schedule
from ccr.refine.region import Bound, Claims, Informed, check_claims, informed_facts
from ccr.shown import Shown
from ccr.space import Angular, Center, Dispersion

# The paper's released settings (Algorithm 2, docs/method.md).
#: Lambda of each data set.
PAPER_THRESHOLDS = {"cifar10": 0.15, "cifar100": 0.215, "cub": 0.22, "imagenet": 0.24, "places365": 0.22}


def paper_settings(dataset: str) -> dict[str, Any]:
    """Hyperparameters of the paper for a `ConceptClassifier` on cifar10, cifar100, cub, imagenet or places365.

    Codes are one-sided as in the released code; the projection is exact, and the epoch is chosen on validation data,
    where the released code overshoots the radius and reads the test set.
    """
    if dataset not in PAPER_THRESHOLDS:
        raise CCRError(f"the paper has settings for {', '.join(PAPER_THRESHOLDS)}, not for {dataset!r}")
    return {
        "coder": HardThreshold(threshold=PAPER_THRESHOLDS[dataset], sign="positive"),
        "radius": 0.1,
        "weights_per_class": None,
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


# Calibration: images that choose the epoch also give the temperature, others give the prediction sets.
class Placed(NamedTuple):
    """Images in the model's space, with class numbers."""

    images: Embeddings
    y: np.ndarray

    def coded(self, model: ConceptModel) -> CodedLabels:
        """Codes of the images by a model."""
        return CodedLabels(apply_rule(model.rule, self.images, model.concepts.embeddings), self.y)


class CalibrationParts(NamedTuple):
    """Split of a fit's images for calibration: `watched` chooses the epoch (as `refine` takes it), `left_out` rows are
    not trained on, `warm` gives the temperature (None: half of `held` does), and `held` gives the prediction sets."""

    watched: Any
    left_out: np.ndarray | None
    warm: Placed | None
    held: Placed
    coverage: float
    seed: int

    def calibrated(self, model: ConceptModel) -> ConceptModel:
        """The fitted model with its certainty."""
        held = self.held.coded(model)
        if self.warm is None:
            return model.with_certainty(*halves(held, model.classes, self.seed), self.coverage)
        return model.with_certainty(self.warm.coded(model), held, self.coverage)


def hold_out(images: Embeddings, labels: Labels, watched: Any, *, coverage: float, seed: int) -> CalibrationParts:
    """The parts of a fit: `watched` are rows of the `images`, or (other images, class numbers), which are shared."""
    coverage = check_coverage(coverage)
    if isinstance(watched, tuple):
        other, y = watched
        first = validation_rows(Labels(labels.classes, y), 0.5, seed=seed, most=len(y))
        second = np.setdiff1d(np.arange(len(y)), first)
        _check_enough(len(second) if len(first) else 0, coverage)
        warm, held = (_placed(other, y, rows) for rows in (first, second))
        parts = CalibrationParts(tuple(warm), None, warm, held, coverage, seed)
    else:
        rest = np.setdiff1d(np.arange(len(labels.y)), watched)
        chosen = validation_rows(Labels(labels.classes, labels.y[rest]), SHARE, seed=seed, most=MOST_VALIDATION)
        left_out = rest[chosen]
        _check_enough(len(left_out), coverage)
        chose = _placed(images, labels.y, watched) if len(watched) else None
        parts = CalibrationParts(watched, left_out, chose, _placed(images, labels.y, left_out), coverage, seed)
        if parts.warm is None:
            first, second = half_rows(parts.held.y, labels.classes, seed)
            _check_enough(len(second) if len(first) else 0, coverage)
    return parts


def _check_enough(images: int, coverage: float) -> None:
    """Sets of this coverage need so many images, beside those that give the temperature."""
    fewest = fewest_images(coverage)
    if images < fewest:
        raise CCRError(
            f"a coverage of {coverage:g} needs at least {fewest} images to calibrate on, beside those that choose "
            f"epoch and temperature, and only {images} can be held out: ask for less, give more images, or a larger "
            "validation=(X, y), which is the split val of a store"
        )


def _placed(images: Embeddings, y: np.ndarray, rows: np.ndarray) -> Placed:
    return Placed(Embeddings.ready(images.take(rows)), y[rows])


#: Fidelity on the training images is measured on at most this many: to about half a percent.
FIDELITY_ROWS = 16_384
#: Hyperparameters of the bound, and those that are of `Training`.
BOUND = ("radius", "fidelity", "center", "dispersion", "shrinkage")
TRAINING = tuple(name for name in Training.__dataclass_fields__ if name not in ("seed", "weights_per_class"))


class ConceptClassifier(ModelEstimator, OnHub):
    """A classifier whose every prediction is a short, exact sum of named concepts.

    An image's code holds its scores on few `concepts`; a linear head on it predicts; and the concepts are refined by
    gradient steps inside a small ball around where they started (Algorithm 2, docs/method.md). `fit` makes the frozen
    `model_`, a `ConceptModel`; all other fitted attributes are read-only views of it.

    Parameters
    ----------
    concepts : names and embeddings (n, d), from the same encoder as the images.
    knowledge : which concepts are true of which classes and photos; it grounds the concepts and forbids weights
        (Knowledge, docs/method.md). None: nothing is known.
    claims : with knowledge, "open" lets a class use any concept that is not "no" for it, "confirmed" only those that
        are "yes".
    min_transfer : with knowledge, leave out concepts whose transfer is below this share, in [0, 1]; 0.5 is chance.
    min_probability : with answers about photos, neither show nor add a concept that an image shows with a smaller
        probability, in [0, 1); 0 does without. None: at most 0.3, as much as costs held-out images no accuracy.
    stated_truth : with answers about photos, the share in (0, 1) of what explanations state by name that is expected to
        be true of the photo; the others are added up in one line. None: what is at least 60 % sure is stated.
    coder : how a code is made; None is `HardThreshold(length=12)`: an image shows about twelve concepts, or
        a third of a list of fewer than 36.
    fidelity : least correlation in [0, 1] of a concept's scores with those of its own text, by the images' covariance
        with `shrinkage`; concepts are refined in that metric. `fidelity_` is measured, and can be a little lower.
        1 trains the head alone (the baseline). Default, where no radius is given: 0.875.
    radius : instead, how far a concept may move in the encoder's space, in [0, 2]; 0 is the baseline, 0.1 the paper's.
    weights_per_class : hold a head of so many weights per class while concepts are refined; None keeps all; "auto" is
        the fewest that validation images find no worse. Concepts without a weight are left out of the model.
    candidates : each class chooses its weights among `candidates` times as many concepts, those that its images show
        most, from 1; try 2 for truer explanations. None: among all; with knowledge all that it confirms, and others
        only in the places that those leave. No effect on all weights.
    center : "data" measures images and concepts from their own means; None takes them as they are.
    dispersion : None, `Angular()` or `Symmetric()`: how concepts are spread before refinement, within their bound if
        it is a fidelity; "auto" is `Symmetric(0.9)`.
    shrinkage : of the images' covariance in their metric, in (0, 1]; fewer images than dimensions are shrunk more.
    class_weight : None, "balanced" or {class: weight}.
    max_iter : passes over the training data; None is enough for about 1,000 steps.
    validation_fraction : share of the training data in [0, 1) held out to choose the epoch; 0 keeps the last one.
    coverage : also calibrate: a share in (0, 1) of prediction sets that hold the true class. A temperature is fitted
        on the images that choose the epoch, the sets on others: half of `validation`, or a fifth of the training data.
    optimizer, batch_size, head_rate, dictionary_rate, momentum, dropout, alpha, schedule, n_iter_no_change, tol :
        how it is trained, see `ccr.refine.Training`.
    engine : "sparse" (compiled, CPU), "dense" (torch, any device); "auto" is sparse on a CPU. Both take the same steps.
    device : "auto", "cpu", "cuda", "mps".
    random_state : the same number gives the same model.

    Fitted attributes: `model_`; of it `concepts_` (refined), `initial_concepts_` (the centres of their balls), `coef_`
    (classes, n), `intercept_`, `head_`, `classes_`, `space_`, `rule_`, `threshold_`, `history_`, `best_epoch_`,
    `n_iter_` (epochs), `engine_`, `stopped_` (why training ended), `encoder_` and `encoder_fingerprint_` (of the store
    that it was fitted on), `metrics_`, `edits_` (what was changed by hand since `fit`), `fidelity_` (n,), the
    correlation of each concept's scores with those of its own text on the training images, `calibration_` (with
    `coverage`: temperature, and how probable a class must be to be in a set).
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
    fidelity_ = FromModel("provenance.fidelity")
    calibration_ = FromModel("calibration")

    evaluate = answered_by(ConceptModel.evaluate)
    view = answered_by(ConceptModel.view)
    coactivation = answered_by(ConceptModel.coactivation)
    images_of = answered_by(ConceptModel.images_of)
    audit = answered_by(ConceptModel.audit)
    intervention_curve = answered_by(ConceptModel.intervention_curve)
    predict_images = answered_by(ConceptModel.predict_images)
    explain_image = answered_by(ConceptModel.explain_image)
    explain_images = answered_by(ConceptModel.explain_images)
    to_onnx = answered_by(ConceptModel.to_onnx)
    to_torch = answered_by(ConceptModel.to_torch)
    edit = answered_by(EditSession)
    predict_set = answered_by(ConceptModel.predict_set)
    evaluate_sets = answered_by(ConceptModel.evaluate_sets)
    question = answered_by(ConceptModel.question)

    def __init__(
        self,
        concepts: Concepts | None = None,
        *,
        knowledge: Knowledge | None = None,
        claims: Claims = "open",
        min_transfer: float | None = None,
        min_probability: float | None = None,
        stated_truth: float | None = None,
        coder: Coder | None = None,
        fidelity: float | None = None,
        radius: float | None = None,
        weights_per_class: int | Literal["auto"] | None = 5,
        candidates: float | None = None,
        center: Center = "data",
        dispersion: Dispersion | Literal["auto"] | None = "auto",
        shrinkage: float = 0.5,
        class_weight: ClassWeight = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        optimizer: Optimizer = "adaptive",
        head_rate: float | None = None,
        dictionary_rate: float | None = None,
        momentum: float = 0.9,
        dropout: float = 0.0,
        alpha: float | None = None,
        schedule: Schedule = "cosine",
        validation_fraction: float = 0.1,
        coverage: float | None = None,
        n_iter_no_change: int | None = None,
        tol: float | None = None,
        engine: EngineName = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.concepts = concepts
        self.knowledge = knowledge
        self.claims = claims
        self.min_transfer = min_transfer
        self.min_probability = min_probability
        self.stated_truth = stated_truth
        self.coder = coder
        self.fidelity = fidelity
        self.radius = radius
        self.weights_per_class = weights_per_class
        self.candidates = candidates
        self.center = center
        self.dispersion = dispersion
        self.shrinkage = shrinkage
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
        self.coverage = coverage
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
        validation: Any = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | PartedCheckpoint | None = None,
    ) -> ConceptClassifier:
        """Refine the concepts and train the head on X (m, d) and labels y (m,).

        X may be an array, memmap, tensor or embedding store. A store brings its own labels and splits: given whole, or
        as its split `train`, it is trained on `train`, and `val`, if there is one, chooses the epoch, as in `ccr fit`.
        `validation` is an (X, y), or a store, to choose the epoch on instead of that or of a held-out share.
        `callback(epoch, epochs)` follows the training. `checkpoint` is a folder, or a URL, in which every epoch is
        kept: the same call continues an interrupted training there and ends with the same model to the bit; delete the
        folder when done.
        """
        X, validation = fit_parts(X, y, sample_weight, validation, self.validation_fraction)
        texts = self._checked_concepts()
        check_claims(self.knowledge, self.claims, self.min_transfer)
        check_probability(self.knowledge, self.coder, self.min_probability)
        check_stated_truth(self.knowledge, self.stated_truth)
        Embeddings(X).check_dimension(texts.dimension)
        labels = number_labels(labels_of(X, y), len(Embeddings(X)))
        if isinstance(checkpoint, (str, os.PathLike)):
            checkpoint = CheckpointFolder(checkpoint)
        seed = seed_of(self.random_state)
        if isinstance(checkpoint, CheckpointFolder) and not isinstance(self.random_state, numbers.Integral):
            seed = checkpoint.seed(seed)
        bound = Bound.fit(texts, X, **self._given(BOUND))
        space = bound.space
        images = space.images(X).make_resident()
        watched = held_out(
            validation, labels, space=space, dimension=texts.dimension, fraction=self.validation_fraction, seed=seed
        )
        parts = None if self.coverage is None else hold_out(images, labels, watched, coverage=self.coverage, seed=seed)
        watched = watched if parts is None else parts.watched
        weights = training_weights(labels, class_weight=self.class_weight, sample_weight=sample_weight)
        left_out = None if parts is None else parts.left_out
        known, classes = None, labels.classes.tolist()
        train, other = split(images, labels.y, weights, watched, left_out)
        if self.knowledge is not None:
            known = Informed.fit(
                self.knowledge,
                bound,
                train,
                X,
                classes,
                claims=self.claims,
                min_transfer=self.min_transfer,
            )
            bound = known.bound
        initial = bound.initial
        run = partial(
            refine,
            initial,
            images,
            labels.y,
            coder=self._coder(None if known is None else known.rows, len(initial)),
            radius=bound.radius,
            start=bound.start,
            classes=len(labels.classes),
            sample_weight=weights,
            validation=watched,
            left_out=left_out,
            permitted=None if known is None else known.permitted,
            engine=self.engine,
        )
        training = self._training(seed, bound)
        fewest = partial(refine_with, weights=self.weights_per_class, held_out=watched, training=training)
        result = fewest(run, callback=callback, checkpoint=checkpoint)
        shown = None
        if known is not None:
            # A part of the checkpoint, so that a fit that is killed in its second refinement goes on there.
            below = None if checkpoint is None else checkpoint.part("with-answers")

            def again(coder: Coder, permitted: Permitted) -> Refinement:
                return fewest(partial(run, coder=coder, permitted=permitted), callback=callback, checkpoint=below)

            data = FitData(X, validation, classes, train, other, left_out, training)
            result, shown = self._likely(result, known, data, again)
            if shown is not None and shown.source == "photos" and self.stated_truth is not None:
                shown = stating(result, shown, data.train, self.stated_truth)
        facts = {} if known is None else informed_facts(self.knowledge, known, texts.names)
        kept = result.kept if known is None else known.rows[result.kept]
        facts |= left_out_facts(texts, kept)
        texts, initial = kept_concepts(texts, kept), kept_concepts(initial, result.kept)
        own = initial.embeddings if known else space.own_texts(texts.embeddings)
        facts |= training_facts(
            result, initial, fidelity=fidelity(images.sample(FIDELITY_ROWS), result.dictionary, own)
        )
        model = ConceptModel(
            space=space,
            concepts=stored_concepts(initial.names, result.dictionary),
            initial=initial,
            rule=result.rule,
            head=LinearHead(np.ascontiguousarray(result.weights.T), result.bias),
            classes=labels.classes,
            provenance=Provenance(self.settings(), texts, **encoder_of(X), **facts),
            shown=shown,
        )
        model = model.with_claims_seen(images, labels.y)
        self.model_ = model if parts is None else parts.calibrated(model)
        self.note_columns(X)
        return self

    def _likely(
        self, result: Refinement, known: Informed, data: FitData, again: Callable[[Coder, Permitted], Refinement]
    ) -> tuple[Refinement, Shown | None]:
        """The refinement with what answers about photos make of it, and the map from scores to probabilities."""
        assert self.knowledge is not None
        if not isinstance(result.rule, (ThresholdRule, TopRule)):
            return result, None  # codes are no scores
        answers = PhotoAnswers.of(self.knowledge, known, data, result, self._checked_concepts())
        if not answers.pairs:
            return result, None
        probability, start = self.min_probability, known.bound.initial
        if answers.source == "classes":
            probability = probability or 0.0
        if probability == 0 or not takes_thresholds(self.coder):
            return result, answers.map(whole_dictionary(result, start.embeddings)).of(result.kept)
        return refine_likely(
            result,
            answers,
            again,
            start=start.embeddings,
            data=data,
            permitted=known.permitted,
            probability=None if probability is None else float(probability),
        )

    def shared_model(self) -> ConceptModel:
        """The fitted model, which the model card describes."""
        model: ConceptModel = self.fitted()
        return model

    def _checked_concepts(self) -> Concepts:
        if not isinstance(self.concepts, Concepts):
            raise CCRError(f"concepts must be a Concepts(names, embeddings), got {type(self.concepts).__name__}")
        length, before = getattr(self.coder, "length", None), self.__dict__.get("model_")
        left_out = () if before is None else before.provenance.left_out
        if left_out and length is not None and length > len(self.concepts):
            raise CCRError(
                f"the coder's length is {length}, and of this model's concepts {len(self.concepts)} were kept: fit "
                f"with the whole list (the {len(left_out)} others are in model_.provenance.left_out), or ask for less"
            )
        return self.concepts

    def _coder(self, rows: np.ndarray | None, n: int) -> Coder:
        """The coder for these rows of the list, None: all, which are n."""
        if self.coder is None:
            return HardThreshold(length=usual_length(n))
        return self.coder.of(rows) if isinstance(self.coder, HardThreshold) and rows is not None else self.coder

    def _given(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Hyperparameters as a saved model has them: NumPy's own numbers of few digits would stay so all the way."""
        given = {name: getattr(self, name) for name in names}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}

    def _training(self, seed: int, bound: Bound) -> Training:
        return Training(**{**self._given(TRAINING), "dictionary_rate": bound.rate(self.dictionary_rate), "seed": seed})
