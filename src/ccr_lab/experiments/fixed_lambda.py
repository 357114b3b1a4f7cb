"""The paper's two sweeps around a grid of settings: over lambda, and over the radius at fixed lambda (Measures,
docs/method.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.labels import Part
from ccr.refine.region import PAPER_RADIUS, chosen_fidelity
from ccr.utils.progress import Tell, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, plain_options
from ccr_lab.experiments.curves import LAMBDAS, RADII, SweepPoint, Workbench, radius_sweep, threshold_sweep
from ccr_lab.experiments.settings import Setting


@dataclass(frozen=True)
class FixedLambda:
    """`thresholds`: CCR of this `radius` and its baseline as lambda grows; `radii`: CCR at lambda `threshold`."""

    threshold: float
    radius: float
    thresholds: tuple[SweepPoint, ...]
    radii: tuple[SweepPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return asdict(self)


def fixed_lambda(
    concepts: Concepts,
    *,
    train: Part,
    test: Part,
    settings: Sequence[Setting],
    like: Setting,
    options: Mapping[str, Any],
    cache: RunCache | None = None,
    tell: Tell = no_progress,
) -> FixedLambda:
    """Both sweeps; finished ones are taken from the cache.

    Lambda is the grid's median threshold, or the one that gives its median length. The radius of the sweep over lambda
    is that of `like`, or if that is 0 the grid's largest. A sweep takes the grid's own values where it has at least
    three. All points are test accuracies at the last epoch.

    Parameters
    ----------
    settings : the grid, at least one setting.
    like : the setting whose dispersion, centring, signs and weights both sweeps have; one with a radius.
    options : further parameters of the classifier, plain values.
    """
    if chosen_fidelity(like.radius, like.fidelity) is not None:
        raise CCRError("the paper's sweeps are over the radius of a ball, and this setting bounds fidelity instead")
    plan = _plan(settings, like, options)
    data = {name: fingerprint_data(part.X, part.y) for name, part in {"train": train, "test": test}.items()}
    key = {"kind": "fixed lambda", **data, "concepts": fingerprint_concepts(concepts), **plan}
    given = plan["thresholds"]
    lambdas = len(given) if len(given) > 2 else len(LAMBDAS)
    fits = int(not given) + 2 * lambdas + len(plan["radii"])
    parameters = {"random_state": 0, **options, **like.parameters()}
    bench = Workbench(concepts, train, test, parameters, tell, fits)
    stored = (cache or RunCache(None)).remember(key, lambda: _fitted(bench, plan).to_dict())
    points = {name: tuple(SweepPoint(**point) for point in stored[name]) for name in ("thresholds", "radii")}
    return FixedLambda(stored["threshold"], stored["radius"], **points)


def _plan(settings: Sequence[Setting], like: Setting, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the sweeps vary and hold, in plain types."""
    lengths, thresholds = (_values(settings, name) for name in ("length", "threshold"))
    radii = _values(settings, "radius")
    return {
        "length": None if thresholds else _median(lengths),
        "thresholds": thresholds,
        "radius": like.radius or max(radii, default=0.0) or PAPER_RADIUS,
        "radii": sorted({0.0, *radii}) if len(radii) > 2 else list(RADII),
        "dispersion": like.dispersion,
        "center": like.center,
        "sign": like.sign,
        "weights": like.weights,
        "options": plain_options(options),
    }


def _fitted(bench: Workbench, plan: Mapping[str, Any]) -> FixedLambda:
    given = plan["thresholds"]
    threshold = _median(given) if given else bench.threshold(plan["length"])
    lambdas = given if len(given) > 2 else (threshold * np.array(LAMBDAS)).tolist()
    over_lambda = threshold_sweep(bench, lambdas, radius=plan["radius"])
    over_radius = radius_sweep(bench, plan["radii"], threshold=threshold)
    return FixedLambda(threshold, plan["radius"], tuple(over_lambda), tuple(over_radius))


def _values(settings: Sequence[Setting], name: str) -> list[float]:
    return sorted({getattr(setting, name) for setting in settings} - {None})


def _median(values: Sequence[float]) -> float:
    """The middle one, the smaller of two."""
    return values[(len(values) - 1) // 2]
