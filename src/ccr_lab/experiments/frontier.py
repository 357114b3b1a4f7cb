"""Two frontiers: accuracy against fidelity, for concepts with and without meaning, at few weights per class; and
accuracy against concepts in play, beside the rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccr.classifier import ConceptClassifier
from ccr.controls import probe_accuracy, random_unit_concepts
from ccr.explain.terms import PlainResult
from ccr.metrics import finite
from ccr.refine.region import DEFAULT_FIDELITY
from ccr.utils.processes import OnProgress, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data, run_all
from ccr_lab.experiments.compare import run_comparison
from ccr_lab.experiments.methods import methods_named
from ccr_lab.experiments.task import ComparisonTask

REVISION = 2
#: Bounds of the grid; 1 is the baseline.
FIDELITIES = (0.8, 0.9, 0.96, 1.0)
#: Weights per class of the grid; None: all.
WEIGHTS: tuple[int | None, ...] = (1, 3, 5, None)
#: Methods beside CCR, and the lengths at which they are measured.
RIVALS, RIVAL_LENGTHS = ("ip-omp", "splice", "label-free"), (1.0, 3.0, 5.0, 12.0)
NAMED, WORDS, VECTORS = "named concepts", "random words", "random vectors"


@dataclass(frozen=True)
class FrontierPoint:
    """One fit, measured on the test images; `fidelity` was asked for, `mean_fidelity` and `least_fidelity` were
    seen, None where all images score alike."""

    kind: str
    fidelity: float
    weights: int | None
    accuracy: float
    mean_fidelity: float | None
    least_fidelity: float | None
    in_play: float
    length: float


@dataclass(frozen=True)
class RivalPoint:
    """A rival at one length, measured on the test images."""

    method: str
    title: str
    length: float
    accuracy: float
    in_play: float


@dataclass(frozen=True)
class Frontier(PlainResult):
    """Points of all methods. `shown` is the fidelity at which CCR stands beside the rivals, `probe` the accuracy of a
    linear probe, `failures` are kinds of concepts and rivals that could not be fitted, with the reason."""

    images: tuple[int, int]
    concepts: int
    shown: float
    points: tuple[FrontierPoint, ...]
    rivals: tuple[RivalPoint, ...]
    probe: float
    failures: Mapping[str, str]

    def line(self, kind: str, weights: int | None) -> list[FrontierPoint]:
        """Points of one kind and number of weights, by fidelity."""
        chosen = [point for point in self.points if (point.kind, point.weights) == (kind, weights)]
        return sorted(chosen, key=lambda point: point.fidelity)

    def by_weights(self, fidelity: float) -> list[FrontierPoint]:
        """Points of named concepts at one fidelity, by concepts in play."""
        chosen = [point for point in self.points if (point.kind, point.fidelity) == (NAMED, fidelity)]
        return sorted(chosen, key=lambda point: point.in_play)


@dataclass(frozen=True, eq=False)
class FrontierGrid:
    """The grid of settings to measure.

    Parameters
    ----------
    options : mapping
        Parameters of every `ConceptClassifier`, such as a `coder`; what is not given is as the classifier has it.
    fidelities, weights : bounds in [0, 1] and weights per class; None: all weights.
    rival_lengths : concepts per image of the rivals; more than there are concepts are left out.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    fidelities: Sequence[float] = FIDELITIES
    weights: Sequence[int | None] = WEIGHTS
    rival_lengths: Sequence[float] = RIVAL_LENGTHS

    @property
    def shown(self) -> float:
        """The classifier's own fidelity: of the options, or its default."""
        own = self.options.get("fidelity")
        return DEFAULT_FIDELITY if own is None else float(own)

    def settings(self) -> list[dict[str, Any]]:
        """Parameters of the grid's points, the baseline always among them."""
        bounds = sorted({*map(float, self.fidelities), self.shown, 1.0})
        return [{"fidelity": bound, "weights_per_class": count} for bound in bounds for count in self.weights]


def measure_frontier(
    task: ComparisonTask,
    grid: FrontierGrid | None = None,
    *,
    cache: RunCache | None = None,
    tell: OnProgress = no_progress,
) -> Frontier:
    """Fit all points of the grid, and the rivals; finished ones are taken from the cache.

    Nothing is chosen on test images. The `length` of the task is not used; without its `random_words` there is no line
    of them.
    """
    grid, cache = grid or FrontierGrid(), cache or RunCache(None)
    failures: dict[str, str] = {}
    parts = (task.train, task.test, task.validation)
    made_of = {"frontier": REVISION, "data": [fingerprint_data(*part) for part in parts if part is not None]}
    points = _points(task, grid, made_of, cache, tell, failures)
    rivals = _rivals(task, grid, cache, tell, failures)
    tell(0, 1, "linear probe")
    probe = cache.remember({**made_of, "probe": True}, lambda: {"accuracy": probe_accuracy(task.train, task.test)})
    sizes = len(task.train.y), len(task.test.y)
    return Frontier(
        sizes, len(task.concepts), grid.shown, tuple(points), tuple(rivals), float(probe["accuracy"]), failures
    )


def _points(
    task: ComparisonTask,
    grid: FrontierGrid,
    made_of: Mapping[str, Any],
    cache: RunCache,
    tell: OnProgress,
    failures: dict[str, str],
) -> list[FrontierPoint]:
    words = {} if task.random_words is None else {WORDS: task.random_words}
    kinds = {NAMED: task.concepts, **words, VECTORS: random_unit_concepts(task.concepts, seed=0)}
    asked = [(kind, setting) for kind in kinds for setting in grid.settings()]
    prints = {kind: fingerprint_concepts(concepts) for kind, concepts in kinds.items()}
    models = [
        (kind, ConceptClassifier(kinds[kind], **{"random_state": 0, **grid.options, **setting}))
        for kind, setting in asked
    ]

    def key(item: tuple[str, ConceptClassifier]) -> dict[str, Any]:
        kind, model = item
        parameters = {name: repr(value) for name, value in model.get_params(deep=False).items() if name != "concepts"}
        return {**made_of, "concepts": prints[kind], "parameters": parameters}

    told = [f"{kind}, fidelity {s['fidelity']:g}, {s['weights_per_class'] or 'all'} weights" for kind, s in asked]
    points: list[FrontierPoint] = []
    found = run_all(_measure, task, models, names=told, key=key, cache=cache, tell=tell)
    for (kind, setting), measured in zip(asked, found, strict=True):
        if isinstance(measured, str):  # such as words that are all one to the encoder
            failures.setdefault(kind, measured)
        else:
            points.append(FrontierPoint(kind, setting["fidelity"], setting["weights_per_class"], **measured))
    return points


def _measure(task: ComparisonTask, item: tuple[str, ConceptClassifier]) -> dict[str, float | None]:
    model = item[1]
    held_out = None if task.validation is None else (task.validation.X, task.validation.y)
    model.fit(task.train.X, task.train.y, validation=held_out)
    found = model.evaluate(task.test.X, task.test.y)
    return {
        "accuracy": found.accuracy,
        "mean_fidelity": finite(found.fidelity.mean),
        "least_fidelity": finite(found.fidelity.min),
        "in_play": found.in_play,
        "length": found.length,
    }


def _rivals(
    task: ComparisonTask, grid: FrontierGrid, cache: RunCache, tell: OnProgress, failures: dict[str, str]
) -> list[RivalPoint]:
    """Methods of `ccr compare` at every length, their variants and penalties chosen on validation images."""
    points: list[RivalPoint] = []
    for length in (length for length in grid.rival_lengths if length <= len(task.concepts)):
        at_length = replace(task, length=length)
        found = run_comparison(at_length, methods_named(RIVALS), seeds=[0], cache=cache, tell=tell)
        failures |= {f"{failure.method}, length {length:g}": failure.reason for failure in found.failures}
        points += [RivalPoint(row.method, row.title, length, row.accuracy, row.in_play or 0.0) for row in found.rows]
    return points
