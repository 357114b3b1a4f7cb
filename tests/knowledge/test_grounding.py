"""Grounding and transfer against plain loops, and in a world where it is known what concepts are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ccr.knowledge.grounding import (
    FOLDS,
    TEXT_ANSWERS,
    UNKNOWN_SHARE,
    Groups,
    contrasts,
    evidence,
    ground,
    partitions,
    transfer,
)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def world(seed: int, classes: int = 12, concepts: int = 5, d: int = 16) -> tuple[np.ndarray, np.ndarray, Groups]:
    rng = np.random.default_rng(seed)
    means = 0.4 * unit(rng.standard_normal((classes, d)))
    answers = rng.integers(-1, 2, (classes, concepts)).astype(np.int8)
    return unit(rng.standard_normal((concepts, d))), answers, Groups(means, rng.integers(1, 40, classes))


def grounded_by_hand(text: np.ndarray, said: np.ndarray, groups: Groups) -> np.ndarray:
    weight = groups.effective
    yes = [c for c in range(len(said)) if said[c] == 1]
    rest = [(c, 1.0 if said[c] == -1 else UNKNOWN_SHARE) for c in range(len(said)) if said[c] != 1]
    if not yes or not rest:
        return text
    shown = sum(weight[c] * groups.means[c] for c in yes) / sum(weight[c] for c in yes)
    lacking = sum(f * weight[c] * groups.means[c] for c, f in rest) / sum(f * weight[c] for c, f in rest)
    harmonic = 2 / (1 / len(yes) + 1 / sum(f for _, f in rest))
    share = TEXT_ANSWERS / (TEXT_ANSWERS + harmonic)
    return unit((1 - share) * unit(shown - lacking) + share * text)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_grounding_is_what_plain_loops_compute(seed) -> None:
    texts, answers, groups = world(seed)
    for given_ in (answers, sparse.csr_matrix(answers)):
        found = ground(texts, evidence(given_, groups, unknown=UNKNOWN_SHARE))
        expected = [grounded_by_hand(text, answers[:, at], groups) for at, text in enumerate(texts)]
        np.testing.assert_allclose(found, expected, atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_transfer_is_what_plain_loops_compute(seed) -> None:
    texts, answers, groups = world(seed)
    groups.means[3] = groups.means[7]  # a tie between folds does not matter, within one it counts half
    groups.means[1] = groups.means[5]
    found = transfer(texts, answers, groups)
    for at, text in enumerate(texts):
        right = pairs = 0.0
        for folds, fold in itertools.product(partitions(len(answers)), range(FOLDS)):
            seen = [c for c in range(len(answers)) if folds[c] != fold]
            unseen = [c for c in range(len(answers)) if folds[c] == fold]
            row = grounded_by_hand(text, answers[seen, at], Groups(groups.means[seen], groups.counts[seen]))
            for yes in (c for c in unseen if answers[c, at] == 1):
                for no in (c for c in unseen if answers[c, at] != 1):
                    weight = 1.0 if answers[no, at] == -1 else UNKNOWN_SHARE
                    apart = round(float(row @ (groups.means[yes] - groups.means[no])), 12)
                    right += weight * (1.0 if apart > 0 else 0.5 if apart == 0 else 0.0)
                    pairs += weight
        assert found[at] == pytest.approx(right / pairs, abs=1e-9) if pairs else np.isnan(found[at])


def test_a_concept_without_evidence_of_both_kinds_keeps_its_text() -> None:
    texts, answers, groups = world(0)
    answers[:, 0], answers[:, 1], answers[:, 2] = 0, 1, -1
    found = ground(texts, evidence(answers, groups, unknown=UNKNOWN_SHARE))
    np.testing.assert_allclose(found[:3], texts[:3])


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_what_every_class_shows_points_nowhere(seed) -> None:
    """The weights of classes that do not show it added up to 1e-15 in place of 0: a direction of rounding errors, and a
    division by zero."""
    texts, answers, groups = world(seed, classes=7)
    answers[:, 0] = 1
    found = evidence(answers, groups, unknown=UNKNOWN_SHARE)
    with np.errstate(all="raise"):
        assert not contrasts(found).known[0]
        np.testing.assert_allclose(ground(texts, found)[0], texts[0])


def test_a_photo_counts_as_one_image_and_a_class_as_no_more_than_its_images() -> None:
    _, _, groups = world(1)
    assert np.all(groups.effective <= groups.counts + 1e-9)
    assert np.all(groups.effective > 0)
    single = Groups(groups.means, np.ones(len(groups.means), np.int64))
    np.testing.assert_array_equal(single.effective, 1.0)
    # Images of a class that are all the same say as much as one of them.
    same = Groups(unit(groups.means), np.full(len(groups.means), 50))
    np.testing.assert_allclose(same.effective, 1.0, atol=1e-6)


def test_classes_without_images_count_for_nothing() -> None:
    texts, answers, groups = world(2)
    empty = Groups(np.vstack([groups.means, np.full((1, 16), 9.0)]), np.append(groups.counts, 0))
    more = np.vstack([answers, np.ones((1, 5), np.int8)])
    np.testing.assert_allclose(
        ground(texts, evidence(more, empty, unknown=UNKNOWN_SHARE)),
        ground(texts, evidence(answers, groups, unknown=UNKNOWN_SHARE)),
    )
    np.testing.assert_allclose(transfer(texts, more, empty), transfer(texts, answers, groups))


def test_few_classes_are_divided_in_many_ways_and_many_in_one() -> None:
    assert len(partitions(200)) == 4
    assert len(partitions(14)) == 15
    for folds in partitions(14):
        assert sorted(folds) == sorted(np.arange(14) % FOLDS)


def test_a_true_table_transfers_and_a_shuffled_one_does_not() -> None:
    rng = np.random.default_rng(0)
    concepts, classes, d = 30, 80, 64
    directions, table = unit(rng.standard_normal((concepts, d))), rng.random((classes, concepts)) < 0.2
    means = 0.3 * (table @ directions) + 0.05 * rng.standard_normal((classes, d))
    groups = Groups(means - means.mean(axis=0), np.full(classes, 30))
    texts = unit(rng.standard_normal((concepts, d)))  # words that say nothing
    true = np.where(table, 1, -1).astype(np.int8)
    shuffled = np.stack([rng.permutation(column) for column in true.T], axis=1)
    assert np.nanmean(transfer(texts, true, groups)) > 0.9
    assert np.nanmean(transfer(texts, true, groups, grounded=False)) == pytest.approx(0.5, abs=0.1)
    assert np.nanmean(transfer(texts, shuffled, groups)) == pytest.approx(0.5, abs=0.06)


@given(st.integers(0, 10_000), st.sampled_from([0.0, UNKNOWN_SHARE, 1.0]))
def test_evidence_is_what_plain_loops_add_up(seed: int, unknown: float) -> None:
    _, answers, groups = world(seed)
    groups.counts[seed % 12] = 0
    weight = np.where(groups.counts > 0, groups.effective, 0.0)
    found = evidence(answers, groups, unknown=unknown)
    for at in range(answers.shape[1]):
        share = {1: (1.0, 0.0), -1: (0.0, 1.0), 0: (0.0, unknown)}
        there = [c for c in range(len(answers)) if groups.counts[c]]
        for side, (rows, weights, number) in enumerate((found[:3], found[3:])):
            part = {c: share[int(answers[c, at])][side] for c in there}
            np.testing.assert_allclose(rows[at], sum(part[c] * weight[c] * groups.means[c] for c in there), atol=1e-9)
            assert weights[at] == pytest.approx(sum(part[c] * weight[c] for c in there))
            assert number[at] == pytest.approx(sum(part.values()))


def test_a_photo_adds_to_a_class_what_another_class_of_one_image_would() -> None:
    texts, answers, groups = world(4)
    single = Groups(groups.means, np.ones(len(groups.means), np.int64))
    photos = evidence(sparse.csr_matrix(answers[8:]), Groups(single.means[8:], single.counts[8:]))
    both = evidence(answers[:8], Groups(single.means[:8], single.counts[:8])).plus(photos)
    np.testing.assert_allclose(ground(texts, both), ground(texts, evidence(answers, single)), atol=1e-12)


def test_texts_lead_where_little_is_known_and_images_where_much_is() -> None:
    rng = np.random.default_rng(3)
    direction, text = unit(rng.standard_normal((2, 32)))
    along = []
    for classes in (2, 8, 60):
        shows = np.arange(classes) % 2 == 0
        means = np.where(shows[:, None], direction, -direction) * 0.5
        answers = np.where(shows, 1, -1).astype(np.int8)[:, None]
        along.append(float(ground(text[None], evidence(answers, Groups(means, np.full(classes, 20))))[0] @ direction))
    assert along == sorted(along)
    assert along[-1] > 0.95


def test_a_text_that_points_exactly_the_other_way_is_kept() -> None:
    direction = np.eye(4)[:1]
    means = np.vstack([direction, -direction] * 4)
    answers = np.tile(np.array([1, -1], np.int8), 4)[:, None]  # four of each kind: text and images weigh the same
    found = ground(-direction, evidence(answers, Groups(means, np.ones(8, np.int64))))
    np.testing.assert_allclose(found, -direction)


def test_equal_scores_count_half_and_unmeasurable_concepts_are_not_numbers() -> None:
    texts, answers, _ = world(0)
    flat = Groups(np.zeros((12, 16)), np.full(12, 5))
    answers[:, 0], answers[:, 1] = 0, 1
    answers[:, 2] = np.where(np.arange(12) < 6, 1, -1)
    found = transfer(texts, answers, flat)
    assert np.isnan(found[:2]).all()
    assert found[2] == 0.5
