from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ccr import HardThreshold
from ccr.labels import Part
from ccr.metrics import explanation_length
from ccr.show import plots
from ccr_lab.experiments.curves import (
    CurveFits,
    ablation_curves,
    radius_sweep,
    threshold_sweep,
    training_curves,
)
from ccr_lab.plots import experiment_plots
from tests.conftest import Data


@pytest.fixture(scope="module")
def bench(digits: Data) -> CurveFits:
    train, test = Part(digits.X[:400], digits.y[:400]), Part(digits.X_test, digits.y_test)
    return CurveFits(digits.concepts, train, test, {"max_iter": 4, "random_state": 0})


def test_training_curves_follow_the_test_split_to_the_last_epoch(bench: CurveFits, digits: Data) -> None:
    curves = training_curves(bench, length=6, settings={"radius": 0.2}, seeds=(0, 1))
    assert [(curve.name, curve.seed) for curve in curves] == [("baseline", 0), ("baseline", 1), ("CCR", 0), ("CCR", 1)]
    assert all(len(curve.history) == 4 for curve in curves)
    model = bench.fit("again", coder=HardThreshold(length=6), radius=0.2, random_state=0)
    assert model.best_epoch_ == 4
    assert model.score(digits.X_test, digits.y_test) == pytest.approx(curves[2].column("validation_accuracy")[-1])
    assert json.loads(json.dumps(curves[0].to_dict()))["name"] == "baseline"
    assert plots.png(experiment_plots.training_figure(curves)).startswith(b"\x89PNG")


def test_ablations_do_what_their_names_say(bench: CurveFits) -> None:
    threshold = bench.threshold(6)
    whole, _, free = ablation_curves(bench, threshold=threshold, radius=0.01)
    assert whole.column("max_deviation").max() <= 0.01 + 1e-5
    assert free.column("max_deviation").max() > 0.02
    assert set(whole.column("threshold")) == {threshold}
    assert plots.png(experiment_plots.ablation_figure([whole, free])).startswith(b"\x89PNG")


def test_sweeps_hold_lambda_and_shorten_codes_as_it_grows(bench: CurveFits) -> None:
    threshold = bench.threshold(6)
    points = threshold_sweep(bench, [threshold, 1.5 * threshold, 2 * threshold], radius=0.1)
    baseline = [point.length for point in points if point.name == "baseline"]
    assert baseline == sorted(baseline, reverse=True)
    radii = radius_sweep(bench, [0.0, 0.2], threshold=threshold)
    assert radii[0].mean_deviation == 0.0 < radii[1].mean_deviation
    frozen = bench.fit("frozen", coder=HardThreshold(threshold=threshold), radius=0.0)
    assert radii[0].length == pytest.approx(explanation_length(frozen.transform(bench.test.X)))
    assert plots.png(experiment_plots.sweep_figure(points, "lambda")).startswith(b"\x89PNG")


def test_heat_maps_are_thinned_and_share_a_scale() -> None:
    rng = np.random.default_rng(0)
    figure = experiment_plots.heat_maps({"few": rng.normal(size=(5, 8)), "many": rng.normal(size=(900, 8))})
    images = [axes.images[0] for axes in figure.axes[:2]]
    assert images[0].get_array().shape == (5, 5)
    assert images[1].get_array().shape == (256, 256)
    assert all(image.get_clim() == (0, 1) for image in images)


@pytest.mark.parametrize("sign", ["positive", "both"])
@pytest.mark.parametrize("weights", [None, 2])
def test_lambda_is_that_of_all_concepts_with_the_signs_of_the_bench(
    bench: CurveFits, sign: str, weights: int | None
) -> None:
    options = {**bench.options, "coder": HardThreshold(length=3, sign=sign), "weights_per_class": weights}
    own = replace(bench, options=options)
    threshold = own.threshold(6)
    model = own.fit("again", coder=HardThreshold(threshold=threshold, sign=sign), radius=0.0, weights_per_class=None)
    assert explanation_length(model.transform(bench.train.X)) == pytest.approx(6, abs=0.2)
    point = radius_sweep(own, [0.0], threshold=threshold)[0]
    same = own.fit("same", coder=HardThreshold(threshold=threshold, sign=sign), radius=0.0)
    assert point.length == pytest.approx(explanation_length(same.transform(bench.test.X)))
