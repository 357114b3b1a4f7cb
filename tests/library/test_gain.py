"""The gain of refinement over the baseline, the probe beside it, and the worth of a list of names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import list_worth, probe_accuracy, random_unit_concepts, refinement_gain, refitted_accuracy
from ccr.labels import Part
from tests.conftest import Data


@pytest.fixture(scope="module")
def parts(digits: Data) -> dict[str, Part]:
    return {"train": Part(digits.X[:300], digits.y[:300]), "test": Part(digits.X_test, digits.y_test)}


@pytest.mark.parametrize(
    ("bound", "still"),
    [({}, {"fidelity": 1.0}), ({"fidelity": 0.8}, {"fidelity": 1.0}), ({"radius": 0.2}, {"radius": 0})],
)
def test_gain_reports_what_its_models_score(
    bound: dict[str, float], still: dict[str, float], digits: Data, parts: dict[str, Part]
) -> None:
    seen: list[tuple[int, int, str]] = []
    options = {"coder": HardThreshold(length=6), "max_iter": 10, "validation_fraction": 0.0, **bound}
    gain = refinement_gain(digits.concepts, **parts, options=options, seeds=(3, 4), tell=lambda *at: seen.append(at))
    assert gain.refined[0] == gain.model.score(digits.X_test, digits.y_test)
    assert gain.baseline[0] == gain.baseline_model.score(digits.X_test, digits.y_test)
    whole = ConceptClassifier(digits.concepts, **{**options, **still, "weights_per_class": None}).fit(*parts["train"])
    assert gain.refitted == (refitted_accuracy(whole, **parts),) * 2
    assert gain.model.random_state == 3
    assert gain.model.get_params() | still == gain.baseline_model.get_params()
    moved = [
        np.abs(m.concepts_.embeddings - m.initial_concepts_.embeddings).max() for m in (gain.model, gain.baseline_model)
    ]
    assert moved[0] > 0.01
    assert moved[1] < 1e-6
    assert gain.over_baseline == pytest.approx(np.mean(gain.refined) - np.mean(gain.baseline))
    assert seen == [(done, 4, "fitting models") for done in range(5)]
    assert json.loads(json.dumps(gain.to_dict()))["seeds"] == [3, 4]


def test_refitted_head_is_at_least_a_good_head(digits: Data, parts: dict[str, Part]) -> None:
    baseline = ConceptClassifier(digits.concepts, radius=0.0, weights_per_class=None, random_state=0)
    baseline.fit(*parts["train"])
    found = refitted_accuracy(baseline, **parts)
    codes, test = baseline.transform(parts["train"].X), baseline.transform(parts["test"].X)
    reference = LogisticRegression(C=100, max_iter=2000).fit(codes, parts["train"].y).score(test, parts["test"].y)
    assert found > reference - 0.03


def test_probe_against_scikit_learn(digits: Data, parts: dict[str, Part]) -> None:
    plain = LogisticRegression(max_iter=2000).fit(digits.X[:300], digits.y[:300]).score(digits.X_test, digits.y_test)
    assert probe_accuracy(**parts) > plain - 0.03


def test_names_of_things_are_worth_more_than_random_directions(clip: Data) -> None:
    parts = {"train": Part(clip.X[:1500], clip.y[:1500]), "test": Part(clip.X_test[:1000], clip.y_test[:1000])}
    steps = []
    worth = list_worth(
        clip.concepts, random_unit_concepts(clip.concepts, seed=0), **parts, tell=lambda *step: steps.append(step)
    )
    assert worth.accuracy > 0.7
    assert worth.ahead == pytest.approx(worth.accuracy - worth.random_words)
    assert worth.ahead > 0
    assert [step[:2] for step in steps] == [(0, 2), (1, 2)]


def test_lists_of_two_concepts_have_a_worth() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 40)
    X = np.where(y[:, None] == "a", 1.0, -1.0) * np.eye(8)[0] + 0.3 * rng.normal(size=(80, 8))
    part = Part(X, y)
    words = Concepts(["one", "two"], np.eye(8)[[4, 5]])
    worth = list_worth(Concepts(["left", "right"], np.eye(8)[:2]), words, train=part, test=part)
    assert worth.accuracy > 0.9
