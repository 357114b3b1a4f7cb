"""Fitted: everything that `fit` found, and how it lies in a model folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from ccr.core.coding import (
    IPOMP,
    OMP,
    HardThreshold,
    LassoRule,
    NonNegativeLasso,
    PursuitRule,
    Rule,
    ThresholdRule,
    TopK,
    TopRule,
)
from ccr.core.concepts import Concepts
from ccr.core.geometry import ConeWidening
from ccr.core.refine import Epoch
from ccr.core.space import Angular, Space, Symmetric
from ccr.errors import CCRError, FormatError
from ccr.models.persist import ModelFolder

#: User's choices that a configuration can name.
CHOICES = {kind.__name__: kind for kind in (HardThreshold, TopK, OMP, IPOMP, NonNegativeLasso, Angular, Symmetric)}
RULES = {kind.__name__: kind for kind in (ThresholdRule, TopRule, PursuitRule, LassoRule)}


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fitted model consists of, apart from the parameters it was made with."""

    classes: np.ndarray
    initial: Concepts
    refined: Concepts
    coef: np.ndarray
    intercept: np.ndarray
    space: Space
    rule: Rule
    history: tuple[Epoch, ...]
    best_epoch: int
    encoder: str | None
    encoder_fingerprint: str | None
    metrics: dict[str, Any]
    edits: tuple[dict[str, Any], ...] = ()


def library_version() -> str:
    try:
        return version("ccr-xai")
    except PackageNotFoundError:
        return "unknown"


def pack(fitted: Fitted, parameters: Mapping[str, Any]) -> ModelFolder:
    """The configuration (JSON types only) and the tensors of a model folder."""
    parameters = dict(parameters)
    concepts = parameters.pop("concepts")
    config = {
        "library_version": library_version(),
        "model": "ConceptClassifier",
        "parameters": {name: _pack_choice(value) for name, value in parameters.items()},
        "classes": fitted.classes.tolist(),
        "class_type": fitted.classes.dtype.str,
        "concepts": list(fitted.refined.names),
        "rule": {"type": type(fitted.rule).__name__, **asdict(fitted.rule)},  # type: ignore[call-overload]
        "dispersion_factor": getattr(fitted.space.dispersion, "factor", None),
        "encoder": fitted.encoder,
        "encoder_fingerprint": fitted.encoder_fingerprint,
        "metrics": fitted.metrics,
        "edits": list(fitted.edits),
        "best_epoch": fitted.best_epoch,
        "history": [{key: _finite(value) for key, value in asdict(epoch).items()} for epoch in fitted.history],
    }
    tensors = {
        "concepts": concepts.embeddings,
        "initial": fitted.initial.embeddings,
        "refined": fitted.refined.embeddings,
        "coef": fitted.coef,
        "intercept": fitted.intercept,
        **_pack_space(fitted.space),
    }
    return ModelFolder(config, tensors)


def unpack(folder: ModelFolder) -> tuple[Fitted, dict[str, Any]]:
    """The fitted parts and the constructor's parameters; a folder that does not fit together is refused."""
    try:
        return _unpack(folder)
    except (KeyError, TypeError, IndexError, AttributeError, CCRError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"the model's config.json and tensors do not fit together ({error!r}): save it again"
        ) from None


def _unpack(folder: ModelFolder) -> tuple[Fitted, dict[str, Any]]:
    config, tensors = folder
    names = config["concepts"]
    rule = dict(config["rule"])
    fitted = Fitted(
        classes=np.array(config["classes"], dtype=np.dtype(config["class_type"])),
        initial=stored_concepts(names, tensors["initial"]),
        refined=stored_concepts(names, tensors["refined"]),
        coef=tensors["coef"],
        intercept=tensors["intercept"],
        space=_unpack_space(config, tensors),
        rule=RULES[rule.pop("type")](**rule),
        history=tuple(_unpack_epoch(epoch) for epoch in config["history"]),
        best_epoch=int(config["best_epoch"]),
        encoder=config["encoder"],
        encoder_fingerprint=config["encoder_fingerprint"],
        metrics=dict(config["metrics"]),
        edits=_unpack_edits(config.get("edits", [])),  # folders of older versions have none
    )
    _check_shapes(fitted)
    parameters = {name: _unpack_choice(value) for name, value in config["parameters"].items()}
    return fitted, {**parameters, "concepts": stored_concepts(names, tensors["concepts"])}


def stored_concepts(names: Any, rows: np.ndarray) -> Concepts:
    """Concepts whose embeddings are these rows bit for bit; making them unit again could change the last digit."""
    concepts = Concepts(names, rows)
    exact = np.array(rows, dtype=np.float32)
    if not np.allclose(exact, concepts.embeddings, atol=1e-5):
        raise FormatError("the model's concepts are not unit vectors: the file was changed after it was saved")
    exact.setflags(write=False)
    object.__setattr__(concepts, "embeddings", exact)
    return concepts


def _check_shapes(fitted: Fitted) -> None:
    shape = (len(fitted.classes), len(fitted.refined))
    if fitted.coef.shape != shape or fitted.intercept.shape != shape[:1]:
        raise FormatError(
            f"the model's head has shape {fitted.coef.shape}, but there are {shape[0]} classes and {shape[1]} concepts"
        )
    if not (np.isfinite(fitted.coef).all() and np.isfinite(fitted.intercept).all()):
        raise FormatError("the model's head holds NaN or infinity")


def _pack_space(space: Space) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    if space.image_mean is not None and space.concept_mean is not None:
        tensors |= {"image_mean": space.image_mean, "concept_mean": space.concept_mean}
    if isinstance(space.dispersion, ConeWidening):
        tensors["dispersion_axis"] = space.dispersion.axis.numpy()
    elif space.dispersion is not None:
        tensors["dispersion_matrix"] = space.dispersion.numpy()
    return tensors


def _unpack_space(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Space:
    dispersion: ConeWidening | torch.Tensor | None = None
    if "dispersion_axis" in tensors:
        dispersion = ConeWidening(torch.from_numpy(tensors["dispersion_axis"]), float(config["dispersion_factor"]))
    elif "dispersion_matrix" in tensors:
        dispersion = torch.from_numpy(tensors["dispersion_matrix"])
    return Space(tensors.get("image_mean"), tensors.get("concept_mean"), dispersion)


def _pack_choice(value: Any) -> Any:
    if type(value).__name__ in CHOICES:
        return {"type": type(value).__name__, **value.get_params(deep=False)}
    if isinstance(value, Mapping):  # class weights; JSON keys are texts, labels may be numbers
        return {"type": "mapping", "items": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.random.RandomState):
        return None  # a generator has no number to save
    return _plain(value)


def _unpack_choice(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    value = dict(value)
    kind = value.pop("type")
    return dict(value["items"]) if kind == "mapping" else CHOICES[kind](**value)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _finite(value: float) -> float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unpack_edits(edits: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(edits, list) or not all(isinstance(edit, dict) and "action" in edit for edit in edits):
        raise FormatError("the model's edits are not a list of actions: the file was changed after it was saved")
    return tuple(edits)


def _unpack_epoch(record: Mapping[str, Any]) -> Epoch:
    values: dict[str, Any] = {key: math.nan if value is None else value for key, value in record.items()}
    return Epoch(**values)
