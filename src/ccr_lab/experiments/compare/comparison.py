"""Every method on the same task, several seeds, and what can be said about them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.metrics import Interval, paired_bootstrap
from ccr.utils.progress import Pool, Tell, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data
from ccr_lab.experiments.compare.methods import NAMED, STAND_INS, Method, methods_named
from ccr_lab.experiments.compare.run import KEPT, Run, run_method
from ccr_lab.experiments.compare.task import Task

#: Part of every key: raised when a method or a measure changes, so that older results are not taken for new ones.
REVISION = 4


@dataclass(frozen=True)
class Row:
    """One method over all seeds. `apart` is the interval of its accuracy minus the reference's, on the same images.

    Other fields are means over seeds, None where they do not apply.
    """

    method: str
    title: str
    group: str
    seeds: int
    accuracy: float
    worst: float
    best: float
    interval: Interval
    difference: float
    apart: Interval
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

    def to_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class MeaningGap:
    """What names are worth: accuracy of CCR minus that of a control whose concepts mean nothing, with its paired
    interval."""

    control: str
    title: str
    gap: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "interval": list(self.interval)}


@dataclass(frozen=True)
class Failure:
    """A method that could not be run, and why."""

    method: str
    seed: int
    reason: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """All runs of all methods, on one task; `reference` names the method that differences are taken from, `settings`
    are those of CCR in words."""

    length: float
    settings: str
    images: int
    reference: str
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]

    def row(self, method: str) -> Row | None:
        return next((row for row in self.rows if row.method == method), None)

    @property
    def meaning_gaps(self) -> tuple[MeaningGap, ...]:
        """Of CCR over each of its controls that was run; none without CCR."""
        if self.reference != NAMED:
            return ()
        controls = [row for row in self.rows if row.method in STAND_INS]
        return tuple(MeaningGap(row.method, row.title, 0.0 - row.difference, row.apart.turned()) for row in controls)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "length": self.length,
            "settings": self.settings,
            "test_images": self.images,
            "reference": self.reference,
            "kept": list(KEPT),
            "methods": [row.to_dict() for row in self.rows],
            "meaning_gaps": [gap.to_dict() for gap in self.meaning_gaps],
            "runs": [run.to_dict() for run in self.runs],
            "failures": [vars(failure).copy() for failure in self.failures],
        }


def run_comparison(
    task: Task,
    methods: Sequence[Method],
    *,
    seeds: Sequence[int] = range(5),
    cache: RunCache | None = None,
    tell: Tell = no_progress,
    pool: Pool | None = None,
) -> Comparison:
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
    cache = cache or RunCache(None)
    shared, total = shared_key(task), len(methods) * len(seeds)
    runs: list[Run] = []
    failures: list[Failure] = []
    asked = [(method, int(seed)) for method in methods for seed in seeds]
    ready = {} if pool is None else _elsewhere(pool, task, cache, shared, asked, tell)
    for number, (method, seed) in enumerate(asked):
        tell(number, total, f"{method.title}, seed {seed}")
        key = {**shared, "method": method.name, "seed": seed}
        stored = cache.get(key)
        made = ready.get((method.name, seed))
        if isinstance(made, Failure):
            failures.append(made)
            continue
        if made is not None or stored is not None:
            runs.append(made if made is not None else Run.from_dict(stored or {}))
            continue
        try:
            run = run_method(method, task, seed)
        except Exception as error:  # one method must not lose the others' results
            failures.append(Failure(method.name, seed, _reason(error)))
            continue
        runs.append(run)
        cache.put(key, run.to_dict())
    return summarise(runs, failures, methods, task)


def _elsewhere(
    pool: Pool,
    task: Task,
    cache: RunCache,
    shared: Mapping[str, Any],
    asked: Sequence[tuple[Method, int]],
    tell: Tell,
) -> dict[tuple[str, int], Run | Failure]:
    """What the cache has not, run by a pool."""
    keys = [{**shared, "method": method.name, "seed": seed} for method, seed in asked]
    missing = [number for number, key in enumerate(keys) if cache.get(key) is None]
    ready: dict[tuple[str, int], Run | Failure] = {}
    tell(len(asked) - len(missing), len(asked), "fitting on the cluster")
    items = [(asked[number][0].name, asked[number][1]) for number in missing]
    for count, answer in enumerate(pool.map(_run_there, task, items), start=1):
        name, seed = items[answer.number]
        if answer.reason is not None:
            ready[name, seed] = Failure(name, seed, answer.reason)
        else:
            ready[name, seed] = answer.result
            cache.put(keys[missing[answer.number]], answer.result.to_dict())
        tell(len(asked) - len(missing) + count, len(asked), f"{name}, seed {seed}")
    return ready


def _run_there(task: Task, item: tuple[str, int]) -> Run:
    """A method by its name, which a task of a cluster can be sent."""
    name, seed = item
    return run_method(methods_named([name])[0], task, seed)


def summarise(runs: Sequence[Run], failures: Sequence[Failure], methods: Sequence[Method], task: Task) -> Comparison:
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
    return Comparison(task.length, task.described, images, reference, rows, tuple(runs), tuple(failures))


def _row(method: Method, runs: Sequence[Run], interval: Interval, difference: float, apart: Interval) -> Row:
    accuracies = [run.accuracy for run in runs]
    averaged = (
        "validation_accuracy", "length", "in_play", "weights_per_class", "fidelity", "min_fidelity", "sparsity",
        "deviation", "max_deviation", "retention", "fit_seconds", "fit_memory", "encode_seconds", "anec",
    )  # fmt: skip
    return Row(
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


def shared_key(task: Task) -> Mapping[str, Any]:
    """What decides every run apart from method and seed."""
    texts = {name: getattr(task, name) for name in ("class_texts", "random_words")}
    return {
        "revision": REVISION,
        "concepts": fingerprint_concepts(task.concepts),
        "train": fingerprint_data(task.train.X, task.train.y),
        "test": fingerprint_data(task.test.X, task.test.y),
        "validation": None if task.validation is None else fingerprint_data(task.validation.X, task.validation.y),
        "texts": {name: None if listed is None else fingerprint_concepts(listed) for name, listed in texts.items()},
        "options": [task.length, task.settings, task.center, task.max_iter],
        **({} if task.knowledge is None else {"knowledge": [task.knowledge.digest, task.claims]}),
    }


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CCRError) else f"{type(error).__name__}: {error}"
