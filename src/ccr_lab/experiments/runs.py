"""One method fitted once and measured on the test images, with the time and memory that it took."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ccr import kernels, metrics
from ccr.explain.terms import PlainResult
from ccr.labels import Part
from ccr_lab.experiments.methods import Contender, Method
from ccr_lab.experiments.task import ComparisonTask

#: Numbers of concepts kept, per image or per class, for the curves of accuracy.
KEPT = tuple(range(1, 31))


@dataclass(frozen=True, kw_only=True)
class MethodMeasures(PlainResult):
    """Measurements of a method, None where they do not apply: shares in [0, 1], `fit_memory` in bytes, `encode_seconds`
    per image; `accuracy_at` and `nec` have an entry for each of `KEPT`."""

    method: str
    accuracy: float
    validation_accuracy: float
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
    fit_memory: float | None
    encode_seconds: float
    accuracy_at: tuple[float, ...] | None
    nec: tuple[float, ...] | None
    anec: float | None
    truth: float | None = None


@dataclass(frozen=True, kw_only=True)
class MethodRun(MethodMeasures):
    """One fit. `right` holds one bit per test image, as hexadecimal text."""

    seed: int
    right: str
    images: int
    chosen: Mapping[str, Any]

    def correct(self) -> np.ndarray:
        """Mask (m,) of the test images that were right."""
        return np.unpackbits(np.frombuffer(bytes.fromhex(self.right), np.uint8))[: self.images].astype(bool)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> MethodRun:
        values = dict(stored)
        for name in ("accuracy_at", "nec"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)


def run_method(method: Method, task: ComparisonTask, seed: int) -> MethodRun:
    """Fit a method to the task's training images with this seed, and measure it on the test images."""
    train, validation = task.split(seed)
    with resource_usage() as fitting:
        contender = method.fit(task, train, validation, seed)
    with resource_usage() as encoding:
        codes = contender.model.transform(task.test.X)
    numbers = np.searchsorted(contender.model.classes_, task.test.y)
    right = contender.head.logits(codes).argmax(axis=1) == numbers
    return MethodRun(
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
        truth=_truth(contender, Part(codes, numbers), task),
    )


def _truth(contender: Contender, test: Part, task: ComparisonTask) -> float | None:
    """Share of true concepts among those shown first that the task's table answers for the image's class; None where
    there is no table, or nothing that it answers."""
    if contender.concepts is None or task.knowledge is None:
        return None
    model = contender.model.model_
    answers = task.knowledge.aligned(model.classes.tolist(), model.names)
    true, answered, _ = metrics.true_shown(sparse.csr_matrix(test.X), contender.head, test.y, answers)
    return float(true / answered) if answered else None


def _cost(fitting: Usage, encoding: Usage, m: int) -> dict[str, Any]:
    return {"fit_seconds": fitting.seconds, "fit_memory": fitting.memory, "encode_seconds": encoding.seconds / m}


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


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Usage:
    """Seconds, and bytes of memory at the peak beyond those at the start; None where the system cannot say."""

    seconds: float = 0.0
    memory: int | None = None


@contextmanager
def resource_usage() -> Iterator[Usage]:
    """Measure what happens inside the block, never the compiling of kernels; the `Usage` is filled in when it ends."""
    kernels.warm_up_before_timing()
    usage = Usage()
    before = _reset_peak()
    start = time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - start
        peak = _resident("VmHWM")
        usage.memory = None if before is None or peak is None else max(0, peak - before)


def _reset_peak() -> int | None:
    """Let the peak begin at what is resident now, and say how much that is; None where Linux does not do this."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory that was freed but kept would hide what is taken next
        RESET.write_text("5")
        return _resident("VmRSS")
    return None


def _resident(field: str) -> int | None:
    with suppress(OSError), STATUS.open() as lines:
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), None)
    return None
