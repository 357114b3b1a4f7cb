"""The paper's curves: training epoch by epoch with seeds, sweeps over lambda and radius, ablations (Measures,
docs/method.md).

Sweeps and ablations hold lambda fixed: a held length would flatten what they show. Test accuracy is followed by epoch,
never chosen by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.explain.terms import PlainResult
from ccr.labels import Part
from ccr.metrics import explanation_length
from ccr.refine import Epoch
from ccr.refine.region import unrefined
from ccr.utils.processes import OnProgress, no_progress
from ccr_lab.experiments.methods import UNBOUND

#: Radii of the sweep over the radius, and lambdas of the other one in units of the fixed lambda.
RADII, LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5), (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@dataclass(frozen=True)
class Curve(PlainResult):
    """One training followed by epoch; the `validation_accuracy` of its epochs is test accuracy, in [0, 1]."""

    name: str
    seed: int
    history: tuple[Epoch, ...]

    def column(self, name: str) -> np.ndarray:
        return np.array([getattr(epoch, name) for epoch in self.history])


@dataclass(frozen=True)
class SweepPoint(PlainResult):
    """One fit of a sweep, measured on the test split at its last epoch; `value` is its lambda or its radius."""

    name: str
    value: float
    accuracy: float
    length: float
    mean_deviation: float


@dataclass(frozen=True, eq=False)
class CurveFits:
    """Data and options that all fits of the figures share.

    Parameters
    ----------
    options : mapping
        Parameters of every `ConceptClassifier`.
    tell : OnProgress
        Called before each fit.
    total : int
        How many fits there will be, for `tell`.
    """

    concepts: Concepts
    train: Part
    test: Part
    options: Mapping[str, Any]
    tell: OnProgress = no_progress
    total: int = 0
    done: Iterator[int] = field(default_factory=count, repr=False)

    def fit(self, what: str, **changes: Any) -> ConceptClassifier:
        """A model whose history follows the test split; nothing is chosen by it."""
        self.tell(next(self.done), self.total, what)
        settings = {**self.options, "n_iter_no_change": 10**6, "tol": 1.0, **changes}
        model = ConceptClassifier(self.concepts, **settings)
        return model.fit(self.train.X, self.train.y, validation=(self.test.X, self.test.y))

    def coder(self, **asked: Any) -> HardThreshold:
        """One of this length or threshold, with the signs of the bench's own."""
        return HardThreshold(sign=getattr(self.options.get("coder"), "sign", "positive"), **asked)

    def threshold(self, length: float) -> float:
        """The lambda at which the unrefined, dispersed concepts, all of them, have this length on the training data."""
        changes = {"coder": self.coder(length=length), "radius": 0.0, "weights_per_class": None, "max_iter": 1}
        return self.fit("calibrating lambda", **changes).threshold_


@dataclass(frozen=True)
class PaperCurves(PlainResult):
    """The paper's curves and sweeps; all but `training` hold lambda at `threshold`."""

    threshold: float
    training: tuple[Curve, ...]
    ablations: tuple[Curve, ...]
    thresholds: tuple[SweepPoint, ...]
    radii: tuple[SweepPoint, ...]


def paper_curves(bench: CurveFits, *, length: float, radius: float, seeds: Sequence[int]) -> PaperCurves:
    """Training by epoch at this length; ablations and sweeps at the lambda that gives the length before refinement; all
    with all weights, unless the bench says otherwise.

    Parameters
    ----------
    length : float
        Concepts per image, at least 1.
    radius : float
        How far CCR may move a concept, in (0, 2].
    seeds : sequence of int
        Seeds of the training curves.
    """
    bench = replace(bench, options={"weights_per_class": None, **bench.options})
    threshold = bench.threshold(length)
    return PaperCurves(
        threshold,
        tuple(training_curves(bench, length=length, settings={"radius": radius}, seeds=seeds)),
        tuple(ablation_curves(bench, threshold=threshold, radius=radius)),
        tuple(threshold_sweep(bench, [threshold * factor for factor in LAMBDAS], radius=radius)),
        tuple(radius_sweep(bench, RADII, threshold=threshold)),
    )


def paper_fits(seeds: int) -> int:
    """How many fits `paper_curves` makes."""
    return 1 + 2 * seeds + 3 + 2 * len(LAMBDAS) + len(RADII)


def training_curves(
    bench: CurveFits, *, length: float, settings: Mapping[str, Any], seeds: Sequence[int]
) -> list[Curve]:
    """CCR with these settings (radius or fidelity, weights_per_class) and its baseline, epoch by epoch, for every seed,
    at the same held length."""
    coder = bench.coder(length=length)
    return [
        Curve(name, seed, bench.fit(f"{name}, seed {seed}", coder=coder, random_state=seed, **asked).history_)
        for name, asked in {"baseline": unrefined(settings), "CCR": settings}.items()
        for seed in seeds
    ]


def ablation_curves(bench: CurveFits, *, threshold: float, radius: float) -> list[Curve]:
    """The full method, without dispersion, and without projection, at the same lambda."""
    coder = bench.coder(threshold=threshold)
    changes: dict[str, dict[str, Any]] = {
        "CCR": {"radius": radius},
        "without dispersion": {"radius": radius, "dispersion": None},
        "without projection": {"radius": UNBOUND},
    }
    return [Curve(name, 0, bench.fit(name, coder=coder, **change).history_) for name, change in changes.items()]


def threshold_sweep(bench: CurveFits, thresholds: Sequence[float], *, radius: float) -> list[SweepPoint]:
    """Length and accuracy as lambda grows, for CCR and its baseline."""
    return [
        _point(bench, name, value, coder=bench.coder(threshold=value), radius=size)
        for name, size in {"baseline": 0.0, "CCR": radius}.items()
        for value in thresholds
    ]


def radius_sweep(bench: CurveFits, radii: Sequence[float], *, threshold: float) -> list[SweepPoint]:
    """Length and accuracy as the ball grows, at one lambda."""
    return [_point(bench, "CCR", radius, coder=bench.coder(threshold=threshold), radius=radius) for radius in radii]


def _point(bench: CurveFits, name: str, value: float, **changes: Any) -> SweepPoint:
    model = bench.fit(f"{name}, {value:.3g}", **changes)
    last = model.history_[-1]
    length = explanation_length(model.transform(bench.test.X))
    return SweepPoint(name, float(value), last.validation_accuracy, length, last.mean_deviation)
