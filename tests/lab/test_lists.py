"""What a list is worth: real names against random directions, on real images."""

import numpy as np
import pytest

from ccr import Concepts
from ccr.controls import list_worth, random_unit_concepts
from ccr.labels import Part


def test_names_of_things_are_worth_more_than_random_directions(clip):
    parts = {"train": Part(clip.X[:1500], clip.y[:1500]), "test": Part(clip.X_test[:1000], clip.y_test[:1000])}
    steps = []
    worth = list_worth(
        clip.concepts, random_unit_concepts(clip.concepts, seed=0), **parts, tell=lambda *step: steps.append(step)
    )
    assert worth.accuracy > 0.7
    assert worth.ahead == pytest.approx(worth.accuracy - worth.random_words)
    assert worth.ahead > 0
    assert [step[:2] for step in steps] == [(0, 2), (1, 2)]


def test_lists_of_two_concepts_have_a_worth():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 40)
    X = np.where(y[:, None] == "a", 1.0, -1.0) * np.eye(8)[0] + 0.3 * rng.normal(size=(80, 8))
    part = Part(X, y)
    words = Concepts(["one", "two"], np.eye(8)[[4, 5]])
    worth = list_worth(Concepts(["left", "right"], np.eye(8)[:2]), words, train=part, test=part)
    assert worth.accuracy > 0.9
