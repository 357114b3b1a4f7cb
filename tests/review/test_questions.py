"""Which photo is asked about next: few answers bracket the place where a concept stops being shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from ccr.review.questions import ANSWERS, EACH, FIRST, contradicts, next_photos, spread_photos, unasked_classes

#: Scores with many ties, and which of the photos claim the concept.
PHOTOS = st.lists(st.tuples(st.integers(-5, 5), st.booleans()), max_size=40)


def photos(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in pairs], np.float32), np.array([claim for _, claim in pairs], bool)


def answered_by(scores: np.ndarray, claimed: np.ndarray, place: float, answers: int) -> dict[int, int | None]:
    """A session with somebody who says yes from this score on: answers in the order given."""
    asked: dict[int, int | None] = {}
    while rows := next_photos(scores, claimed, asked, answers=answers):
        for row in rows:
            assert row not in asked
            asked[row] = 1 if scores[row] >= place else -1
    return asked


@pytest.mark.parametrize("claims", [30, 400])
@pytest.mark.parametrize("share", [0.003, 0.2, 0.5, 0.77, 0.97])
def test_noiseless_answers_bracket_the_place_in_about_log2_steps(claims: int, share: float) -> None:
    m = 1000
    scores = np.random.default_rng(0).permutation(m).astype(np.float32)
    claimed = scores >= m - claims
    place = m - share * m  # below the claims for large shares
    asked = answered_by(scores, claimed, place, FIRST + math.ceil(math.log2(m)) + 1)
    yes = min(scores[row] for row, said in asked.items() if said == 1)
    no = max((scores[row] for row, said in asked.items() if said == -1), default=-1)
    assert (yes, no) == (math.ceil(place), math.ceil(place) - 1)


def test_seven_answers_leave_a_thirtieth_of_the_claims_open() -> None:
    scores = np.arange(1000, dtype=np.float32)
    claimed = scores >= 500
    for place in range(501, 999, 37):
        asked = answered_by(scores, claimed, place, ANSWERS)
        assert len(asked) == ANSWERS
        yes = min(scores[row] for row, said in asked.items() if said == 1)
        no = max(scores[row] for row, said in asked.items() if said == -1)
        assert yes - no <= 500 / 2 / 2 ** (ANSWERS - FIRST) + 1


def test_the_first_questions_are_about_claims_from_the_highest_score_down() -> None:
    scores = np.arange(100, dtype=np.float32)
    claimed = (scores >= 40) & (scores % 2 == 0)
    first = next_photos(scores, claimed, {})
    assert [int(scores[row]) for row in first] == [98, 70, 40]
    # All are shown: the next question is below the claims, in the middle of what is left.
    assert scores[next_photos(scores, claimed, dict.fromkeys(first, 1))[0]] == 20
    # None is: only claims are asked about.
    asked: dict[int, int | None] = dict.fromkeys(first, -1)
    while rows := next_photos(scores, claimed, asked, answers=100):
        assert len(rows) == 1
        assert claimed[rows[0]]
        asked[rows[0]] = -1
    assert set(asked) == set(np.flatnonzero(claimed).tolist())


def test_answers_given_before_count_and_stand_for_photos_near_them() -> None:
    scores = np.arange(300, dtype=np.float32)
    claimed = scores >= 100
    before: dict[int, int | None] = {298: 1, 201: 1, 103: -1}
    assert next_photos(scores, claimed, before) == [152]  # between the neighbours that differ
    assert next_photos(scores, claimed, before, answers=3) == []
    assert len(spread_photos(scores, claimed, before)) == 4


def test_a_photo_that_cannot_be_shown_is_no_answer_and_is_passed_over() -> None:
    scores, claimed = np.arange(50, dtype=np.float32), np.ones(50, bool)
    asked: dict[int, int | None] = {49: 1, 0: -1, 24: None, 25: None}
    rows = next_photos(scores, claimed, asked, answers=3)
    assert len(rows) == 1
    assert rows[0] not in asked
    assert next_photos(scores[:2], claimed[:2], {0: None, 1: None}) == []


def test_without_claims_the_highest_scores_are_asked_about() -> None:
    scores = np.arange(50, dtype=np.float32)
    assert next_photos(scores, np.zeros(50, bool), {}) == [49, 48, 47]
    assert spread_photos(scores, np.zeros(50, bool), {}) == [49, 48, 47, 46, 45, 44, 43]


@settings(deadline=None)
@given(PHOTOS, st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_session_ends_asks_nothing_twice_and_keeps_to_its_number(pairs, answers, random) -> None:
    scores, claimed = photos(pairs)
    asked: dict[int, int | None] = {}
    while rows := next_photos(scores, claimed, asked, answers=answers):
        assert len(set(rows)) == len(rows) <= answers
        for row in rows:
            assert 0 <= row < len(scores)
            assert row not in asked
            asked[row] = random.choice([1, -1, 0, None])
    assert sum(said is not None for said in asked.values()) <= answers


def test_every_class_that_claims_is_asked_about_before_any_is_asked_about_at_length() -> None:
    scores = np.arange(90, dtype=np.float32)
    claimed, classes = scores >= 30, np.where(scores >= 60, 2, np.where(scores >= 40, 1, 0))
    first = next_photos(scores, claimed, {}, classes=classes)
    assert [int(classes[row]) for row in first] == [2, 1, 0] * EACH  # the class with the most claims first
    assert [int(scores[row]) for row in first[:3]] == [75, 50, 35]  # its claim of middling score
    assert sorted(spread_photos(scores, claimed, {}, classes=classes, answers=6)) == sorted(first)
    # A fit gave the concept to a fourth class: that is what is asked about now.
    asked: dict[int, int | None] = {**dict.fromkeys(first[:5], 1), 12: None}
    more = claimed | ((scores >= 10) & (scores < 14))
    classes[10:14] = 3
    assert unasked_classes(more, classes, asked).tolist() == [3]
    assert classes[next_photos(scores, more, asked, classes=classes)].tolist() == [3, 0][: ANSWERS - 5]


@settings(deadline=None)
@given(
    PHOTOS, st.lists(st.integers(0, 4), min_size=40, max_size=40), st.integers(1, 9), st.randoms(use_true_random=False)
)
def test_sessions_reach_as_many_classes_as_there_are_answers(pairs, labels, answers, random) -> None:
    scores, claimed = photos(pairs)
    classes, asked = np.array(labels[: len(scores)], np.int64), {}
    while rows := next_photos(scores, claimed, asked, answers=answers, classes=classes):
        assert len(set(rows)) == len(rows)
        for row in rows:
            assert row not in asked
            asked[row] = random.choice([1, -1, 0])
    assert len(asked) <= answers
    with_claims = len(np.unique(classes[claimed]))
    assert len(unasked_classes(claimed, classes, asked)) == max(0, with_claims - answers)
    page = spread_photos(scores, claimed, {}, answers=answers, classes=classes)
    assert len(unasked_classes(claimed, classes, dict.fromkeys(page, 1))) == max(0, with_claims - answers)


@settings(deadline=None)
@given(PHOTOS, st.integers(1, 9), st.lists(st.integers(0, 39), max_size=5))
def test_offline_questions_are_all_different_new_and_by_falling_score(pairs, answers, given_before) -> None:
    scores, claimed = photos(pairs)
    before: dict[int, int | None] = {row: 1 for row in given_before if row < len(scores)}
    rows = spread_photos(scores, claimed, before, answers=answers)
    assert len(set(rows)) == len(rows)
    assert not set(rows) & set(before)
    assert (np.diff(scores[rows]) <= 0).all()
    assert len(rows) + len(before) <= max(answers, len(before))
    open_claims = int(claimed.sum()) - int(claimed[list(before)].sum())
    assert len(rows) >= min(answers - len(before), open_claims)


@given(st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([1, -1, 0])), max_size=15))
def test_contradiction_is_an_auc_of_at_most_a_half(pairs) -> None:
    scores = np.array([score for score, _ in pairs], np.float32)
    said = np.array([answer for _, answer in pairs], np.int8)
    sure = said != 0
    enough = min((said > 0).sum(), (said < 0).sum()) >= 2
    expected = bool(enough) and roc_auc_score(said[sure] > 0, scores[sure]) <= 0.5
    assert contradicts(scores, said) is expected


def test_a_concept_that_the_scores_order_is_not_contradicted() -> None:
    assert not contradicts(np.array([3.0, 2.0, 1.0, 0.0]), np.array([1, 1, -1, -1]))
    assert contradicts(np.array([3.0, 2.0, 1.0, 0.0]), np.array([-1, 1, 1, -1]))
    assert not contradicts(np.array([0.0, 1.0, 2.0]), np.array([1, -1, -1]))  # one yes is not enough
