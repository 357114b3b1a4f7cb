"""Two frontiers: accuracy against fidelity, for concepts with and without meaning, at few weights per class; and
accuracy against concepts in play, beside the rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ccr.classifier import ConceptClassifier
from ccr.concepts import Concepts
from ccr.controls import probe_accuracy, random_unit_concepts
from ccr.errors import CCRError
from ccr.labels import Part
from ccr.metrics import finite
from ccr.refine.region import DEFAULT_FIDELITY
from ccr.utils.processes import Tell, no_progress
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data
from ccr_lab.experiments.compare import ComparisonTask, methods_named, run_comparison

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
class Frontier:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
    task: ComparisonTask, grid: FrontierGrid | None = None, *, cache: RunCache | None = None, tell: Tell = no_progress
) -> Frontier:
    """Fit all points of the grid, and the rivals; finished ones are taken from the cache.

    Nothing is chosen on test images. The `length` of the task is not used; without its `random_words` there is no line
    of them.
    """
    grid, cache = grid or FrontierGrid(), cache or RunCache(None)
    failures: dict[str, str] = {}
    made_of = {"frontier": REVISION, "data": [fingerprint_data(*part) for part in _parts(task)]}
    points = _points(task, grid, made_of, cache, tell, failures)
    rivals = _rivals(task, grid, cache, tell, failures)
    tell(0, 1, "linear probe")
    probe = cache.remember({**made_of, "probe": True}, lambda: {"accuracy": probe_accuracy(task.train, task.test)})
    sizes = len(task.train.y), len(task.test.y)
    return Frontier(
        sizes, len(task.concepts), grid.shown, tuple(points), tuple(rivals), float(probe["accuracy"]), failures
    )


def _parts(task: ComparisonTask) -> list[Part]:
    return [part for part in (task.train, task.test, task.validation) if part is not None]


def _kinds(task: ComparisonTask) -> dict[str, Concepts]:
    """Concepts of every kind, those with meaning first."""
    words = {} if task.random_words is None else {WORDS: task.random_words}
    return {NAMED: task.concepts, **words, VECTORS: random_unit_concepts(task.concepts, seed=0)}


def _points(
    task: ComparisonTask,
    grid: FrontierGrid,
    made_of: Mapping[str, Any],
    cache: RunCache,
    tell: Tell,
    failures: dict[str, str],
) -> list[FrontierPoint]:
    kinds, settings = _kinds(task), grid.settings()
    points: list[FrontierPoint] = []
    for number, (kind, setting) in enumerate((kind, setting) for kind in kinds for setting in settings):
        fidelity, weights = setting["fidelity"], setting["weights_per_class"]
        tell(number, len(kinds) * len(settings), f"{kind}, fidelity {fidelity:g}, {weights or 'all'} weights")
        if kind in failures:
            continue
        model = ConceptClassifier(kinds[kind], **{"random_state": 0, **grid.options, **setting})
        parameters = {name: repr(value) for name, value in model.get_params(deep=False).items() if name != "concepts"}
        key = {**made_of, "concepts": fingerprint_concepts(kinds[kind]), "parameters": parameters}
        try:
            measured = cache.remember(key, partial(_measure, model, task))
        except CCRError as error:  # such as words that are all one to the encoder
            failures[kind] = str(error)
            continue
        points.append(FrontierPoint(kind, fidelity, weights, **measured))
    return points


def _measure(model: ConceptClassifier, task: ComparisonTask) -> dict[str, float | None]:
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
    task: ComparisonTask, grid: FrontierGrid, cache: RunCache, tell: Tell, failures: dict[str, str]
) -> list[RivalPoint]:
    """Methods of `ccr compare` at every length, their variants and penalties chosen on validation images."""
    points: list[RivalPoint] = []
    for length in (length for length in grid.rival_lengths if length <= len(task.concepts)):
        at_length = replace(task, length=length)
        found = run_comparison(at_length, methods_named(RIVALS), seeds=[0], cache=cache, tell=tell)
        failures |= {f"{failure.method}, length {length:g}": failure.reason for failure in found.failures}
        points += [RivalPoint(row.method, row.title, length, row.accuracy, row.in_play or 0.0) for row in found.rows]
    return points
