"""Sheets of claims and their scores: recomputed by hand, invariants of kappa, and sheets that are damaged."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.errors import CCRError, FormatError
from ccr.metrics import cohens_kappa
from ccr.review.judgement import MOST_PHOTOS, RANDOM, WORTH, JudgedPhoto, Sheet, read_answers, record, score

ROOT = Path(__file__).parents[2]
#: Sheets of one judge without a name, as they were before several could share one.
SHEETS = [
    path for path in sorted((ROOT / "docs" / "results").glob("claims*.json")) if "verdicts_of" not in path.read_text()
]
VERDICTS = st.sampled_from(list(WORTH))


def small() -> Sheet:
    """Three photos; model "b" says nothing of the second, and shares a claim with "a" on the third."""
    made = (
        {"a": ("red", "round"), "b": ("green",), RANDOM: ("tall",)},
        {"a": ("shiny",), "b": (), RANDOM: ("tall",)},
        {"a": ("red",), "b": ("red", "green"), RANDOM: ("round",)},
    )
    order = (("tall", "red", "green", "round"), ("tall", "shiny"), ("green", "round", "red"))
    photos = tuple(JudgedPhoto(row, "apple", f"{row}.jpg", claims) for row, claims in enumerate(order))
    return Sheet(photos, made, facts={"store": "s", "split": "test", "seed": 0})


ANNA = {
    (0, "tall"): "false",
    (0, "red"): "true",
    (0, "green"): "half",
    (0, "round"): "half",
    (1, "tall"): "false",
    (1, "shiny"): "false",
    (2, "green"): "true",
    (2, "round"): "half",
    (2, "red"): "true",
}


def test_scores_are_those_computed_by_hand() -> None:
    found = score(small().with_verdicts("anna", ANNA))
    a, b, chance = found.origins
    assert (a.true, a.half, a.false) == (2 / 4, 1 / 4, 1 / 4)
    assert a.share == (1 + 0.5 + 0 + 1) / 4
    assert b.share == pytest.approx((0.5 + 1 + 1) / 3)
    assert chance.share == pytest.approx(0.5 / 3)
    assert (a.per_photo, b.per_photo, b.silent) == (4 / 3, 1.0, 1)
    assert a.difference is None
    assert b.difference == pytest.approx(b.share - a.share)
    assert found.left == {"anna": 0}


def test_intervals_are_those_of_drawing_photos_one_by_one() -> None:
    found = score(small().with_verdicts("anna", ANNA), seed=3)
    rng = np.random.default_rng(3)
    true, made = {"a": [1.5, 0, 1], "b": [0.5, 0, 2]}, {"a": [2, 1, 1], "b": [1, 0, 2]}
    shares: dict[str, list[float]] = {"a": [], "b": []}
    for counts in rng.multinomial(3, [1 / 3] * 3, size=4000):
        drawn = [photo for photo, times in enumerate(counts) for _ in range(times)]
        for name in shares:
            many = sum(made[name][photo] for photo in drawn)
            shares[name].append(sum(true[name][photo] for photo in drawn) / many if many else float("nan"))
    for origin in found.origins[:2]:
        assert origin.interval == pytest.approx(np.nanpercentile(shares[origin.name], [2.5, 97.5]))
    apart = np.array(shares["b"]) - np.array(shares["a"])
    assert found.origins[1].difference_interval == pytest.approx(np.nanpercentile(apart, [2.5, 97.5]))


def test_what_is_not_judged_is_left_out_and_counted() -> None:
    part = {key: verdict for key, verdict in ANNA.items() if key[0] == 0}
    found = score(small().with_verdicts("anna", part))
    assert [origin.judged for origin in found.origins] == [2, 1, 1]
    assert found.origins[0].share == 0.75
    assert found.left == {"anna": 5}


def test_a_claim_with_two_judges_counts_half_for_each() -> None:
    two = small().with_verdicts("anna", ANNA).with_verdicts("ben", {(0, "red"): "false", (0, "round"): "half"})
    found = score(two)
    assert found.origins[0].share == pytest.approx((0.5 + 0.5 + 0 + 1) / 4)
    assert found.agreements[0].claims == 2
    assert found.agreements[0].equal == 0.5
    assert score(two, "ben").origins[0].share == 0.25
    with pytest.raises(CCRError, match="did you mean 'anna'"):
        score(two, "ana")


@given(st.lists(st.tuples(VERDICTS, VERDICTS), min_size=1, max_size=40), st.permutations(list(WORTH)))
def test_kappa_does_not_depend_on_the_names_of_verdicts_or_the_order_of_judges(
    pairs: list[tuple[str, str]], other: list[str]
) -> None:
    kappa, renamed = cohens_kappa(pairs), dict(zip(WORTH, other, strict=True))
    assert kappa == cohens_kappa([(second, first) for first, second in pairs])
    assert kappa == cohens_kappa([(renamed[first], renamed[second]) for first, second in pairs])
    assert kappa == cohens_kappa(pairs * 3) or kappa == pytest.approx(cohens_kappa(pairs * 3))
    assert kappa is None or -1 <= kappa <= 1
    if kappa is not None:
        assert (kappa == 1) == all(first == second for first, second in pairs)


@given(st.lists(st.tuples(VERDICTS, VERDICTS), min_size=2, max_size=40))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    kappa = cohens_kappa(pairs)
    if kappa is not None:
        assert kappa == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))


@given(VERDICTS, st.integers(1, 9))
def test_kappa_is_not_defined_where_both_judges_give_one_verdict(verdict: str, many: int) -> None:
    assert cohens_kappa([(verdict, verdict)] * many) is None
    assert cohens_kappa([]) is None


def test_independent_verdicts_have_a_kappa_of_zero() -> None:
    assert cohens_kappa([(one, other) for one in WORTH for other in WORTH]) == 0.0


def test_a_sheet_comes_back_as_it_was(tmp_path: Path) -> None:
    sheet = small().with_verdicts("anna", ANNA).with_verdicts("", {(0, "red"): "half"})
    sheet.write(tmp_path / "s.json")
    back = Sheet.read(tmp_path / "s.json")
    assert back.to_dict() == sheet.to_dict()
    assert back.digest == sheet.digest == small().digest
    assert list(json.loads((tmp_path / "s.json").read_text()))[-1] == "made_by"


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: path.name)
def test_old_sheets_are_scored_and_written_as_they_were(path: Path, tmp_path: Path) -> None:
    sheet = Sheet.read(path)
    sheet.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())
    plain = json.loads(path.read_text())
    for origin in score(sheet).origins:
        pairs = zip(plain["photos"], plain["made_by"], strict=True)
        said = [photo["verdicts"][claim] for photo, made in pairs for claim in made[origin.name]]
        assert origin.judged == len(said)
        assert origin.share == pytest.approx((said.count("true") + said.count("half") / 2) / len(said))


def test_a_sheet_of_many_photos_takes_little_memory_and_one_of_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of a photo takes 30 bytes, and its draws took 32,000."""
    whole = score(small().with_verdicts("anna", ANNA))
    monkeypatch.setattr("ccr.review.judgement.DRAWN", 10)  # three draws at a time
    for one, other in zip(whole.origins, score(small().with_verdicts("anna", ANNA)).origins, strict=True):
        assert one.interval == pytest.approx(other.interval)
        assert one.difference_interval == pytest.approx(other.difference_interval)
    plain = {"photos": [{"row": 1, "verdicts": {}}] * (MOST_PHOTOS + 1), "made_by": [{"a": []}] * (MOST_PHOTOS + 1)}
    (tmp_path / "s.json").write_text(json.dumps(plain))
    with pytest.raises(FormatError, match="at most 100,000 photos, got 100,001"):
        Sheet.read(tmp_path / "s.json")


def test_a_sheet_without_verdicts_has_no_scores() -> None:
    with pytest.raises(CCRError, match="nothing is judged yet"):
        score(small())


def damaged(change: Any, tmp_path: Path) -> Path:
    plain = small().with_verdicts("anna", ANNA).to_dict()
    change(plain)
    (tmp_path / "bad.json").write_text(json.dumps(plain), encoding="utf-8")
    return tmp_path / "bad.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda plain: plain["photos"][0]["verdicts"].update(red="maybe"),
            "got 'maybe' for the claim 'red' about 0.jpg",
        ),
        (lambda plain: plain["photos"][1]["verdicts_of"]["anna"].update(shiny="TRUE"), "claim 'shiny' about 1.jpg"),
        (lambda plain: plain["photos"][1]["verdicts_of"]["anna"].update(shinny="true"), "did you mean 'shiny'"),
        (lambda plain: plain["photos"][1]["verdicts"].pop("shiny"), "1.jpg lacks 'shiny'"),
        (lambda plain: plain["made_by"].pop(), "3 photos and 2 lists"),
        (lambda plain: plain["made_by"][1].pop("a"), "same origins"),
        (lambda plain: plain.pop("photos"), "must be a sheet of claims"),
        (lambda plain: plain.update(photos=[1, 2, 3]), "must be a sheet of claims"),
        (lambda plain: plain.update(photos=[], made_by=[]), "0 photos"),
        (lambda plain: plain["photos"][0].update(row=float("inf")), "must be a sheet of claims"),
    ],
)
def test_a_damaged_sheet_is_refused_with_photo_and_claim(change: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(CCRError, match=said):
        Sheet.read(damaged(change, tmp_path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "true", "red", "a", "\x1b[2J"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "red", "anna"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(node: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [before] * bool(before) + [way for key, value in inner for way in places(value, (*before, key))]


@given(st.data())
def test_a_sheet_with_any_part_replaced_is_read_and_scored_or_refused(data: st.DataObject) -> None:
    plain = json.loads(json.dumps(small().with_verdicts("anna", ANNA).to_dict()))
    *way, last = data.draw(st.sampled_from(places(plain)))
    node = plain
    for key in way:
        node = node[key]
    node[last] = data.draw(JSON)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        path.write_text(json.dumps(plain), encoding="utf-8")
        try:
            sheet = Sheet.read(path)
            score(sheet)
            sheet.write(path)
        except CCRError:
            return
        assert Sheet.read(path).to_dict() == sheet.to_dict()


def test_verdicts_of_a_page_are_those_of_its_own_sheet(tmp_path: Path) -> None:
    sheet, saved = small(), tmp_path / "saved.json"
    rows = [["true", "", "half", ""], ["", "false"], ["", "", ""]]
    saved.write_text(json.dumps({"sheet": sheet.digest, "judge": " ben ", "verdicts": rows}), encoding="utf-8")
    judge, given_ = read_answers(saved, sheet)
    assert judge == "ben"
    assert given_ == {(0, "tall"): "true", (0, "green"): "half", (1, "shiny"): "false"}
    saved.write_text(json.dumps({"sheet": "0" * 16, "verdicts": rows}), encoding="utf-8")
    with pytest.raises(CCRError, match=r"not on .*: name the sheet"):
        read_answers(saved, sheet)
    saved.write_text(json.dumps({"sheet": sheet.digest, "verdicts": rows[:2]}), encoding="utf-8")
    with pytest.raises(FormatError, match="must be a file of verdicts"):
        read_answers(saved, sheet)
    saved.write_text(json.dumps({"sheet": sheet.digest, "verdicts": [["yes", *rows[0][1:]], *rows[1:]]}))
    with pytest.raises(CCRError, match="got 'yes' for the claim 'tall'"):
        sheet.with_verdicts(*read_answers(saved, sheet))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders")
def test_a_pipe_in_the_place_of_a_sheet_or_of_verdicts_is_refused(tmp_path: Path) -> None:
    """Its reader waited for ever."""
    os.mkfifo(tmp_path / "pipe.json")
    for read in (Sheet.read, lambda path: read_answers(path, small())):
        with pytest.raises(FormatError, match="not a regular file"):
            read(tmp_path / "pipe.json")


def _record_all(path: Path, judge: str) -> None:
    for key, verdict in ANNA.items():
        record(path, judge, {key: verdict})


def test_judges_who_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    small().write(path)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_record_all, args=(path, judge)) for judge in ("anna", "ben", "eve")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {judge: len(Sheet.read(path).open_claims(judge)) for judge in ("anna", "ben", "eve")} == dict.fromkeys(
        ("anna", "ben", "eve"), 0
    )
