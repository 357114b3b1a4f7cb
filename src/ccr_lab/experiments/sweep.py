"""Grids of settings, each fitted and measured alike; every choice among them is made on validation data."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from ccr import kernels
from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold, Sign
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.labels import Part, hold_out, store_parts
from ccr.metrics import Evaluation, finite
from ccr.space import Angular, Dispersion, parse_dispersion
from ccr.utils.processes import OnProgress, Pool, no_progress
from ccr.utils.texts import did_you_mean
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, plain_options, run_all

#: Settings that an axis may vary, with an example of each.
AXES = {
    "length": "5,10,20",
    "threshold": "0.1,0.15",
    "fidelity": "0.875,0.955,1",
    "radius": "0,0.05,0.1,0.2",
    "weights": "1,3,5,all",
    "dispersion": "none,angular,symmetric:0.9",
    "center": "none,data",
    "sign": "both,positive",
}
#: Axes whose values are words, and what those mean.
WORDS = {
    "center": (("none", "data"), "data measures images and concepts from their means"),
    "sign": (("both", "positive"), "positive codes say only what an image shows"),
}
BOUNDS = {"length": (1.0, math.inf), "threshold": (0.0, math.inf), "fidelity": (0.0, 1.0), "radius": (0.0, 2.0)}
#: Axes that say the same in two ways: a setting has one of them.
EITHER = ("fidelity", "radius")


class Axis(NamedTuple):
    """One direction of a grid: the name of a setting and the values it takes."""

    name: str
    values: tuple[float | int | str, ...]


@dataclass(frozen=True)
class Setting:
    """One point of a grid; None: as the classifier does by itself.

    Parameters
    ----------
    length, threshold : float or None
        Concepts per image, at least 1, or the paper's lambda, at least 0: one of them, the other is None.
    fidelity, radius : float or None
        Least correlation of a concept with its own text, in [0, 1], or how far it may move, in [0, 2].
    weights : int, "all" or None
        Weights per class, at least 1.
    dispersion : str or None
        none, angular or symmetric, optionally with a number (`symmetric:0.9`).
    center : str
        none or data.
    sign : str or None
        both or positive.
    """

    length: float | None = None
    threshold: float | None = None
    fidelity: float | None = None
    radius: float | None = None
    weights: int | Literal["all"] | None = None
    dispersion: str | None = None
    center: str = "data"
    sign: Sign | None = None

    @property
    def name(self) -> str:
        return self.described(AXES)

    def described(self, names: Iterable[str]) -> str:
        """These parts of the setting in words."""
        return ", ".join(f"{name} {self.value(name)}" for name in names if getattr(self, name) is not None)

    def value(self, name: str) -> str:
        """One part of the setting in words, empty if it is the classifier's own."""
        value = getattr(self, name)
        return "" if value is None else _text(value)

    def parameters(self) -> dict[str, Any]:
        """The setting as parameters of a `ConceptClassifier`."""
        given: dict[str, Any] = {name: getattr(self, name) for name in EITHER if getattr(self, name) is not None}
        if self.weights is not None:
            given["weights_per_class"] = None if self.weights == "all" else self.weights
        if self.dispersion is not None:
            given["dispersion"] = parse_dispersion(self.dispersion)
        signed = {} if self.sign is None else {"sign": self.sign}
        return {
            "coder": HardThreshold(threshold=self.threshold, length=self.length, **signed),
            "center": "data" if self.center == "data" else None,
            **given,
        }

    def arguments(self) -> list[str]:
        """The setting as arguments of `ccr fit`."""
        names = [name for name in AXES if name != "center" and getattr(self, name) is not None]
        words = [word for name in names for word in (f"--{name}", self.value(name))]
        return [*words, "--center" if self.center == "data" else "--no-center"]


def parse_axis(text: str) -> Axis:
    """`length=5,10,20` as an axis; its values are checked as far as that needs no data."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or name not in AXES:
        raise CCRError(
            f"an axis is NAME=VALUE,... with NAME one of {', '.join(AXES)}, got {text!r}{did_you_mean(name, AXES)}: "
            "such as radius=0,0.1"
        )
    words = [word.strip() for word in listed.split(",")]
    if "" in words:
        raise CCRError(f"every value of an axis must be given, got {text!r}: such as {name}={AXES[name]}")
    values = tuple(_checked_value(name, word) for word in words)
    if len(set(values)) < len(values):
        raise CCRError(f"every value of an axis is given once, got {text!r}: drop the repeated ones")
    return Axis(name, values)


def grid(axes: Sequence[Axis], *, length: float = 12.0) -> list[Setting]:
    """Every combination of the axes' values; where none says how many concepts an image has, `length`.

    Fidelity and radius are alternatives: with both, every setting has one of their values.
    """
    names = [axis.name for axis in axes]
    if not names:
        raise CCRError(f"a grid needs at least one axis, got none: such as length={AXES['length']}")
    for name in names:
        if names.count(name) > 1:
            raise CCRError(
                f"an axis is given once, got {name} {names.count(name)} times: put all its values in one list"
            )
    if {"length", "threshold"} <= set(names):
        raise CCRError("an axis may be length or threshold, got both: a length is turned into a threshold; drop one")
    base = Setting(length=None if "threshold" in names else float(length))
    choices: dict[str, list[dict[str, Any]]] = {}
    for axis in axes:
        kind = "bound" if axis.name in EITHER else axis.name
        choices.setdefault(kind, []).extend({axis.name: value} for value in axis.values)
    return [
        replace(base, **{name: value for part in chosen for name, value in part.items()})
        for chosen in product(*choices.values())
    ]


def _checked_value(name: str, word: str) -> float | int | str:
    if name in WORDS:
        allowed, meaning = WORDS[name]
        if word not in allowed:
            raise CCRError(f"{name} is {' or '.join(allowed)}, got {word!r}: {meaning}")
        return word
    if name == "dispersion":
        return _dispersion_text(parse_dispersion(word))
    if name == "weights":
        return _checked_weights(word)
    low, high = BOUNDS[name]
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not (low <= value <= high and math.isfinite(value)):
        above = f">= {low:g}" if math.isinf(high) else f"in [{low:g}, {high:g}]"
        raise CCRError(f"{name} must be a number {above}, got {word!r}: such as {name}={AXES[name]}")
    return value


def _checked_weights(word: str) -> int | str:
    if word == "all" or (word.isdecimal() and int(word) >= 1):
        return word if word == "all" else int(word)
    raise CCRError(f"weights is a number of weights per class >= 1, or all, got {word!r}: such as weights=1,3,5,all")


def _dispersion_text(dispersion: Dispersion | None) -> str:
    """One text for one dispersion, so that equal ones are seen to be equal."""
    if dispersion is None:
        return "none"
    if isinstance(dispersion, Angular):
        return "angular" if dispersion.factor is None else f"angular:{_text(dispersion.factor)}"
    return "symmetric" if dispersion.strength == 1 else f"symmetric:{_text(dispersion.strength)}"


def _text(value: float | str | None) -> str:
    return f"{value:.12g}" if isinstance(value, float | int) else str(value)


#: A length on validation images may pass the asked one by this much: it was calibrated on other images.
LENGTH_TOLERANCE = 0.02
RULE = (
    "the best validation accuracy of the settings that are short enough; of equals the highest fidelity, then the "
    "shortest"
)


@dataclass(frozen=True)
class SettingRun:
    """One fit of a setting, measured on the validation and on the test images; accuracies and retention in [0, 1].

    `fidelity` and `min_fidelity` are the mean and the least of the concepts, None where all images score alike.
    """

    seed: int
    validation_accuracy: float
    validation_length: float
    validation_in_play: float
    validation_fidelity: float | None
    validation_min_fidelity: float | None
    test_accuracy: float
    test_length: float
    test_in_play: float
    test_fidelity: float | None
    test_min_fidelity: float | None
    weights_per_class: float
    mean_deviation: float
    max_deviation: float
    retention: float
    fit_seconds: float
    epochs: int


MEASURES = tuple(item.name for item in fields(SettingRun) if item.name not in ("seed", "epochs"))


@dataclass(frozen=True)
class Outcome:
    """A finished setting: one run per seed."""

    setting: Setting
    runs: tuple[SettingRun, ...]

    def known(self, measure: str) -> list[float]:
        """A measure in the runs that have it."""
        values = [getattr(run, measure) for run in self.runs]
        return [float(value) for value in values if value is not None]

    def mean(self, measure: str) -> float:
        """Over the seeds; NaN where no run has the measure."""
        known = self.known(measure)
        return float(np.mean(known)) if known else math.nan

    def summary(self) -> dict[str, dict[str, float | None]]:
        """Mean, min and max over the seeds, for every measure; None where no run has it."""
        columns = {name: self.known(name) for name in MEASURES}
        return {
            name: {"mean": finite(self.mean(name)), "min": min(known, default=None), "max": max(known, default=None)}
            for name, known in columns.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {"setting": asdict(self.setting), **self.summary(), "runs": [asdict(run) for run in self.runs]}


class SettingFailure(NamedTuple):
    """A setting that could not be fitted, and why."""

    setting: Setting
    reason: str


@dataclass(frozen=True)
class Sweep:
    """Results of a grid: its outcomes in the grid's order, what failed, and how many images each part has."""

    outcomes: tuple[Outcome, ...]
    failures: tuple[SettingFailure, ...]
    images: Mapping[str, int]

    def ranked(self) -> list[Outcome]:
        """Best validation accuracy first; of equals, the shorter one."""
        return sorted(self.outcomes, key=lambda o: (-o.mean("validation_accuracy"), o.mean("validation_length")))

    def front(self) -> list[Outcome]:
        """Outcomes that no other beats in validation accuracy and length both, shortest first."""
        best: list[Outcome] = []
        for outcome in sorted(self.outcomes, key=_length_then_accuracy):
            length, missed = _length_then_accuracy(outcome)
            last = _length_then_accuracy(best[-1]) if best else (0.0, math.inf)
            if missed < last[1] or (length, missed) == last:
                best.append(outcome)
        return best

    def short_enough(self, at_most: float | None = None) -> list[Outcome]:
        """Outcomes of at most `at_most` concepts per validation image, with a tolerance of 2 %; None: all."""
        longest = math.inf if at_most is None else at_most * (1 + LENGTH_TOLERANCE)
        return [outcome for outcome in self.outcomes if outcome.mean("validation_length") <= longest]

    def recommended(self, at_most: float | None = None) -> Outcome | None:
        """The setting to use for `at_most` concepts per image, by `RULE`; None if none is short enough."""
        return min(self.short_enough(at_most), key=_preference, default=None)

    def varied(self) -> list[str]:
        """Names of the settings that differ somewhere in the grid."""
        settings = [outcome.setting for outcome in self.outcomes] + [failure.setting for failure in self.failures]
        return [name for name in AXES if len({getattr(setting, name) for setting in settings}) > 1]

    def rows(self) -> list[dict[str, Any]]:
        """A flat row per setting, best first and failures last, for a table."""
        front, rows = self.front(), []
        for outcome in self.ranked():
            row: dict[str, Any] = {**asdict(outcome.setting), "seeds": len(outcome.runs), "front": outcome in front}
            for name, summary in outcome.summary().items():
                row |= {name: summary["mean"], f"{name}_min": summary["min"], f"{name}_max": summary["max"]}
            rows.append({**row, "error": None})
        return rows + [{**asdict(failure.setting), "error": failure.reason} for failure in self.failures]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        front = self.front()
        return {
            "images": dict(self.images),
            "results": [{**outcome.to_dict(), "front": outcome in front} for outcome in self.ranked()],
            "failed": [{"setting": asdict(failure.setting), "error": failure.reason} for failure in self.failures],
        }


def with_validation(store: Any, purpose: str) -> dict[str, Part]:
    """The splits train, val and test of a store, in memory if small; without a val, a part of train is held out."""
    parts = {name: part.resident() for name, part in store_parts(store, purpose).items()}
    if "val" not in parts:
        parts["train"], parts["val"] = hold_out(parts["train"])
    return parts


def run_sweep(
    concepts: Concepts,
    *,
    train: Part,
    val: Part,
    test: Part,
    settings: Sequence[Setting],
    options: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0,),
    cache: RunCache | None = None,
    tell: OnProgress = no_progress,
    pool: Pool | None = None,
) -> Sweep:
    """Fit every setting for every seed, the epoch chosen on `val`, and measure it on `val` and `test`.

    A setting that is refused is listed with its reason. Runs found in `cache` are not fitted again. `options` are
    further parameters of the classifier, plain values, the same for all. With a `pool`, fits run there, several at a
    time.
    """
    parts = {"train": train, "validation": val, "test": test}
    made_of = {name: fingerprint_data(part.X, part.y) for name, part in parts.items()}
    made_of["concepts"] = fingerprint_concepts(concepts)
    shared = _SweepData(concepts, parts, dict(options or {}))
    same = {"kind": "sweep", **made_of, "options": plain_options(shared.options)}
    values = run_all(
        _measured,
        shared,
        [(setting, seed) for setting in settings for seed in seeds],
        names=[setting.name for setting in settings for _ in seeds],
        key=lambda item: {**same, "setting": asdict(item[0]), "seed": item[1]},
        cache=cache or RunCache(None),
        tell=tell,
        pool=pool,
    )
    outcomes, failures = [], []
    for number, setting in enumerate(settings):
        found = values[number * len(seeds) : (number + 1) * len(seeds)]
        refused = next((value for value in found if isinstance(value, str)), None)
        if refused is None:
            outcomes.append(Outcome(setting, tuple(SettingRun(**value) for value in found)))  # type: ignore[arg-type]
        else:
            failures.append(SettingFailure(setting, refused))
    tell(len(values), len(values), "done")
    return Sweep(tuple(outcomes), tuple(failures), {name: len(part.y) for name, part in parts.items()})


class _SweepData(NamedTuple):
    """Data and options that all fits of a sweep share."""

    concepts: Concepts
    parts: Mapping[str, Part]
    options: Mapping[str, Any]


def _measured(same: _SweepData, item: tuple[Setting, int]) -> dict[str, Any]:
    """The `SettingRun` of a setting and a seed, as plain types."""
    setting, seed = item
    train, val, test = (same.parts[name] for name in ("train", "validation", "test"))
    model = ConceptClassifier(same.concepts, **{**same.options, **setting.parameters(), "random_state": seed})
    kernels.warm_up_before_timing("training", "coding")
    start = time.perf_counter()
    model.fit(train.X, train.y, validation=(val.X, val.y))
    seconds = time.perf_counter() - start
    validation, tested = model.evaluate(val.X, val.y), model.evaluate(test.X, test.y)
    run = SettingRun(
        seed=seed,
        **_on("validation", validation),
        **_on("test", tested),
        weights_per_class=tested.weights_per_class,
        mean_deviation=tested.deviation.mean,
        max_deviation=tested.deviation.max,
        retention=tested.retention,
        fit_seconds=seconds,
        epochs=len(model.history_),
    )
    return asdict(run)


def _on(split: str, found: Evaluation) -> dict[str, Any]:
    """Measures that depend on the images, as fields of a `SettingRun`."""
    return {
        f"{split}_accuracy": found.accuracy,
        f"{split}_length": found.length,
        f"{split}_in_play": found.in_play,
        f"{split}_fidelity": finite(found.fidelity.mean),
        f"{split}_min_fidelity": finite(found.fidelity.min),
    }


def _length_then_accuracy(outcome: Outcome) -> tuple[float, float]:
    return outcome.mean("validation_length"), -outcome.mean("validation_accuracy")


def _preference(outcome: Outcome) -> tuple[float, float, float]:
    fidelity = finite(outcome.mean("validation_fidelity")) or 0.0
    return -outcome.mean("validation_accuracy"), -fidelity, outcome.mean("validation_length")
