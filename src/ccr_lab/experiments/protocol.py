"""The paper's protocol on one of its data sets: released settings and ours side by side, five seeds, its table and
curve, and CLIP-IP-OMP by the number of concepts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ccr import kernels
from ccr.classifier import PAPER_THRESHOLDS, ConceptClassifier
from ccr.coding import IPOMP, HardThreshold
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain.terms import PlainResult
from ccr.labels import Part
from ccr.metrics import deviation, retention
from ccr.refine import Epoch
from ccr.refine.region import PAPER_RADIUS, unrefined
from ccr.utils.processes import OnProgress, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, run_all
from ccr_lab.experiments.curves import Curve

REVISION = 2
#: Lengths at which CLIP-IP-OMP is run.
PURSUIT_LENGTHS = (5, 10, 20, 30, 50)


class Reported(NamedTuple):
    """The paper's own numbers for CCR (Measures, docs/method.md): AEL, ASR in [0, 1], ACED."""

    length: float
    sparsity: float
    deviation: float


REPORTED = {
    "cifar10": Reported(11.09, 0.0866, 0.056),
    "cifar100": Reported(19.67, 0.0239, 0.061),
    "cub": Reported(27.52, 0.132, 0.062),
    "imagenet": Reported(48.97, 0.0108, 0.097),
    "places365": Reported(44.43, 0.0201, 0.041),
}


@dataclass(frozen=True)
class Trained(PlainResult):
    """One fit, measured on the test images after its last epoch; accuracy, sparsity and retention are in [0, 1]."""

    name: str
    seed: int
    accuracy: float
    length: float
    sparsity: float
    deviation: float
    max_deviation: float
    retention: float
    seconds: float
    history: tuple[Epoch, ...]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Trained:
        return cls(**{**stored, "history": tuple(Epoch(**epoch) for epoch in stored["history"])})


@dataclass(frozen=True)
class Pursued(PlainResult):
    """CLIP-IP-OMP with k concepts per image: test accuracy, seconds to code all images and to fit the head."""

    k: int
    accuracy: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Protocol:
    """Results of the paper's protocol beside those that the paper reported; `images` counts those of train and test."""

    dataset: str
    images: tuple[int, int]
    concepts: int
    trained: tuple[Trained, ...]
    pursued: tuple[Pursued, ...]
    reported: Reported = field(repr=False)

    @property
    def curves(self) -> list[Curve]:
        return [Curve(run.name, run.seed, run.history) for run in self.trained]

    def runs(self) -> dict[str, list[Trained]]:
        """The fits of each setting."""
        names = dict.fromkeys(run.name for run in self.trained)
        return {name: [run for run in self.trained if run.name == name] for name in names}

    def table(self) -> list[dict[str, Any]]:
        """The paper's table: one row per setting, means over seeds."""
        rows: list[dict[str, Any]] = []
        for name, runs in self.runs().items():
            accuracies = [run.accuracy for run in runs]
            row: dict[str, Any] = {
                "setting": name,
                "seeds": len(runs),
                "worst": min(accuracies),
                "best": max(accuracies),
            }
            for measure in ("accuracy", "length", "sparsity", "deviation", "retention", "seconds"):
                row[measure] = float(np.mean([getattr(run, measure) for run in runs]))
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "dataset": self.dataset,
            "training_images": self.images[0],
            "test_images": self.images[1],
            "concepts": self.concepts,
            "reported": self.reported._asdict(),
            "trained": [run.to_dict() for run in self.trained],
            "ip_omp": [run.to_dict() for run in self.pursued],
        }


def run_protocol(
    dataset: str,
    concepts: Concepts,
    *,
    train: Part,
    test: Part,
    seeds: Sequence[int] = range(5),
    pursuit_lengths: Sequence[int] = PURSUIT_LENGTHS,
    cache: RunCache | None = None,
    tell: OnProgress = no_progress,
    overrides: Mapping[str, Any] | None = None,
) -> Protocol:
    """All fits of the protocol; finished ones are taken from the cache.

    Parameters
    ----------
    dataset : one of the paper's: its released threshold and its reported length are taken.
    pursuit_lengths : concepts per image of CLIP-IP-OMP; more than there are concepts or dimensions are left out.
    overrides : parameters for every classifier, such as `max_iter`.
    """
    if dataset not in PAPER_THRESHOLDS:
        raise CCRError(f"the paper's data sets are {', '.join(PAPER_THRESHOLDS)}, got {dataset!r}")
    shared = {
        "protocol": REVISION,
        "dataset": dataset,
        "concepts": fingerprint_concepts(concepts),
        "data": [fingerprint_data(part.X, part.y) for part in (train, test)],
        "overrides": {name: repr(value) for name, value in (overrides or {}).items()},
    }
    models = settings(dataset, concepts)
    fits: list[tuple[str, int]] = [(name, int(seed)) for name in models for seed in seeds]
    lengths = [k for k in pursuit_lengths if k <= min(len(concepts), concepts.dimension)]
    results: list[Any] = run_all(
        _fit,
        _ProtocolData(models, concepts, train, test, overrides or {}),
        [*fits, *lengths],
        names=[*(f"{name}, seed {seed}" for name, seed in fits), *(f"CLIP-IP-OMP, k = {k}" for k in lengths)],
        key=lambda item: {
            **shared,
            **({"pursuit": item} if isinstance(item, int) else {"setting": item[0], "seed": item[1]}),
        },
        cache=cache or RunCache(None),
        tell=tell,
        catch=(),
    )
    trained = tuple(Trained.from_dict(run) for run in results[: len(fits)])
    pursued = tuple(Pursued(**run) for run in results[len(fits) :])
    return Protocol(dataset, (len(train.y), len(test.y)), len(concepts), trained, pursued, REPORTED[dataset])


class _ProtocolData(NamedTuple):
    """Settings, concepts and data that all fits share."""

    models: Mapping[str, ConceptClassifier]
    concepts: Concepts
    train: Part
    test: Part
    overrides: Mapping[str, Any]


def _fit(same: _ProtocolData, item: tuple[str, int] | int) -> dict[str, Any]:
    return _pursue(same, item) if isinstance(item, int) else _train(same, *item)


def settings(dataset: str, concepts: Concepts) -> dict[str, ConceptClassifier]:
    """The released settings and ours, each with its baseline; ours in the paper's ball, with all weights, at the length
    that the paper reports."""
    length = min(REPORTED[dataset].length, float(len(concepts)))
    coder = HardThreshold(length=length, sign="both")
    ours: dict[str, Any] = {"coder": coder, "radius": PAPER_RADIUS, "weights_per_class": None}
    return {
        "CCR, released": ConceptClassifier.paper(dataset, concepts),
        "baseline, released": ConceptClassifier.paper(dataset, concepts, radius=0.0),
        "CCR, ours": ConceptClassifier(concepts, **ours),
        "baseline, ours": ConceptClassifier(concepts, **unrefined(ours)),
    }


def _train(same: _ProtocolData, name: str, seed: int) -> dict[str, Any]:
    """Follow the test images by epoch and keep the last epoch: nothing is chosen by them."""
    model, test = same.models[name], same.test
    model.set_params(random_state=seed, n_iter_no_change=10**6, tol=1.0, **same.overrides)
    kernels.warm_up_before_timing("training", "coding")
    start = time.perf_counter()
    model.fit(same.train.X, same.train.y, validation=(test.X, test.y))
    seconds = time.perf_counter() - start
    on_test = model.evaluate(test.X, test.y)
    moved = deviation(model.concepts_, model.initial_concepts_)
    kept = retention(model.concepts_, model.initial_concepts_)
    measured = (on_test.accuracy, on_test.length, on_test.sparsity, moved.mean, moved.max, kept, seconds)
    return Trained(name, seed, *measured, model.history_).to_dict()


def _pursue(same: _ProtocolData, k: int) -> dict[str, Any]:
    fixed: dict[str, Any] = {"radius": 0.0, "weights_per_class": None, "center": None, "dispersion": None}
    model = ConceptClassifier(same.concepts, coder=IPOMP(length=k), validation_fraction=0.0, **fixed)
    kernels.warm_up_before_timing("pursuit", "coding")
    start = time.perf_counter()
    model.fit(same.train.X, same.train.y)
    right = float(np.mean(model.predict(same.test.X) == same.test.y))
    return Pursued(k, right, time.perf_counter() - start).to_dict()
