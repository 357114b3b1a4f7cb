"""The frontiers: what is fitted is what a user would fit, finished fits are not repeated, figures show all lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import probe_accuracy
from ccr.labels import Part
from ccr.refine.region import DEFAULT_FIDELITY, unrefined
from ccr_lab.experiments import frontier
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.frontier import NAMED, VECTORS, WORDS, Frontier, FrontierGrid, measure_frontier
from ccr_lab.experiments.task import ComparisonTask
from ccr_lab.plots import experiment_plots
from tests.conftest import Data

OPTIONS = {"coder": HardThreshold(length=6, sign="positive"), "max_iter": 4}
GRID = FrontierGrid(OPTIONS, fidelities=(0.8, 0.9), weights=(1, None), rival_lengths=(2.0, 1000.0))


@pytest.fixture(scope="module")
def task(digits: Data) -> ComparisonTask:
    words = Concepts([f"word {row}" for row in range(40)], np.random.default_rng(0).normal(size=(40, 64)))
    train, test = Part(digits.X[:400], digits.y[:400]), Part(digits.X_test, digits.y_test)
    return ComparisonTask(digits.concepts, train, test, random_words=words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(task: ComparisonTask, folder: Path) -> Frontier:
    return measure_frontier(task, GRID, cache=RunCache(folder))


def test_every_kind_bound_and_number_of_weights_is_there_and_the_baseline_too(found: Frontier) -> None:
    seen = {(point.kind, point.fidelity, point.weights) for point in found.points}
    bounds = {0.8, 0.9, 1.0, found.shown}
    assert seen == {(kind, c, count) for kind in (NAMED, WORDS, VECTORS) for c in bounds for count in (1, None)}
    assert not found.failures
    assert all(point.mean_fidelity == pytest.approx(1.0, abs=1e-5) for point in found.points if point.fidelity == 1)
    assert [point.fidelity for point in found.line(NAMED, 1)] == sorted(bounds)
    assert [point.in_play for point in found.by_weights(1.0)] == sorted(p.in_play for p in found.by_weights(1.0))


def test_a_point_is_the_classifier_as_a_user_would_fit_it(found: Frontier, task: ComparisonTask) -> None:
    (point,) = [point for point in found.line(NAMED, 1) if point.fidelity == 0.9]
    settings = {**OPTIONS, "fidelity": 0.9, "weights_per_class": 1, "random_state": 0}
    model = ConceptClassifier(task.concepts, **settings).fit(task.train.X, task.train.y)
    measured = model.evaluate(task.test.X, task.test.y)
    assert point.accuracy == measured.accuracy
    assert (point.mean_fidelity, point.in_play) == (measured.fidelity.mean, measured.in_play)
    assert unrefined(settings)["fidelity"] == 1.0  # the line of the baseline


def test_rivals_and_probe(found: Frontier, task: ComparisonTask) -> None:
    assert [(point.method, point.length) for point in found.rivals] == [
        ("ip-omp", 2.0),
        ("label-free", 2.0),
        ("splice", 2.0),
    ]
    assert next(point.in_play for point in found.rivals if point.method == "ip-omp") == pytest.approx(2.0)
    assert found.probe == probe_accuracy(task.train, task.test)


def test_finished_fits_are_not_repeated_but_other_settings_are_fitted(
    found: Frontier, task: ComparisonTask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*scene: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(frontier, "_measure", refuse)
    assert measure_frontier(task, GRID, cache=RunCache(folder)) == found
    with pytest.raises(AssertionError, match="fitted again"):
        measure_frontier(task, FrontierGrid({**OPTIONS, "max_iter": 5}), cache=RunCache(folder))


def test_the_fidelity_beside_the_rivals_is_the_classifiers_own() -> None:
    assert FrontierGrid({"fidelity": 0.93}).shown == 0.93
    for grid in (FrontierGrid(), FrontierGrid({"fidelity": None}, fidelities=(0.8, 1.0))):
        assert grid.shown == DEFAULT_FIDELITY
        assert grid.shown in {setting["fidelity"] for setting in grid.settings()}


def test_concepts_that_cannot_be_fitted_are_named_and_the_others_stand(task: ComparisonTask) -> None:
    alike = Concepts([f"word {row}" for row in range(40)], np.ones((40, 64)))
    broken = ComparisonTask(task.concepts, task.train, task.test, random_words=alike)
    small = FrontierGrid(OPTIONS, fidelities=(1.0,), weights=(1,), rival_lengths=())
    result = measure_frontier(broken, small)
    assert "the mean itself" in result.failures[WORDS]
    assert {point.kind for point in result.points} == {NAMED, VECTORS}


def test_figures_show_every_line(found: Frontier) -> None:
    left, right = experiment_plots.fidelity_figure(found).axes
    for axes in (left, right):
        assert {line.get_label() for line in axes.get_lines()} == {NAMED, WORDS, VECTORS, "linear probe"}
    assert (left.get_title(), right.get_title()) == ("weights per class: 1", "all weights")
    (axes,) = experiment_plots.in_play_figure(found).axes
    names = {str(line.get_label()) for line in axes.get_lines()}
    assert {"baseline (fidelity 1)", "CLIP-IP-OMP", "SpLiCE", "label-free CBM", "linear probe"} < names
    assert experiment_plots.frontier_files(found)["in_play.png"].startswith(b"\x89PNG")


def test_points_with_nothing_in_play_and_without_a_fidelity_are_drawn(found: Frontier) -> None:
    first, *others = found.points
    empty = replace(first, kind=NAMED, fidelity=1.0, in_play=0.0, mean_fidelity=None, least_fidelity=None)
    (axes,) = experiment_plots.in_play_figure(replace(found, points=(empty, *others))).axes
    places = [line.get_transform().transform(line.get_xydata()) for line in axes.get_lines()]
    assert all(np.isfinite(place).all() for place in places)
    drawn = experiment_plots.frontier_files(replace(found, points=(empty, *others)))
    assert json.loads(drawn["frontier.json"])["points"][0]["mean_fidelity"] is None


def test_one_test_image_gives_points_without_a_fidelity(task: ComparisonTask, tmp_path: Path) -> None:
    alone = replace(task, test=Part(task.test.X[:1], task.test.y[:1]))
    small = FrontierGrid(OPTIONS, fidelities=(1.0,), weights=(1,), rival_lengths=())
    result = measure_frontier(alone, small, cache=RunCache(tmp_path))
    assert {point.mean_fidelity for point in result.points} == {None}
