"""Choosing concepts: statistics against plain computation, greedy against brute force, its guarantee, and real data."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.data.store import EmbeddingStore
from ccr.data.store.layout import embeddings_path, metadata_path
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.vocab.choose import (
    MOST_COMPARED,
    SAME,
    Objective,
    _different,
    choose,
    class_statistics,
    confusable,
    greedy,
    score_statistics,
    spreads,
    training_part,
)

GUARANTEE = 1 - 1 / np.e


def images(seed=0, m=400, d=12, classes=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, m)
    return unit_rows(3 + rng.normal(size=(classes, d))[y] + rng.normal(size=(m, d))), y


def test_statistics_are_those_of_the_scores_themselves():
    X, y = images()
    texts = np.random.default_rng(1).normal(size=(9, 12))
    found = score_statistics(class_statistics(X, y), texts)
    rows = unit_rows(texts)
    rows = unit_rows(rows - rows.mean(axis=0))
    scores = (X - X.mean(axis=0)) @ rows.T
    spread = scores.std(axis=0)
    means = np.stack([scores[y == label].mean(axis=0) for label in range(6)]) / spread
    inside = np.stack([scores[y == label].var(axis=0) * (y == label).mean() for label in range(6)]).sum(axis=0)
    assert np.allclose(found.means, means, atol=1e-4)
    assert np.allclose(found.spread, spread, atol=1e-5)
    assert np.allclose(found.within, np.sqrt(inside) / spread, atol=1e-3)
    assert np.allclose(found.correlation, np.corrcoef(scores.T), atol=1e-3)


def random_objective(seed, n=9, classes=4, pairs=5):
    rng = np.random.default_rng(seed)
    coverage, discrimination, diversity = (rng.random(shape) ** 4 for shape in ((n, classes), (n, pairs), (n, n)))
    return Objective(coverage, discrimination, diversity / n)


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_greedy_keeps_its_guarantee_against_every_other_subset(seed, size):
    objective = random_objective(seed)
    best = max(objective.value(np.array(rows)) for rows in combinations(range(9), size))
    chosen = greedy(objective, size)
    value = objective.value(chosen.rows)
    assert GUARANTEE * best <= value <= best + 1e-9
    assert np.isclose(chosen.values[-1], value)


@given(st.integers(0, 10_000))
def test_the_value_is_monotone_and_submodular(seed):
    objective, rng = random_objective(seed), np.random.default_rng(seed)
    large = rng.permutation(9)[: rng.integers(1, 8)]
    small, extra = large[: rng.integers(0, len(large) + 1)], int(rng.choice(np.setdiff1d(np.arange(9), large)))
    to_small = objective.value(np.append(small, extra).astype(int)) - objective.value(small)
    to_large = objective.value(np.append(large, extra)) - objective.value(large)
    assert to_small >= to_large - 1e-9
    assert to_large >= -1e-9


@given(st.integers(0, 10_000))
def test_lazy_greedy_is_greedy(seed):
    objective, rows = random_objective(seed, n=14), []
    for _ in range(6):
        gains = {row: objective.value(np.array([*rows, row])) for row in range(14) if row not in rows}
        rows.append(max(gains, key=lambda row: gains[row]))
    assert greedy(objective, 6).rows.tolist() == rows


def test_confusable_classes_are_the_nearest_ones():
    X, y = images(classes=4)
    near = np.where(y == 3, 0, y)  # class 3 looks like class 0
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(4, 12))
    X = unit_rows(3 + centres[near] + 0.3 * rng.normal(size=X.shape))
    assert confusable(class_statistics(X, y))[0].tolist() == [0, 3]


def test_near_duplicates_and_words_that_see_nothing_come_last():
    X, y = images()
    rng = np.random.default_rng(2)
    texts = rng.normal(size=(8, 12))
    texts = np.concatenate([texts, texts + 1e-3 * rng.normal(size=texts.shape)])
    found = class_statistics(X, y)
    chosen = choose(found, texts, size=16).rows
    assert len(chosen) == 8
    assert len({row % 8 for row in chosen}) == 8
    correlation = score_statistics(found, texts).correlation[np.ix_(chosen, chosen)]
    assert (correlation - np.eye(8)).max() <= SAME
    assert len(_different(score_statistics(found, texts), np.ones(16))) == 8


def test_the_chosen_serve_better_than_others_on_real_images(clip):
    """Fewer of the chosen names tell CIFAR-10's classes apart better than as many at random, by a nearest mean."""
    found = class_statistics(clip.X, clip.y)
    rows = clip.concepts.embeddings
    chosen = choose(found, rows, size=8).rows

    def accuracy(rows_):
        from sklearn.neighbors import NearestCentroid
        from sklearn.preprocessing import StandardScaler

        scale = StandardScaler().fit(clip.X @ rows_.T)
        model = NearestCentroid().fit(scale.transform(clip.X @ rows_.T), clip.y)
        return model.score(scale.transform(clip.X_test @ rows_.T), clip.y_test)

    others = [accuracy(rows[np.random.default_rng(seed).permutation(len(rows))[:8]]) for seed in range(9)]
    assert accuracy(rows[chosen]) > np.median(others)


def test_same_input_same_choice_and_bad_sizes_are_refused():
    X, y = images()
    found, texts = class_statistics(X, y), np.random.default_rng(3).normal(size=(30, 12))
    assert choose(found, texts, size=10).rows.tolist() == choose(found, texts, size=20).rows[:10].tolist()
    with pytest.raises(CCRError, match="at least 1"):
        choose(found, texts, size=0)


def test_spreads_need_no_correlation_and_too_many_concepts_are_refused_in_words():
    found = class_statistics(*images())
    texts = np.random.default_rng(2).normal(size=(9, 12))
    assert np.array_equal(spreads(found, texts), score_statistics(found, texts).spread)
    many = np.broadcast_to(texts[:1], (MOST_COMPARED + 1, 12))
    assert spreads(found, many).shape == (MOST_COMPARED + 1,)
    with pytest.raises(CCRError, match=r"at most 30,000 concepts .* got 30,001: divide the list"):
        choose(found, many, size=3)


@pytest.mark.parametrize(
    ("splits", "rows"),
    [
        (["train", "train", "test", "val"], [0]),
        (["val", None, "test", "val"], [0, 3]),
        (["test", "test", "test", "test"], [0, 2, 3]),
        (["test", "train", "test", "test"], [0, 2, 3]),
    ],
)
def test_choices_are_made_on_training_images_or_on_what_there_is(tmp_path, splits, rows):
    for path in (embeddings_path(tmp_path, 0), metadata_path(tmp_path, 0)):
        path.parent.mkdir()
    np.save(embeddings_path(tmp_path, 0), np.eye(4, dtype=np.float32))
    table = pa.table({"image_path": list("abcd"), "label": ["x", None, "y", "x"], "split": splits})
    pq.write_table(table, metadata_path(tmp_path, 0))
    assert list(training_part(EmbeddingStore.open(tmp_path)).paths) == ["abcd"[row] for row in rows]


def test_reasons_choose_among_what_is_plausible_and_nothing_without_a_reason_is_chosen():
    """Two candidates tell two classes apart equally well; the one that is said of the class that shows it comes first,
    and one without any reason never comes, however well it tells classes apart."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    X = np.abs(rng.normal(size=(400, 4))) * 0.1 + 1.0
    X[:, :3] += np.where(y == 0, 1.0, -0.0)[:, None]
    texts = np.eye(4)[:3] + 0.2
    found = class_statistics(unit_rows(X), y)
    said = np.array([[0.5, 0.5], [1.0, 0.5], [0.0, 0.0]])
    rows = choose(found, np.concatenate([texts, -texts]), size=6, reasons=np.concatenate([said, said])).rows
    assert rows[0] == 1
    assert not {2, 5} & set(rows.tolist())
    # Where the class that shows it is not the one that it is said of, it has no advantage.
    turned = np.array([[0.5, 0.5], [0.5, 1.0], [0.5, 0.5]])
    plain = choose(found, texts, size=3).rows.tolist()
    assert choose(found, texts, size=3, reasons=turned).rows.tolist() == plain
