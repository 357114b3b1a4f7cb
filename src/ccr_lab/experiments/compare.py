"""Honest comparison: every method on the same data, concepts and length, choices made on validation data.

A `MethodRun` is one method fitted once and measured on the test images; a `MethodComparison` has all runs and
what can be said about them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain.terms import PlainResult
from ccr.metrics import Interval, paired_bootstrap
from ccr.utils.processes import OnProgress, Pool, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, run_all
from ccr_lab.experiments.methods import NAMED, SHUFFLED, STAND_INS, WITHOUT, Method
from ccr_lab.experiments.runs import KEPT, MethodMeasures, MethodRun, run_method
from ccr_lab.experiments.task import ComparisonTask

#: Part of every key: raised when a method or a measure changes, so that older results are not taken for new ones.
REVISION = 5


@dataclass(frozen=True, kw_only=True)
class MethodRow(MethodMeasures):
    """One method over all seeds, its measurements means over them. `apart` is the interval of its accuracy minus the
    reference's, on the same images."""

    title: str
    group: str
    seeds: int
    worst: float
    best: float
    interval: Interval
    difference: float
    apart: Interval


@dataclass(frozen=True)
class MeaningGap(PlainResult):
    """The worth of names: accuracy of CCR minus that of a control whose concepts mean nothing, with its paired
    interval."""

    control: str
    title: str
    gap: float
    interval: Interval


@dataclass(frozen=True)
class KnowledgeGain(PlainResult):
    """The worth of a table of knowledge to a method: its accuracy minus that without the table, and that with a
    shuffled table minus that without; each with its paired interval. None: that control was not run."""

    method: str
    title: str
    gain: float
    interval: Interval
    shuffled: float | None
    shuffled_interval: Interval | None

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "control": "shuffled table"}


@dataclass(frozen=True)
class MethodFailure(PlainResult):
    """A method that could not be run, and why."""

    method: str
    seed: int
    reason: str


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """All runs of all methods, on one task; `reference` names the method that differences are taken from, `settings`
    are those of CCR in words."""

    length: float
    settings: str
    images: int
    reference: str
    rows: tuple[MethodRow, ...]
    runs: tuple[MethodRun, ...]
    failures: tuple[MethodFailure, ...]

    def row(self, method: str) -> MethodRow | None:
        return next((row for row in self.rows if row.method == method), None)

    @property
    def meaning_gaps(self) -> tuple[MeaningGap, ...]:
        """Gaps of CCR over each of its controls that was run; none without CCR. Stand-ins for the concepts have no
        table of knowledge, so that CCR without one is what they are compared with, where it was run."""
        if self.reference != NAMED:
            return ()
        controls = [row for row in self.rows if row.method in STAND_INS]
        own = NAMED if self.row(NAMED + WITHOUT) is None else NAMED + WITHOUT
        scores = np.array([self.right(name) for name in (own, *(row.method for row in controls))])
        apart, means = paired_bootstrap(scores)[1], scores.mean(axis=1)
        return tuple(
            MeaningGap(row.method, row.title, float(means[0] - mean), interval.turned())
            for row, mean, interval in zip(controls, means[1:], apart[1:], strict=True)
        )

    @property
    def knowledge_gains(self) -> tuple[KnowledgeGain, ...]:
        """Gains of each method that was run with the table and without it."""
        return tuple(self._knowledge_gain(row) for row in self.rows if self.row(row.method + WITHOUT) is not None)

    def _knowledge_gain(self, row: MethodRow) -> KnowledgeGain:
        names = [row.method + WITHOUT, row.method]
        names += [row.method + SHUFFLED] if self.row(row.method + SHUFFLED) is not None else []
        scores = np.array([self.right(name) for name in names])
        apart, means = paired_bootstrap(scores)[1], scores.mean(axis=1)
        shuffled = (float(means[2] - means[0]), apart[2]) if len(names) > 2 else (None, None)
        return KnowledgeGain(row.method, row.title, float(means[1] - means[0]), apart[1], *shuffled)

    def right(self, method: str) -> np.ndarray:
        """Share of a method's runs in which each test image was right (m,)."""
        return np.asarray(np.mean([run.correct() for run in self.runs if run.method == method], axis=0))

    @property
    def twins(self) -> dict[str, str]:
        """Methods whose runs are those of a method before them, by name: every seed answers every image alike, with as
        many concepts in play and as true ones."""
        first: dict[Any, str] = {}
        same = {}
        for row in self.rows:
            runs = [run for run in self.runs if run.method == row.method]
            seen = tuple(sorted((run.seed, run.right, run.in_play, run.truth) for run in runs))
            if first.setdefault(seen, row.method) != row.method:
                same[row.method] = first[seen]
        return same

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "length": self.length,
            "settings": self.settings,
            "test_images": self.images,
            "reference": self.reference,
            "kept": list(KEPT),
            "methods": [{**row.to_dict(), "same_as": self.twins.get(row.method)} for row in self.rows],
            "meaning_gaps": [gap.to_dict() for gap in self.meaning_gaps],
            "knowledge_gains": [gain.to_dict() for gain in self.knowledge_gains],
            "runs": [run.to_dict() for run in self.runs],
            "failures": [failure.to_dict() for failure in self.failures],
        }


def run_comparison(
    task: ComparisonTask,
    methods: Sequence[Method],
    *,
    seeds: Sequence[int] = range(5),
    cache: RunCache | None = None,
    tell: OnProgress = no_progress,
    pool: Pool | None = None,
) -> MethodComparison:
    """Run every method with every seed, and say how far each is from the first.

    Parameters
    ----------
    methods : sequence of Method
        At least one; differences are taken from the first that could be run.
    seeds : sequence of int
        At least one; each method is fitted once per seed.
    cache : RunCache or None
        Where finished runs are found and kept. A method that fails is listed with its reason and not kept.
    pool : Pool, optional
        Where runs are made, several at a time. None: here, one after the other.
    """
    if not methods or not len(seeds):
        raise CCRError(f"a comparison needs a method and a seed, got {len(methods)} methods and {len(seeds)} seeds")
    shared, asked = shared_key(task), [(method, int(seed)) for method in methods for seed in seeds]
    values = run_all(
        _run,
        task,
        asked,
        names=[f"{method.title}, seed {seed}" for method, seed in asked],
        key=lambda item: {**shared, "method": item[0].name, "seed": item[1]},
        cache=cache or RunCache(None),
        tell=tell,
        pool=pool,
        catch=Exception,  # one method must not lose the others' results
    )
    found = list(zip(asked, values, strict=True))
    runs = [MethodRun.from_dict(value) for _, value in found if not isinstance(value, str)]
    failures = [MethodFailure(method.name, seed, why) for (method, seed), why in found if isinstance(why, str)]
    return summarise(runs, failures, methods, task)


def _run(task: ComparisonTask, item: tuple[Method, int]) -> dict[str, Any]:
    method, seed = item
    return run_method(method, task, seed).to_dict()


def summarise(
    runs: Sequence[MethodRun], failures: Sequence[MethodFailure], methods: Sequence[Method], task: ComparisonTask
) -> MethodComparison:
    """Rows of the methods that finished a run, differences to the first of them (CCR, if it is there)."""
    finished = [method for method in methods if any(run.method == method.name for run in runs)]
    if not finished:
        reasons = "; ".join(dict.fromkeys(f"{failure.method}: {failure.reason}" for failure in failures))
        raise CCRError(f"no method could be run: {reasons}")
    by_method = {method.name: [run for run in runs if run.method == method.name] for method in finished}
    scores = np.array([np.mean([run.correct() for run in chosen], axis=0) for chosen in by_method.values()])
    intervals, apart = paired_bootstrap(scores)
    means = scores.mean(axis=1)
    rows = tuple(
        _row(method, by_method[method.name], intervals[number], float(means[number] - means[0]), apart[number])
        for number, method in enumerate(finished)
    )
    images, reference = scores.shape[1], finished[0].name
    return MethodComparison(task.length, task.described, images, reference, rows, tuple(runs), tuple(failures))


def _row(
    method: Method, runs: Sequence[MethodRun], interval: Interval, difference: float, apart: Interval
) -> MethodRow:
    accuracies = [run.accuracy for run in runs]
    averaged = {item.name for item in fields(MethodMeasures)} - {"method", "accuracy", "accuracy_at", "nec"}
    return MethodRow(
        method=method.name,
        title=method.title,
        group=method.group,
        seeds=len(runs),
        accuracy=float(np.mean(accuracies)),
        worst=min(accuracies),
        best=max(accuracies),
        interval=interval,
        difference=difference,
        apart=apart,
        accuracy_at=_mean_curve([run.accuracy_at for run in runs]),
        nec=_mean_curve([run.nec for run in runs]),
        **{name: _mean([getattr(run, name) for run in runs]) for name in averaged},  # type: ignore[arg-type]
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _mean_curve(curves: Sequence[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    known = [curve for curve in curves if curve is not None]
    return tuple(np.mean(known, axis=0).tolist()) if known else None


def shared_key(task: ComparisonTask) -> Mapping[str, Any]:
    """The part of a cache key that all runs of a task share: data, concepts and options."""
    texts = {name: getattr(task, name) for name in ("class_texts", "random_words")}
    return {
        "revision": REVISION,
        "concepts": fingerprint_concepts(task.concepts),
        "train": fingerprint_data(task.train.X, task.train.y),
        "test": fingerprint_data(task.test.X, task.test.y),
        "validation": None if task.validation is None else fingerprint_data(task.validation.X, task.validation.y),
        "texts": {name: None if listed is None else fingerprint_concepts(listed) for name, listed in texts.items()},
        "options": [task.length, task.settings, task.center, task.max_iter],
        **({} if task.knowledge is None else {"knowledge": [task.knowledge.digest, task.claims, task.min_probability]}),
    }
