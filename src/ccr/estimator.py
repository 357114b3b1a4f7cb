"""ModelEstimator: hyperparameters, `fit`, and a frozen `model_` that answers everything else."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils._set_output import _get_output_config  # the one place that knows what set_output was told

from ccr.errors import CCRError, FormatError
from ccr.explain import Explanation
from ccr.io.provenance import whole_list
from ccr.labels import labels_like, labels_of, sample_weights
from ccr.linear_model import LinearModel
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


def answered_by(
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

    predict = answered_by(LinearModel.predict)
    predict_proba = answered_by(LinearModel.predict_proba)

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
        wanted = _get_output_config("transform", self)["dense"]
        return codes if wanted == "default" else coded_frame(codes, self.get_feature_names_out(), wanted, X)

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

    explain_many = answered_by(LinearModel.explain_many)

    def explain(self, x: Any) -> Explanation:
        """Why the embedding x (d,) is predicted as it is."""
        return self.fitted().explain(x)

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
