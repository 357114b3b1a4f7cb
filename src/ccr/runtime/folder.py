"""From a model's folder to a RuntimeModel, checked as the full model checks it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ccr.errors import FormatError
from ccr.models.model_checks import (
    known_classes,
    known_names,
    optional,
    tensor,
    text_or_none,
    unpack_knowledge,
    unpack_shown,
)
from ccr.models.persist import ModelFolder, read_folder
from ccr.runtime.model import RuntimeModel
from ccr.runtime.rows import Place
from ccr.runtime.selection import selection

#: How far the norm of a concept may be from 1.
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
    names = known_names(config["concepts"])
    concepts = tensor(tensors, "refined", (len(names), tensors["refined"].shape[-1]))
    if not np.allclose(np.linalg.norm(concepts, axis=1), 1.0, atol=UNIT_TOLERANCE):
        raise FormatError("the model's concepts are not unit vectors: the file was changed after it was saved")
    classes = known_classes(config)
    return RuntimeModel(
        place=_place(tensors, concepts.shape[1]),
        names=names,
        concepts=concepts.astype(np.float64),
        select=selection(config["rule"], len(names)),
        coef=tensor(tensors, "coef", (len(classes), len(names)), narrow=False),
        intercept=tensor(tensors, "intercept", (len(classes),), narrow=False),
        classes=classes,
        answers=_answers(config, tensors, classes, names),
        shown=unpack_shown(config, tensors, len(names)),
        encoder=text_or_none(config, "encoder"),
        encoder_fingerprint=text_or_none(config, "encoder_fingerprint"),
    )


def _answers(config: Any, tensors: Any, classes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """What the model's knowledge says of its classes and concepts; unknown without any."""
    known = unpack_knowledge(config, tensors)
    if known is None:
        return np.zeros((len(classes), len(names)), np.int8)
    return known.aligned(classes.tolist(), names)


def _place(tensors: Any, d: int) -> Place:
    """In float64, in which rows are placed."""
    mean, whiten = optional(tensors, "image_mean", (d,)), optional(tensors, "metric_whiten", (d, d))
    return Place(
        None if mean is None else mean.astype(np.float64), None if whiten is None else whiten.astype(np.float64)
    )
