"""Grids of settings, each fitted and measured alike; every choice among them is made on validation data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ccr import kernels
from ccr.classifier import ConceptClassifier
from ccr.concepts import Concepts
from ccr.errors import CCRError, WriteError
from ccr.labels import Part, hold_out, store_parts
from ccr.metrics import Evaluation, finite
from ccr.utils.processes import Pool, Tell, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, plain_options
from ccr_lab.experiments.settings import AXES, Setting

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
    tell: Tell = no_progress,
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
    outcomes, failures, total = [], [], len(settings) * len(seeds)
    same = _Same(concepts, parts, dict(options or {}), cache or RunCache(None), made_of)
    asked = [(setting, seed) for setting in settings for seed in seeds]
    ready = {} if pool is None else _elsewhere(pool, same, asked, tell)
    fit = partial(_run, same, ready)
    for number, setting in enumerate(settings):
        first = number * len(seeds)
        try:
            runs = [fit(setting, seed, partial(tell, first + turn, total)) for turn, seed in enumerate(seeds)]
        except WriteError:
            raise  # the cache's fault, not the setting's
        except CCRError as error:
            failures.append(SettingFailure(setting, str(error)))
        else:
            outcomes.append(Outcome(setting, tuple(runs)))
    tell(total, total, "done")
    return Sweep(tuple(outcomes), tuple(failures), {name: len(part.y) for name, part in parts.items()})


class _Same(NamedTuple):
    """Data and options that all fits of a sweep share."""

    concepts: Concepts
    parts: Mapping[str, Part]
    options: Mapping[str, Any]
    cache: RunCache
    made_of: Mapping[str, str]

    def stored(self, setting: Setting, seed: int) -> SettingRun | None:
        """The run of a setting and a seed, if the cache has it."""
        found = self.cache.get(self.key(setting, seed))
        return (
            SettingRun(**found)
            if found is not None and set(found) == {item.name for item in fields(SettingRun)}
            else None
        )

    def key(self, setting: Setting, seed: int) -> dict[str, Any]:
        options = plain_options(self.options)
        return {"kind": "sweep", **self.made_of, "setting": asdict(setting), "options": options, "seed": seed}

    def fresh(self, setting: Setting, seed: int, announce: Callable[[str], None]) -> SettingRun:
        """The run, fitted here."""
        model = ConceptClassifier(self.concepts, **{**self.options, **setting.parameters(), "random_state": seed})
        return _measured(model, self.parts, seed, announce)


def _run(
    same: _Same,
    ready: Mapping[tuple[Setting, int], SettingRun | str],
    setting: Setting,
    seed: int,
    announce: Callable[[str], None],
) -> SettingRun:
    """The run of a setting and a seed: made elsewhere, out of the cache, or fitted now."""
    announce(setting.name)
    known = ready.get((setting, seed)) or same.stored(setting, seed)
    if isinstance(known, str):
        raise CCRError(known)
    if known is not None:
        return known
    run = same.fresh(setting, seed, lambda what: announce(f"{setting.name}: {what}"))
    same.cache.put(same.key(setting, seed), asdict(run))
    return run


def _elsewhere(
    pool: Pool, same: _Same, asked: Sequence[tuple[Setting, int]], tell: Tell
) -> dict[tuple[Setting, int], SettingRun | str]:
    """Runs that the cache does not have, fitted by a pool, or why they were refused."""
    missing = [(setting, seed) for setting, seed in asked if same.stored(setting, seed) is None]
    done = len(asked) - len(missing)
    ready: dict[tuple[Setting, int], SettingRun | str] = {}
    tell(done, len(asked), "fitting on the cluster")
    for answer in pool.map(_fit_there, same._replace(cache=RunCache(None)), missing):
        setting, seed = missing[answer.number]
        if answer.reason is not None:
            ready[setting, seed] = answer.reason
        else:
            same.cache.put(same.key(setting, seed), asdict(answer.result))
            ready[setting, seed] = answer.result
        done += 1
        tell(done, len(asked), setting.name)
    return ready


def _fit_there(same: _Same, item: tuple[Setting, int]) -> SettingRun:
    return same.fresh(*item, lambda what: None)


def _measured(
    model: ConceptClassifier, parts: Mapping[str, Part], seed: int, announce: Callable[[str], None]
) -> SettingRun:
    train, val, test = (parts[name] for name in ("train", "validation", "test"))
    kernels.warm_up_before_timing("training", "coding")
    start = time.perf_counter()
    model.fit(
        train.X,
        train.y,
        validation=(val.X, val.y),
        callback=lambda epoch, epochs: announce(f"epoch {epoch.epoch} of {epochs}"),
    )
    seconds = time.perf_counter() - start
    validation, tested = model.evaluate(val.X, val.y), model.evaluate(test.X, test.y)
    return SettingRun(
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
