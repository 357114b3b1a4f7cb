"""ConceptClassifier: concepts, a coder and a linear head as one scikit-learn estimator."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils._set_output import _get_output_config  # the one place that knows what set_output was told

from ccr.calibration import CalibrationParts
from ccr.coding import Coder, HardThreshold, ThresholdRule, TopRule
from ccr.coding.coders import usual_length
from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts, stored_concepts
from ccr.edit import EditSession
from ccr.errors import CCRError, FormatError
from ccr.inputs import Embeddings
from ccr.io.hub import OnHub
from ccr.io.provenance import Provenance, encoder_of, kept_concepts, left_out_facts, training_facts, whole_list
from ccr.knowledge import Knowledge
from ccr.knowledge.shown import Shown
from ccr.labels import (
    ClassWeight,
    Labels,
    fit_parts,
    held_out,
    labels_like,
    labels_of,
    number_labels,
    sample_weights,
    seed_of,
    training_weights,
)
from ccr.metrics import fidelity
from ccr.model import ConceptModel, LinearModel
from ccr.refine import Callback, Refinement, Training
from ccr.refine.data import Labelled, split
from ccr.refine.engines import EngineName
from ccr.refine.likely import (
    FitData,
    PhotoAnswers,
    check_probability,
    check_stated_truth,
    refine_likely,
    takes_thresholds,
    whole_dictionary,
    with_stated_truth,
)
from ccr.refine.loop import PartedCheckpoint, RefinementProblem, solve_with_weights
from ccr.refine.measure import CheckpointFolder
from ccr.refine.options import Optimizer, Schedule
from ccr.refine.region import Bound, Claims, GroundedBound, check_claims, informed_facts
from ccr.space import Angular, Center, Dispersion, Space
from ccr.utils.arrays import coded_frame


class NotFittedError(CCRError, SklearnNotFittedError):
    """A model was asked for something that only `fit` can give."""


#: Example values of hyperparameters that have settings of their own.
_EXAMPLES = {"coder": "HardThreshold(length=12)", "dispersion": "Symmetric(strength=0.9)"}

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Model = TypeVar("Model")


class FromModel:
    """A read-only part of the fitted model: `coef_ = FromModel("head.coef")`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: ModelEstimator | None, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        part: Any = estimator.fitted()
        for name in self.path.split("."):
            part = part[name] if isinstance(part, dict) else getattr(part, name)
        return part

    def __set__(self, estimator: ModelEstimator, value: Any) -> None:
        raise CCRError(
            f"{self.name} is read-only, because a fitted model is one whole: use edit(), whose model() is a changed "
            "copy, or fit again"
        )


def delegate(
    method: Callable[Concatenate[Model, Arguments], Answer],
) -> Callable[Concatenate[Any, Arguments], Answer]:
    """A method of an estimator that asks the same of its fitted model; data frames must have the columns of `fit`."""

    @wraps(method)
    def ask(estimator: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        for given in (*args, *kwargs.values()):
            estimator.check_columns(given)
        return method(estimator.fitted(), *args, **kwargs)

    return ask


def _column_names(X: Any) -> np.ndarray | None:
    """The names of a data frame's columns, if all are texts."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.array(list(columns), dtype=object)


class ModelEstimator(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Base class of all estimators: scikit-learn's methods, answered by `model_`, a frozen `LinearModel`."""

    model_: Any
    #: The class of `model_`, and the hyperparameter that holds concepts; None where there is none.
    model_kind: type[LinearModel]
    texts_parameter: str | None = "concepts"

    classes_ = FromModel("classes")
    head_ = FromModel("head")
    coef_ = FromModel("head.coef")
    intercept_ = FromModel("head.intercept")
    n_features_in_ = FromModel("dimension")
    encoder_ = FromModel("provenance.encoder")
    encoder_fingerprint_ = FromModel("provenance.encoder_fingerprint")
    metrics_ = FromModel("provenance.metrics")

    predict = delegate(LinearModel.predict)
    predict_proba = delegate(LinearModel.predict_proba)

    def note_columns(self, X: Any) -> None:
        """Keep the names of a data frame's columns, which later ones must have in the same order."""
        self.__dict__.pop("feature_names_in_", None)
        names = _column_names(X)
        if names is not None:
            self.feature_names_in_ = names

    def check_columns(self, X: Any) -> None:
        """An error where X is a data frame whose columns are not those of `fit`, in their order."""
        known, names = self.__dict__.get("feature_names_in_"), _column_names(X)
        if known is None or names is None or len(known) != len(names):  # another width is refused later, with its rule
            return
        wrong = np.flatnonzero(known != names)
        if len(wrong):
            raise CCRError(
                f"the columns must be those of fit, in the same order; column {wrong[0]} was {known[wrong[0]]!r} and "
                f"is {names[wrong[0]]!r}: use X[list(model.feature_names_in_)]"
            )

    def fitted(self) -> Any:
        """The fitted model; an error where there is none yet."""
        model = self.__dict__.get("model_")
        if model is None:
            name = type(self).__name__
            raise NotFittedError(f"this {name} is not fitted yet: call fit(X, y), or load a saved one")
        return model

    def set_params(self, **params: Any) -> Any:
        """Set hyperparameters; those of a part by its name and two underscores, such as `coder__length`."""
        known = self.get_params(deep=False)
        for name in params:
            part, nested, _ = name.partition("__")
            whole = params.get(part, known.get(part))
            if nested and part in known and not hasattr(whole, "set_params"):
                example = _EXAMPLES.get(part)
                raise CCRError(
                    f"{name} is a setting of {part}, which is {whole!r} and has none: give {part} itself first"
                    + (f", such as {part}={example}" if example else "")
                )
        return super().set_params(**params)

    def transform(self, X: Any) -> Any:
        """Codes (m, n) of the embeddings X (m, d): CSR, or the data frame that `set_output` asks for, with a column
        for each concept; one of pandas is sparse."""
        self.check_columns(X)
        codes = self.fitted().encode(X)
        kind = _get_output_config("transform", self)["dense"]
        return codes if kind == "default" else coded_frame(codes, self.get_feature_names_out(), kind, X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions. Of two classes, as scikit-learn wants it, how
        far the second's logit is above the first's (m,)."""
        self.check_columns(X)
        logits = self.fitted().logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def score(self, X: Any, y: Any = None, sample_weight: Any | None = None) -> float:
        """Share of the rows of X (m, d) whose prediction is their label y (m,); a store brings its own labels."""
        predicted = self.predict(X)
        right = predicted == labels_like(self.classes_, labels_of(X, y), len(predicted))
        weights = None if sample_weight is None else sample_weights(sample_weight, len(right))
        return float(np.average(right, weights=weights))

    explain = delegate(LinearModel.explain)
    explain_many = delegate(LinearModel.explain_many)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        return np.array(self.fitted().names, dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as a folder of JSON and safetensors; an older model there is replaced whole."""
        self.fitted().save(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # embeddings are read, and codes made, in float32
        return tags

    def settings(self) -> dict[str, Any]:
        """The hyperparameters without concepts and knowledge; copies, so that changing them later does not change a
        model."""
        given = self.get_params(deep=False)
        apart = (self.texts_parameter, "knowledge")  # the model keeps both beside its settings
        return {name: clone(value, safe=False) for name, value in given.items() if name not in apart}

    @classmethod
    def of(cls, model: LinearModel) -> Any:
        """The estimator of a fitted model, with the hyperparameters and the concepts that the model was made with,
        those that a sparse head left out (`model_.provenance.left_out`) among them: fitted again on the same images,
        it ends with the same model. Models of older versions know only the concepts that they kept."""
        settings = {name: clone(value, safe=False) for name, value in model.provenance.settings.items()}
        if cls.texts_parameter is not None:
            settings[cls.texts_parameter] = whole_list(model.provenance)
        if model.provenance.knowledge is not None:
            settings["knowledge"] = model.provenance.knowledge
        unknown = set(settings) - set(cls._get_param_names())
        if unknown:
            raise FormatError(f"the model has settings that {cls.__name__} does not know: {', '.join(sorted(unknown))}")
        estimator = cls(**settings)
        estimator.model_ = model
        return estimator

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Read a model written by `save`."""
        return cls.of(cls.model_kind.load(path))


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

    evaluate = delegate(ConceptModel.evaluate)
    view = delegate(ConceptModel.view)
    coactivation = delegate(ConceptModel.coactivation)
    images_of = delegate(ConceptModel.images_of)
    audit = delegate(ConceptModel.audit)
    intervention_curve = delegate(ConceptModel.intervention_curve)
    predict_images = delegate(ConceptModel.predict_images)
    explain_image = delegate(ConceptModel.explain_image)
    explain_images = delegate(ConceptModel.explain_images)
    to_onnx = delegate(ConceptModel.to_onnx)
    to_torch = delegate(ConceptModel.to_torch)
    edit = delegate(EditSession)
    predict_set = delegate(ConceptModel.predict_set)
    evaluate_sets = delegate(ConceptModel.evaluate_sets)
    question = delegate(ConceptModel.question)

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
        rows = Embeddings(X)
        rows.check_dimension(texts.dimension)
        labels = number_labels(labels_of(X, y), len(rows))
        seed, checkpoint = self._started(checkpoint)

        # Where concepts start and how far they may move; which images train, choose the epoch, and calibrate.
        bound = Bound.fit(texts, X, **self._given(BOUND))
        images = bound.space.images(X).make_resident()
        parts = self._parts(images, labels, validation, bound.space, seed)
        weights = training_weights(labels, class_weight=self.class_weight, sample_weight=sample_weight)
        train, held = split(images, labels.y, weights, parts.watched, parts.left_out)
        known = GroundedBound.fit(
            self.knowledge, bound, train, X, labels.classes.tolist(), claims=self.claims, min_transfer=self.min_transfer
        )

        # Algorithm 2, and once more where answers say what photos show.
        problem = self._problem(known, train, held, len(labels.classes), seed)
        run = partial(solve_with_weights, weights=self.weights_per_class, engine=self.engine, callback=callback)
        result, shown = run(problem, checkpoint=checkpoint), None
        data = FitData(X, validation, labels, texts, parts.left_out, problem)
        if known.permitted is not None:
            # A part of the checkpoint, so that a fit that is killed in its second refinement goes on there.
            below = None if checkpoint is None else checkpoint.part("with-answers")
            result, shown = self._likely(result, known, data, partial(run, checkpoint=below))

        model = self._frozen(data, known, result, shown)
        self.model_ = model if self.coverage is None else parts.calibrated(model)
        self.note_columns(X)
        return self

    def _parts(self, images: Embeddings, labels: Labels, validation: Any, space: Space, seed: int) -> CalibrationParts:
        """The images that choose the epoch, and those that calibrate, if a coverage is asked for."""
        watched = held_out(
            validation, labels, space=space, dimension=images.shape[1], fraction=self.validation_fraction, seed=seed
        )
        if self.coverage is None:
            return CalibrationParts(watched)
        return CalibrationParts.of(images, labels, watched, coverage=self.coverage, seed=seed)

    def _problem(
        self, known: GroundedBound, train: Labelled, held: Labelled | None, classes: int, seed: int
    ) -> RefinementProblem:
        """The optimisation problem of the first refinement."""
        bound = known.bound
        rate = bound.rate(self.dictionary_rate)
        return RefinementProblem(
            np.array(bound.initial.embeddings, np.float32),
            train,
            held,
            self._coder(known, len(bound.initial)),
            bound.radius,
            classes,
            Training(**{**self._given(TRAINING), "dictionary_rate": rate, "seed": seed}),
            bound.start,
            known.permitted,
        )

    def _likely(
        self, result: Refinement, known: GroundedBound, data: FitData, run: Callable[[RefinementProblem], Refinement]
    ) -> tuple[Refinement, Shown | None]:
        """The refinement with what answers about photos make of it, and the map from scores to probabilities."""
        assert self.knowledge is not None
        if not isinstance(result.rule, (ThresholdRule, TopRule)):
            return result, None  # codes are no scores
        answers = PhotoAnswers.of(self.knowledge, known, data, result)
        if not answers.pairs:
            return result, None
        probability = None if self.min_probability is None else float(self.min_probability)
        if answers.source == "classes":
            probability = probability or 0.0
        if probability == 0 or not takes_thresholds(self.coder):
            shown = answers.map(whole_dictionary(result, data.problem.dictionary)).of(result.kept)
        else:
            result, shown = refine_likely(result, answers, data, run, probability)
        if shown.source == "photos" and self.stated_truth is not None:
            shown = with_stated_truth(result, shown, data.problem.train, self.stated_truth)
        return result, shown

    def _frozen(self, data: FitData, known: GroundedBound, result: Refinement, shown: Shown | None) -> ConceptModel:
        """The frozen model, of the concepts that are left."""
        kept, space, images = known.rows[result.kept], known.bound.space, data.problem.train.X
        initial, texts = kept_concepts(known.bound.initial, result.kept), kept_concepts(data.texts, kept)
        origins = space.own_texts(texts.embeddings) if self.knowledge is None else initial.embeddings
        measured = fidelity(images.sample(FIDELITY_ROWS), result.dictionary, origins)
        facts = informed_facts(self.knowledge, known, data.texts.names) | left_out_facts(data.texts, kept)
        facts |= training_facts(result, initial, fidelity=measured)
        model = ConceptModel(
            space=space,
            concepts=stored_concepts(initial.names, result.dictionary),
            initial=initial,
            rule=result.rule,
            head=LinearHead(np.ascontiguousarray(result.weights.T), result.bias),
            classes=data.labels.classes,
            provenance=Provenance(self.settings(), texts, **encoder_of(data.X), **facts),
            shown=shown,
        )
        return model.with_claims_seen(images, data.labels.y)

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
        check_claims(self.knowledge, self.claims, self.min_transfer)
        check_probability(self.knowledge, self.coder, self.min_probability)
        check_stated_truth(self.knowledge, self.stated_truth)
        return self.concepts

    def _started(self, checkpoint: Any) -> tuple[int, PartedCheckpoint | None]:
        """The seed, which a checkpoint keeps if the user gave none, and the checkpoint, None: none."""
        seed = seed_of(self.random_state)
        if isinstance(checkpoint, (str, os.PathLike)):
            checkpoint = CheckpointFolder(checkpoint)
        if isinstance(checkpoint, CheckpointFolder) and not isinstance(self.random_state, numbers.Integral):
            seed = checkpoint.seed(seed)
        return seed, checkpoint

    def _coder(self, known: GroundedBound, n: int) -> Coder:
        """The coder for the n concepts that may have a weight."""
        if self.coder is None:
            return HardThreshold(length=usual_length(n))
        if isinstance(self.coder, HardThreshold) and self.knowledge is not None:
            return self.coder.of(known.rows)
        return self.coder

    def _given(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Hyperparameters as a saved model has them: NumPy's own numbers of few digits would stay so all the way."""
        given = {name: getattr(self, name) for name in names}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
