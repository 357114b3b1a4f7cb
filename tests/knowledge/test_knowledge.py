"""Knowledge: answers and their precedence, files that come back as they were, names that do not match, bad rows."""

from __future__ import annotations

import copy
import pickle
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr import Knowledge
from ccr.errors import CCRError, FormatError
from ccr.knowledge import SOURCES, Answer
from ccr.utils.texts import has_control

VERDICTS = ("yes", "no", "unknown")
NAMES = st.text(alphabet=string.ascii_letters + " =+-@',;\"äß雪", min_size=1, max_size=8).map(str.strip).filter(bool)
ANSWERS = st.builds(
    Answer,
    NAMES,
    NAMES,
    st.sampled_from(VERDICTS),
    st.sampled_from([*SOURCES, "museum"]),
    NAMES,
    st.sampled_from(["", "2025-01-02", "2026-11-18T09:30:00+00:00", "2026-11-18T10:00:00+02:00"]),
    st.one_of(st.just(""), NAMES),
)


def plain(known: Knowledge) -> set[tuple[str, ...]]:
    return {tuple(answer.to_dict().values()) for answer in known}


@given(st.lists(ANSWERS, max_size=20))
@settings(max_examples=40, deadline=None)
def test_files_come_back_as_they_were(tmp_path_factory, answers) -> None:
    known = Knowledge.of(answers)
    for suffix in ("csv", "parquet"):
        path = tmp_path_factory.mktemp("known") / f"answers.{suffix}"
        known.write(path)
        again = Knowledge.read(path)
        assert plain(again) == plain(known)
        assert again == known


@given(st.lists(ANSWERS, max_size=20), st.randoms())
@settings(max_examples=40, deadline=None)
def test_the_digest_does_not_depend_on_order_but_on_every_answer(answers, random) -> None:
    known = Knowledge.of(answers)
    kept = list(known)
    random.shuffle(kept)
    assert Knowledge.of(kept).digest == known.digest
    if kept:
        assert Knowledge.of(kept[1:]).digest != known.digest


@given(st.lists(ANSWERS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_a_question_keeps_the_answer_of_the_best_source_then_the_latest_then_the_last(answers) -> None:
    def worth(pair: tuple[int, Answer]) -> tuple[int, int, int]:
        times = ["", "2025-01-02", "2026-11-18T10:00:00+02:00", "2026-11-18T09:30:00+00:00"]
        number, answer = pair
        rank = SOURCES.index(answer.source) if answer.source in SOURCES else SOURCES.index("file")
        return rank, times.index(answer.at), number

    expected: dict[tuple[bool, str, str], Answer] = {}
    for _, answer in sorted(enumerate(answers), key=worth):
        expected[(bool(answer.photo), answer.photo or answer.label, answer.concept)] = answer
    found = {
        (bool(answer.photo), answer.photo or answer.label, answer.concept): answer for answer in Knowledge.of(answers)
    }
    assert found == expected


def test_answers_that_are_overruled_by_their_opposite_are_reported() -> None:
    person = Answer("pear", "red", "no", "person", "Ada", "2026-01-01")
    model = Answer("pear", "red", "yes", "llm", "m", "2026-05-01")
    unsure = Answer("plum", "red", "unknown", "person")
    guessed = Answer("plum", "red", "yes", "wordnet")
    known = Knowledge.merge(Knowledge.of([person, guessed]), Knowledge.of([model, unsure]))
    assert known.find("pear", "red") == person
    assert [(kept.answer, lost.answer) for kept, lost in known.conflicts] == [("no", "yes")]
    assert known.conflicts[0].overruled == model
    assert known.find("plum", "red") == unsure  # nobody knows better: no conflict, and no answer


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_tables_of_every_kind_say_the_same(rows, columns, seed) -> None:
    values = np.random.default_rng(seed).integers(-1, 2, (rows, columns)).astype(np.int8)
    names = [f"class {row}" for row in range(rows)], [f"concept {column}" for column in range(columns)]
    words = np.array(["no", "unknown", "yes"], object)[values + 1]
    floats = np.where(values == 0, np.nan, values.astype(float))
    objects = np.array([None, True, False], object)[values]
    for table in (values, words, floats, objects):
        np.testing.assert_array_equal(Knowledge(*names, table).table, values)
    np.testing.assert_array_equal(Knowledge(*names, values > 0).table, np.where(values > 0, 1, -1))


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_alignment_is_looking_up_every_pair(seed) -> None:
    rng = np.random.default_rng(seed)
    classes, concepts = [f"c{number}" for number in range(6)], [f"k{number}" for number in range(7)]
    known = Knowledge(classes[:4], concepts[:5], rng.integers(-1, 2, (4, 5)))
    photos = [Answer("", concepts[rng.integers(7)], VERDICTS[rng.integers(2)], photo=f"p{at}") for at in range(5)]
    known = known.merge(Knowledge.of(photos))
    wanted = [list(rng.permutation(names)) for names in (classes, concepts)]
    value = {"yes": 1, "no": -1, "unknown": 0, None: 0}

    def said(label: str, concept: str, photo: str = "") -> int:
        found = known.find(label, concept, photo=photo)
        return value[None if found is None else found.answer]

    np.testing.assert_array_equal(
        known.aligned(*wanted), [[said(label, concept) for concept in wanted[1]] for label in wanted[0]]
    )
    np.testing.assert_array_equal(
        known.aligned_photos(wanted[1]).toarray(),
        [[said("", concept, photo) for concept in wanted[1]] for photo in known.photos],
    )
    part = known.about(wanted[0][:2], wanted[1][:3])
    kept = {answer for answer in known if answer.concept in wanted[1][:3]}
    assert set(part) == {answer for answer in kept if answer.photo or answer.label in wanted[0][:2]}


def test_a_wide_table_has_a_row_per_class_or_per_concept(tmp_path) -> None:
    known = Knowledge(["apple", "=pear"], ["red", "green"], [["yes", "no"], ["", "yes"]])
    known.write(tmp_path / "wide.csv", wide=True)
    assert "'=pear" in (tmp_path / "wide.csv").read_text()
    turned = tmp_path / "turned.csv"
    turned.write_text("concept;apple;=pear\nred;yes;\ngreen;no;yes\n")
    for path in (tmp_path / "wide.csv", turned):
        np.testing.assert_array_equal(Knowledge.read(path).aligned(["apple", "=pear"], ["red", "green"]), known.table)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("class,concept,answer\na,b,maybe\n", "line 2 .*yes, no or unknown, got 'maybe'.*correct"),
        ("class,concept,answer\n\na,b,yes\na,,yes\n", "line 4 .*needs a concept.*fill it in"),
        ("class,concept,answer\n,b,yes\n", "line 2 .*needs a class"),
        ("class,concept,answer,at\na,b,yes,yesterday\n", "line 2 .*'yesterday'"),
        ("class,concept,answer\na,b,yes,more\n", "line 2 .*4 cells.*quotes"),
        ("class,red\na,1\n", "line 2 .*'1' in the column 'red'"),
        ("name,value\na,1\n", "must have the columns class, concept and answer"),
        ("class,red,Red\n", "'red' twice"),
        ("", "must have the columns"),
        ("class,concept,answer\na,b\x1b[2J,yes\n", "control characters"),
    ],
)
def test_bad_rows_are_named_with_line_value_and_remedy(tmp_path, text, complaint) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=complaint):
        Knowledge.read(path)


def test_files_that_are_no_tables_are_refused(tmp_path) -> None:
    for name, content in (("bad.parquet", b"PAR1 no"), ("bad.csv", b"\xff\xfe\x00"), ("missing.csv", None)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name):
            Knowledge.read(tmp_path / name)


def test_bad_arguments_are_refused_with_the_remedy() -> None:
    with pytest.raises(CCRError, match="transpose"):
        Knowledge(["a", "b"], ["x"], [[1, 1]])
    with pytest.raises(CCRError, match="2 in row 0, column 0"):
        Knowledge(["a"], ["x"], [[2]])
    with pytest.raises(CCRError, match="'a' twice"):
        Knowledge(["a", "a"], ["x"], [[1], [1]])
    with pytest.raises(CCRError, match="put it in a list"):
        Knowledge("ab", ["x", "y"], [[1, 1]])
    with pytest.raises(CCRError, match="no room for answers about photos"):
        Knowledge.of([Answer("a", "x", "yes", photo="p.jpg")]).write("never.csv", wide=True)


@given(st.lists(ANSWERS, max_size=15))
@settings(max_examples=30, deadline=None)
def test_packed_knowledge_comes_back(answers) -> None:
    known = Knowledge.of(answers)
    names, arrays = known.packed()
    assert Knowledge.unpacked(names, arrays) == known


def test_damaged_arrays_are_refused() -> None:
    names, arrays = Knowledge(["a", "b"], ["x"], [["yes"], ["no"]]).packed()
    for change in ({"subject": arrays["subject"] + 5}, {"value": arrays["value"] * 3}, {"by": arrays["by"][:1]}):
        with pytest.raises(FormatError, match="damaged"):
            Knowledge.unpacked(names, {**arrays, **change})
    with pytest.raises(FormatError, match="classes"):
        Knowledge.unpacked({**names, "classes": ["a", "a"]}, arrays)


def test_names_of_one_side_are_reported_with_what_was_meant() -> None:
    known = Knowledge(["Granny Smith", "plum"], ["red skin"], [["no"], ["yes"]])
    apart = known.unmatched(["Granny-Smith", "plum", "pear"], ["red skin", "stem"])
    assert apart.extra_classes == ("Granny Smith",)
    assert apart.missing_classes == ("Granny-Smith", "pear")
    assert apart.missing_concepts == ("stem",)
    assert apart.meant == {"Granny Smith": "Granny-Smith"}


def test_renaming_carries_answers_along_and_shuffling_keeps_their_number() -> None:
    rng = np.random.default_rng(0)
    known = Knowledge([f"c{row}" for row in range(9)], ["x", "y"], rng.integers(-1, 2, (9, 2)))
    moved = known.renamed("x", "z")
    np.testing.assert_array_equal(moved.aligned(known.classes, ["z", "y"]), known.table)
    assert known.renamed("nothing", "z") is known
    mixed = known.shuffled(0)
    np.testing.assert_array_equal(np.sort(mixed.table, axis=0), np.sort(known.table, axis=0))
    assert (mixed.table != known.table).any()


#: Any text that a name may be, often one that a spreadsheet would compute or that CSV must quote.
ANY_NAME = (
    st.builds(
        str.__add__, st.sampled_from(["", "=", "+", "-", "@", "'", "'=", "''", ",", ";", '"']), st.text(max_size=6)
    )
    .map(str.strip)
    .filter(lambda name: bool(name) and not has_control(name) and name.isprintable())
)


@given(
    st.lists(ANY_NAME, min_size=1, max_size=4, unique=True),
    st.lists(ANY_NAME, min_size=1, max_size=4, unique_by=str.casefold),
    st.data(),
)
def test_a_table_is_the_same_knowledge_however_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, classes: list[str], concepts: list[str], data: st.DataObject
) -> None:
    row = st.lists(st.sampled_from([1, -1, 0]), min_size=len(concepts), max_size=len(concepts))
    table = data.draw(st.lists(row, min_size=len(classes), max_size=len(classes)))
    known, folder = Knowledge(classes, concepts, table), tmp_path_factory.mktemp("known")
    assert Knowledge.of(known) == known, "answers one by one are the same answers"
    assert Knowledge.of(known).digest == known.digest
    for name, wide in (("a.csv", False), ("a.parquet", False), ("w.csv", True), ("w.parquet", True)):
        if wide and ("class" in map(str.casefold, concepts) or {"concept", "answer"} <= set(concepts)):
            continue
        known.write(folder / name, wide=wide)
        again = Knowledge.read(folder / name)
        assert again == known, name
        np.testing.assert_array_equal(again.aligned(classes, concepts), known.table)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("concepts", [["red", "Red"], ["Class", "red"], ["concept", "Answer"]])
def test_a_wide_table_that_would_be_read_as_another_is_not_written(
    tmp_path: Path, concepts: list[str], suffix: str
) -> None:
    known = Knowledge(["a", "b"], concepts, [[1, -1], [-1, 1]])
    with pytest.raises(CCRError, match="drop wide"):
        known.write(tmp_path / f"wide.{suffix}", wide=True)
    assert not list(tmp_path.iterdir())
    known.write(tmp_path / f"long.{suffix}")
    assert Knowledge.read(tmp_path / f"long.{suffix}") == known


@pytest.mark.parametrize("heading", ["photo,red", "name,answer", "photo,answer", "red,class"])
def test_tables_of_something_else_are_refused_and_not_guessed_at(tmp_path: Path, heading: str) -> None:
    (tmp_path / "other.csv").write_text(f"{heading}\na,yes\n")
    with pytest.raises(FormatError, match=f"must have the columns.*{heading.split(',')[0]}"):
        Knowledge.read(tmp_path / "other.csv")


@pytest.mark.parametrize(("mark", "other"), [(",", ";"), (";", ","), ("\t", ",")])
def test_cells_are_parted_by_the_first_mark_of_the_heading(tmp_path: Path, mark: str, other: str) -> None:
    lines = (["class", f"red{other} ripe", "green"], ["apple", "yes", "no"])
    (tmp_path / "table.csv").write_text("".join(mark.join(line) + "\n" for line in lines))
    assert Knowledge.read(tmp_path / "table.csv") == Knowledge(["apple"], [f"red{other} ripe", "green"], [[1, -1]])


CHANGES: list[Callable[[Answer], Answer]] = [
    lambda one: replace(one, label=f"{one.label}x"),
    lambda one: replace(one, concept=f"{one.concept}x"),
    lambda one: replace(one, answer="no" if one.answer == "yes" else "yes"),
    lambda one: replace(one, source=f"{one.source}x"),
    lambda one: replace(one, by=f"{one.by}x"),
    lambda one: replace(one, at="2020-02-02"),
    lambda one: replace(one, photo=f"{one.photo}x"),
]


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.data())
def test_any_change_of_any_answer_changes_the_digest(answers: list[Answer], data: st.DataObject) -> None:
    known = list(Knowledge.of(answers))
    at, change = data.draw(st.integers(0, len(known) - 1)), data.draw(st.sampled_from(CHANGES))
    changed = [*known[:at], change(known[at]), *known[at + 1 :]]
    assert Knowledge.of(changed) != Knowledge.of(known)


@given(st.lists(st.lists(ANSWERS, max_size=8), max_size=4))
def test_merging_is_the_same_all_at_once_and_one_by_one(parts: list[list[Answer]]) -> None:
    every = [Knowledge.of(part) for part in parts]
    together, stepwise = Knowledge.of([]).merge(*every), Knowledge.of([])
    for part in every:
        stepwise = stepwise.merge(part)
    assert together == stepwise == Knowledge.of([answer for part in every for answer in part])
    assert Knowledge.merge(together, together) == together
    for kept, lost in together.conflicts:
        assert {kept.answer, lost.answer} == {"yes", "no"}
        assert (kept.concept, kept.photo or kept.label) == (lost.concept, lost.photo or lost.label)


def test_names_have_no_spaces_around_them_and_say_something() -> None:
    tidy = Knowledge.of([Answer("a", "x", "yes", "person", "Ada", photo="p")])
    assert Knowledge.of([Answer(" a ", " x", "yes", " person", "Ada ", photo=" p ")]) == tidy
    assert Knowledge([" a "], ["x "], [[1]], source=" llm ", by=" m ") == Knowledge(
        ["a"], ["x"], [[1]], source="llm", by="m"
    )
    for bad, complaint in (
        (Answer("a", " ", "yes"), "needs a concept"),
        (Answer(" ", "x", "yes"), "about a class or a photo"),
        (Answer("a", "x", "yes", by="A\nB"), "author's name must be plain text"),
        (Answer("a", "x", "yes", source="\x1b[2J"), "source's name must be plain text"),
        (Answer("a", "x", "maybe"), "got 'maybe'"),  # type: ignore[arg-type]
        (Answer("a", "x", "yes", at="soon"), "got 'soon'"),
    ):
        with pytest.raises(CCRError, match=complaint):
            Knowledge.of([bad])


def test_cells_that_say_nothing_are_unknown_whatever_they_are_made_of() -> None:
    import pandas

    cells = [None, "", "  ", float("nan"), np.float32("nan"), pandas.NA, 0]
    for cell in cells:
        known = Knowledge(["a"], ["x", "y"], np.array([["yes", cell]], object))
        assert known.table.tolist() == [[1, 0]], cell
        assert len(known) == 1


def test_copies_are_as_frozen_as_the_original() -> None:
    known = Knowledge(["a"], ["x"], [["yes"]])
    assert known.table.size
    with pytest.raises(AttributeError, match="frozen"):
        del known.classes
    for again in (copy.copy(known), copy.deepcopy(known), pickle.loads(pickle.dumps(known))):  # noqa: S301
        assert again == known
        assert list(again) == list(known)
        assert hash(again) == hash(known)
        assert not again.table.flags.writeable
        assert not any(array.flags.writeable for array in again.packed()[1].values() if array.base is not None)
        with pytest.raises(ValueError, match="read-only"):
            again.table[0, 0] = -1
        with pytest.raises(AttributeError, match="frozen"):
            again.concepts = ()


def test_what_was_meant_is_the_name_itself_whatever_signs_it_has() -> None:
    for name in ("dogs'", '"quoted"', "back\\slash", "it's", "größe"):
        apart = Knowledge([f"{name}s"], ["x"], [[1]]).unmatched([name], ["x"])
        assert apart.meant == {f"{name}s": name}


@given(st.lists(ANSWERS, max_size=12), NAMES, NAMES)
def test_renaming_is_writing_another_name_into_every_answer(answers: list[Answer], old: str, new: str) -> None:
    known = Knowledge.of([*answers, Answer("c", old, "yes")])
    others = [one for one in known if one.concept != old]
    moved = [replace(one, concept=new) for one in known if one.concept == old]
    assert known.renamed(old, new) == Knowledge.of([*others, *moved])


def test_empty_knowledge_can_do_all_that_other_can(tmp_path: Path) -> None:
    empty = Knowledge.of([])
    for again in (
        empty.shuffled(),
        empty.about(["a"], ["x"]),
        empty.renamed("x", "y"),
        Knowledge([], [], np.zeros((0, 0))),
    ):
        assert again == empty
        assert not again.conflicts
    for name, wide in (("a.csv", False), ("a.parquet", False), ("w.csv", True)):
        empty.write(tmp_path / name, wide=wide)
        assert Knowledge.read(tmp_path / name) == empty
    assert Knowledge.unpacked(*empty.packed()) == empty
    assert empty.aligned_photos(["x"]).shape == (0, 1)
    assert empty.find("a", "x") is None
    assert empty.unmatched(["a"], ["x"]).missing_concepts == ("x",)
    assert empty.aligned(["a"], ["x"]).tolist() == [[0]]
    assert empty.merge() == empty
    assert len(empty) == 0
    assert "empty" in repr(empty)
