"""Run: one method fitted once and measured on the test images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccr import metrics
from ccr.labels import Part
from ccr_lab.experiments.compare.methods import Contender, Method
from ccr_lab.experiments.compare.task import Task
from ccr_lab.experiments.compare.usage import Usage, resource_usage

#: Numbers of concepts kept, per image or per class, for the curves of accuracy.
KEPT = tuple(range(1, 31))


@dataclass(frozen=True)
class Run:
    """What was measured, None where it does not apply: shares in [0, 1], `fit_memory` in bytes.

    `right` holds one bit per test image, as hexadecimal text; `accuracy_at` and `nec` have an entry for each of `KEPT`.
    """

    method: str
    seed: int
    right: str
    images: int
    accuracy: float
    validation_accuracy: float
    chosen: Mapping[str, Any]
    length: float | None
    in_play: float | None
    weights_per_class: float | None
    fidelity: float | None
    min_fidelity: float | None
    sparsity: float | None
    deviation: float | None
    max_deviation: float | None
    retention: float | None
    fit_seconds: float
    fit_memory: int | None
    encode_seconds: float  # per image
    accuracy_at: tuple[float, ...] | None
    nec: tuple[float, ...] | None
    anec: float | None

    def correct(self) -> np.ndarray:
        """Which test images were right (m,), as booleans."""
        return np.unpackbits(np.frombuffer(bytes.fromhex(self.right), np.uint8))[: self.images].astype(bool)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Run:
        values = dict(stored)
        for name in ("accuracy_at", "nec"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)


def run_method(method: Method, task: Task, seed: int) -> Run:
    """Fit a method to the task's training images with this seed, and measure it on the test images."""
    train, validation = task.split(seed)
    with resource_usage() as fitting:
        contender = method.fit(task, train, validation, seed)
    with resource_usage() as encoding:
        codes = contender.model.transform(task.test.X)
    numbers = np.searchsorted(contender.model.classes_, task.test.y)
    right = contender.head.logits(codes).argmax(axis=1) == numbers
    return Run(
        method=method.name,
        seed=seed,
        right=np.packbits(right).tobytes().hex(),
        images=len(right),
        accuracy=float(right.mean()),
        validation_accuracy=contender.validation_accuracy,
        chosen=contender.chosen,
        **_cost(fitting, encoding, len(right)),
        **_drift(contender, task.test.X),
        **_explanations(contender, Part(codes, numbers)),
    )


def _cost(fitting: Usage, encoding: Usage, m: int) -> dict[str, Any]:
    return {
        "fit_seconds": fitting.seconds,
        "fit_memory": fitting.memory,
        "encode_seconds": encoding.seconds / m,
    }


def _drift(contender: Contender, X: Any) -> dict[str, Any]:
    """Whether concepts still see in the images X what their texts see, and how far they went; for models that have
    any."""
    model = contender.model
    if not hasattr(model, "concepts_"):
        return dict.fromkeys(("fidelity", "min_fidelity", "deviation", "max_deviation", "retention"))
    faithful = metrics.Fidelity.of(model.model_.fidelity(X))
    moved = metrics.deviation(model.concepts_, model.initial_concepts_)
    return {
        "fidelity": metrics.finite(faithful.mean),
        "min_fidelity": metrics.finite(faithful.min),
        "deviation": moved.mean,
        "max_deviation": moved.max,
        "retention": metrics.retention(model.concepts_, model.initial_concepts_),
    }


def _explanations(contender: Contender, test: Part) -> dict[str, Any]:
    """Length, and accuracy when explanations are cut; None where predictions are not made of concepts."""
    if contender.concepts is None:
        return dict.fromkeys(("length", "in_play", "weights_per_class", "sparsity", "accuracy_at", "nec", "anec"))
    codes, head = test.X, contender.head
    length = metrics.contribution_length(codes, head) if contender.dense else metrics.explanation_length(codes)
    nec = tuple(metrics.accuracy_at_nec(codes, head, test.y, k) for k in KEPT)
    return {
        "length": length,
        "in_play": metrics.in_play(codes, head),
        "weights_per_class": metrics.weights_per_class(head),
        "sparsity": length / contender.concepts,
        "accuracy_at": tuple(metrics.accuracies_at_k(codes, head, test.y, KEPT)),
        "nec": nec,
        "anec": float(np.mean([nec[k - 1] for k in metrics.ANEC])),
    }
