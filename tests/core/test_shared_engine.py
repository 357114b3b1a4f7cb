"""A fit shared by several processes: the same steps as one process takes, to rounding; here processes are threads."""

import threading

import numpy as np
import pytest

from ccr.core.coding import HardThreshold, TopK
from ccr.core.concepts import Concepts
from ccr.core.inputs import Embeddings
from ccr.core.team import part_of
from ccr.models.classifier import ConceptClassifier
from ccr.scale.rows import SharedRows


class ThreadTeam:
    """A member of a team of threads, whose sums are added up in the order of ranks."""

    def __init__(self, rank, members):
        self.rank, self.size, self._members = rank, len(members), members
        self.summed = 0

    def sum(self, array):
        self.summed += array.nbytes
        return self._all(array, lambda arrays: np.sum(arrays, axis=0))

    def first(self, array):
        return self._all(array, lambda arrays: arrays[0])

    def _all(self, array, join):
        self._members["given"][self.rank] = np.array(array)
        self._members["wait"].wait(60)
        joined = np.array(join([self._members["given"][rank] for rank in range(self.size)]))
        self._members["wait"].wait(60)
        return joined

    @classmethod
    def of(cls, size):
        members = {"given": {}, "wait": threading.Barrier(size)}
        teams = [cls(rank, members) for rank in range(size)]
        for team in teams:
            team.size = size
        return teams


def together(size, work):
    """The results of `work(team)` of all members."""
    results, failures = [None] * size, []

    def run(team):
        try:
            results[team.rank] = work(team)
        except BaseException as error:
            failures.append(error)
            team._members["wait"].abort()

    threads = [threading.Thread(target=run, args=(team,)) for team in ThreadTeam.of(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def problem(m=900, d=24, n=40, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((classes, d))
    y = rng.integers(classes, size=m)
    X = (centers[y] + 1.2 * rng.standard_normal((m, d)) + 0.5).astype(np.float32)
    return X, y, Concepts([f"c{row}" for row in range(n)], rng.standard_normal((n, d)).astype(np.float32))


SETTINGS = {
    "default": {},
    "all weights": {"weights_per_class": None},
    "candidates": {"weights_per_class": 3, "candidates": 1.5},
    "ball": {"radius": 0.1, "weights_per_class": None},
    "paper": {"radius": 0.1, "optimizer": "sgd", "dropout": 0.5, "weights_per_class": None, "center": None},
    "top": {"coder": TopK(4)},
    "two-sided": {"coder": HardThreshold(length=5, sign="both")},
    "baseline": {"fidelity": 1.0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_team_makes_the_model_of_one_process(name):
    X, y, concepts = problem()
    options = {"max_iter": 6, "random_state": 0, "coder": HardThreshold(length=6), **SETTINGS[name]}
    alone = ConceptClassifier(concepts, **options).fit(X, y)
    members = together(3, lambda team: ConceptClassifier(concepts, **options).fit(SharedRows(X, team), y))
    for member in members:
        assert np.array_equal(member.coef_, members[0].coef_)
        assert list(member.concepts_.names) == list(alone.concepts_.names)
        np.testing.assert_allclose(member.concepts_.embeddings, alone.concepts_.embeddings, atol=2e-3)
        np.testing.assert_allclose(member.coef_, alone.coef_, atol=2e-2 * np.abs(alone.coef_).max())
        assert member.history_[0].train_loss == pytest.approx(alone.history_[0].train_loss, rel=1e-4)
        assert member.history_[-1].train_loss == pytest.approx(alone.history_[-1].train_loss, rel=1e-2)
        assert member.score(X, y) == pytest.approx(alone.score(X, y), abs=0.01)


def test_the_first_steps_are_equal_to_rounding():
    X, y, concepts = problem()
    options = {"max_iter": 1, "random_state": 0, "batch_size": 300, "weights_per_class": None, "validation_fraction": 0}
    alone = ConceptClassifier(concepts, **options).fit(X, y)
    members = together(2, lambda team: ConceptClassifier(concepts, **options).fit(SharedRows(X, team), y))
    np.testing.assert_allclose(members[1].concepts_.embeddings, alone.concepts_.embeddings, atol=2e-6)
    np.testing.assert_allclose(members[1].coef_, alone.coef_, atol=2e-5 * np.abs(alone.coef_).max())


def test_validation_data_of_their_own_are_measured_by_all():
    X, y, concepts = problem()
    options = {"max_iter": 4, "random_state": 0}

    def fit(team):
        return ConceptClassifier(concepts, **options).fit(
            SharedRows(X[:600], team), y[:600], validation=(SharedRows(X[600:], team), y[600:])
        )

    alone = ConceptClassifier(concepts, **options).fit(X[:600], y[:600], validation=(X[600:], y[600:]))
    for member in together(2, fit):
        for ours, theirs in zip(member.history_, alone.history_, strict=True):
            assert ours.validation_accuracy == pytest.approx(theirs.validation_accuracy, abs=0.011)
            assert ours.validation_loss == pytest.approx(theirs.validation_loss, rel=1e-2)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_moments_are_those_of_all_rows(size):
    X = problem(m=103)[0]
    alone = Embeddings(X)
    for mean, moments in together(
        size, lambda team: (Embeddings(SharedRows(X, team)).unit_mean(), Embeddings(SharedRows(X, team)).moments())
    ):
        np.testing.assert_allclose(mean, alone.unit_mean(), atol=1e-7)
        np.testing.assert_allclose(moments.covariance, alone.moments().covariance, atol=1e-6)


def test_every_row_is_one_members():
    for size in (1, 2, 3, 7):
        for m in (0, 1, 5, 100):
            parts = [part_of(team, m) for team in ThreadTeam.of(size)]
            assert [row for part in parts for row in range(part.start, part.stop)] == list(range(m))


def test_more_members_than_rows_of_a_batch():
    X, y, concepts = problem(m=60)
    options = {"max_iter": 2, "batch_size": 2, "random_state": 0, "validation_fraction": 0}
    alone = ConceptClassifier(concepts, **options).fit(X, y)
    members = together(4, lambda team: ConceptClassifier(concepts, **options).fit(SharedRows(X, team), y))
    np.testing.assert_allclose(members[3].concepts_.embeddings, alone.concepts_.embeddings, atol=5e-3)
