"""The log of decisions: nothing that was confirmed is ever lost, and what it says follows from its lines alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from ccr import Concepts, Knowledge
from ccr.errors import CCRError, FormatError
from ccr.knowledge import Answer
from ccr.review.decisions import REPLIES, Decisions, concept_digests, same_concept

WRITER = (
    "import sys; from ccr.review.decisions import Decisions\n"
    "log = Decisions(sys.argv[1])\n"
    "for number in range(int(sys.argv[3])):\n"
    "    log.decide('pear', f'concept {number}', 'yes', by=sys.argv[2])\n"
    "    print(number, flush=True)\n"
)


def writer(path: Path, by: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), by, str(count)], stdout=subprocess.PIPE, text=True
    )


def test_what_was_decided_is_read_back_by_anybody(tmp_path: Path) -> None:
    log = Decisions(tmp_path / "deep" / "log.jsonl")
    made = log.decide("pear", "bumpy peel", "no", by="ann", reason="background", model="m", digest="00ff")
    assert list(Decisions(log.path)) == [made] == list(log)
    line = json.loads((tmp_path / "deep" / "log.jsonl").read_text(encoding="utf-8"))
    assert {"by", "at", "class", "concept", "answer", "reason", "model", "digest"} <= set(line)
    assert made.at.endswith("+00:00")


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path, count = tmp_path / "log.jsonl", 150
    both = [writer(path, by, count) for by in ("ann", "bob")]
    assert [process.wait() for process in both] == [0, 0]
    log = Decisions(path)
    assert len(log) == 2 * count
    for by in ("ann", "bob"):
        assert [one.concept for one in log if one.by == by] == [f"concept {number}" for number in range(count)]


def test_a_killed_writer_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    process = writer(path, "ann", 100_000)
    assert process.stdout is not None
    confirmed = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    confirmed += process.stdout.readlines()
    process.wait()
    with path.open("ab") as stream:  # as if it had been killed amid a line
        stream.write(b'{"id": "1234", "by": "an')
    log = Decisions(path)
    assert len(log) >= sum(line.endswith("\n") for line in confirmed)
    assert [one.concept for one in log] == [f"concept {number}" for number in range(len(log))]
    log.decide("pear", "afterwards", "yes", by="bob")
    assert b'"an{' not in path.read_bytes()
    assert [one.concept for one in Decisions(path)][-1] == "afterwards"
    assert len(Decisions(path)) == len(log)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_ignored_and_repaired(tmp_path: Path, cut: int) -> None:
    log = Decisions(tmp_path / "log.jsonl")
    log.decide("pear", "one", "yes", by="ann")
    log.decide("pear", "two", "yes", by="ann")
    path = tmp_path / "log.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    torn = Decisions(path)
    assert [one.concept for one in torn] == ["one"]
    torn.decide("pear", "three", "no", by="ann")
    assert [one.concept for one in Decisions(path)] == ["one", "three"]


def test_a_reader_sees_what_others_add_and_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    mine, theirs = Decisions(path), Decisions(path)
    mine.decide("pear", "one", "yes", by="ann")
    theirs.refresh()
    assert [one.concept for one in theirs] == ["one"]
    path.rename(tmp_path / "moved.jsonl")
    assert [one.concept for one in Decisions(tmp_path / "moved.jsonl")] == ["one"]
    theirs.decide("apple", "other", "no", by="bob")  # a new file of the old name
    mine.refresh()
    assert [one.concept for one in mine] == ["other"]


def test_a_line_that_was_changed_counts_as_it_is_now(tmp_path: Path) -> None:
    """An editor writes into the same file: what was read before is not what stands there."""
    path = tmp_path / "log.jsonl"
    log = Decisions(path)
    for concept in ("one", "two"):
        log.decide("pear", concept, "yes", by="ann")
    text = path.read_text(encoding="utf-8").replace('"answer": "yes"', '"answer": "no"', 1)
    path.write_text(text, encoding="utf-8")
    Decisions(path).decide("pear", "three", "unclear", by="bob")
    log.refresh()
    assert [one.answer for one in log] == ["no", "yes", "unclear"]
    path.unlink()
    log.refresh()
    assert list(log) == []


def test_a_damaged_line_is_said_until_it_is_mended_and_nothing_is_added(tmp_path: Path) -> None:
    """It was said once; then the log went on without it, as if nobody had answered."""
    path = tmp_path / "log.jsonl"
    log = Decisions(path)
    log.decide("pear", "one", "yes", by="ann")
    whole = path.read_bytes()
    damaged = whole + b'{"damaged": 1}\n' + whole.replace(b"one", b"two").replace(b'"id": "', b'"id": "0')
    path.write_bytes(damaged)
    for _ in range(3):
        with pytest.raises(FormatError, match=r"line 2 of .*mend or delete that line"):
            log.refresh()
    with pytest.raises(FormatError, match="line 2 of"):
        log.decide("pear", "three", "yes", by="ann")
    assert path.read_bytes() == damaged
    path.write_bytes(damaged.replace(b'{"damaged": 1}\n', b""))
    log.refresh()
    assert [one.concept for one in log] == ["one", "two"]


def test_undo_is_a_line_and_brings_back_what_was_said_before(tmp_path: Path) -> None:
    log = Decisions(tmp_path / "log.jsonl")
    log.decide("pear", "bumpy", "yes", by="ann")
    log.decide("pear", "bumpy", "no", by="ann")
    log.decide("pear", "bumpy", "no", by="bob")
    assert log.undo(by="ann").answer == "no"
    assert {vote.by: vote.answer for vote in Decisions(log.path).votes("pear", "bumpy")} == {"ann": "yes", "bob": "no"}
    assert len((tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()) == 4
    log.undo(by="ann")
    with pytest.raises(CCRError, match="no decision is left"):
        log.undo(by="ann")
    with pytest.raises(CCRError, match="own decisions"):
        log.undo(next(iter(log)).id, by="ann")


def test_a_struck_concept_is_no_for_every_class_until_somebody_says_otherwise() -> None:
    log = Decisions()
    log.decide("pear", "aisle", "yes", by="ann")
    log.strike("aisle", by="ann")
    known = log.knowledge(classes=["pear", "apple", "plum"])
    assert [known.find(label, "aisle").answer for label in ("pear", "apple", "plum")] == ["no"] * 3
    log.decide("plum", "aisle", "yes", by="ann")
    known = log.knowledge(classes=["pear", "apple", "plum"])
    assert known.aligned(["pear", "apple", "plum"], ["aisle"])[:, 0].tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    ("answers", "one", "two", "everybody"),
    [
        ({"ann": "yes"}, "yes", "open", "open"),
        ({"ann": "yes", "bob": "yes"}, "yes", "yes", "open"),
        ({"ann": "yes", "bob": "yes", "cy": "yes"}, "yes", "yes", "yes"),
        ({"ann": "no", "bob": "no"}, "no", "no", "open"),
        ({"ann": "yes", "bob": "no"}, "disputed", "disputed", "disputed"),
        ({"ann": "yes", "bob": "unclear"}, "yes", "unclear", "unclear"),
        ({"ann": "unclear"}, "unclear", "unclear", "unclear"),
        ({}, "open", "open", "open"),
    ],
)
def test_policies(answers: dict[str, str], one: str, two: str, everybody: str) -> None:
    log = Decisions()
    for by in ("ann", "bob", "cy"):
        log.decide("apple", "something else", "yes", by=by)
    for by, answer in answers.items():
        log.decide("pear", "bumpy", answer, by=by)
    votes = log.votes("pear", "bumpy")
    assert [log.verdict(votes, policy) for policy in ("one", "two", "all")] == [one, two, everybody]
    for policy, verdict in (("one", one), ("two", two), ("all", everybody)):
        found = log.knowledge(policy).find("pear", "bumpy")
        assert (found.answer if found else None) == (verdict if verdict in ("yes", "no") else None)


def test_reviewers_are_blind_until_they_have_decided() -> None:
    log = Decisions()
    log.decide("pear", "bumpy", "yes", by="ann")
    assert log.votes("pear", "bumpy", viewer="bob") == ()
    log.decide("pear", "bumpy", "no", by="bob")
    assert {vote.by for vote in log.votes("pear", "bumpy", viewer="bob")} == {"ann", "bob"}
    (dispute,) = log.disputes()
    assert (dispute.label, dispute.concept) == ("pear", "bumpy")


@given(st.lists(st.tuples(st.sampled_from(REPLIES), st.sampled_from(REPLIES)), min_size=2, max_size=40))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    log = Decisions()
    for number, (first, second) in enumerate(pairs):
        log.decide("pear", f"concept {number}", first, by="ann")
        log.decide("pear", f"concept {number}", second, by="bob")
    log.decide("pear", "ann alone was asked", "yes", by="ann")
    found = log.agreement("ann", "bob")
    first, second = (list(column) for column in zip(*pairs, strict=True))
    assert found.questions == len(pairs)
    assert found.share == pytest.approx(np.mean(np.array(first) == np.array(second)))
    if len(set(first) | set(second)) == 1:
        assert found.kappa is None
    else:
        assert found.kappa == pytest.approx(cohen_kappa_score(first, second))


LINES = st.lists(
    st.one_of(
        st.tuples(
            st.just("decide"),
            st.sampled_from(["ann", "bob"]),
            st.sampled_from([None, "pear", "apple"]),
            st.sampled_from(["bumpy", "round"]),
            st.sampled_from(REPLIES),
        ),
        st.tuples(st.just("undo"), st.sampled_from(["ann", "bob"])),
    ),
    max_size=25,
)


@given(LINES)
def test_replaying_the_lines_gives_what_a_simple_reading_gives(lines: list[tuple[str, ...]]) -> None:
    log, kept = Decisions(), list[tuple[str, str | None, str, str]]()
    for line in lines:
        if line[0] == "undo":
            last = next((at for at in reversed(range(len(kept))) if kept[at][0] == line[1]), None)
            if last is not None:
                log.undo(by=line[1])
                del kept[last]
        elif line[2] is None:
            log.strike(line[3], by=line[1])
            kept.append((line[1], None, line[3], "no"))
        else:
            log.decide(line[2], line[3], line[4], by=line[1])
            kept.append((line[1], line[2], line[3], line[4]))
    for label in ("pear", "apple"):
        for concept in ("bumpy", "round"):
            expected = {by: answer for by, own, name, answer in kept if name == concept and own in (None, label)}
            assert {vote.by: vote.answer for vote in log.votes(label, concept)} == expected


def test_a_taught_concept_is_asked_again_and_a_renamed_one_is_not() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 512))
    concepts = Concepts(["bumpy", "round", "aisle"], rows)
    digests = concept_digests(concepts)
    log = Decisions()
    for name in concepts.names:
        log.decide("pear", name, "yes", by="ann", digest=digests[name])
    elsewhere = Concepts(concepts.names, concepts.embeddings + rng.normal(size=rows.shape) * 1e-7)
    assert len(log.of(elsewhere)) == 3  # the same texts, embedded on another machine
    taught = concepts.embeddings.copy()
    taught[0] += 0.1 * rng.normal(size=512) / np.sqrt(512)
    assert [one.concept for one in log.of(Concepts(concepts.names, taught))] == ["round", "aisle"]
    renamed = Concepts(["knobbly", "round", "aisle"], concepts.embeddings)
    assert [one.concept for one in log.of(renamed)] == ["knobbly", "round", "aisle"]
    assert log.knowledge(concepts=renamed).find("pear", "knobbly") is not None


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 1.0))
def test_digests_tell_moved_concepts_from_rounded_ones(seed: int, step: float) -> None:
    rng = np.random.default_rng(seed)
    row, way = rng.normal(size=256), rng.normal(size=256)
    row, way = row / np.linalg.norm(row), way / np.linalg.norm(way)
    digest, rounded, moved = (
        concept_digests(Concepts(["bumpy"], found[None]))["bumpy"]
        for found in (row, row + 1e-8 * way, row + step * way)
    )
    assert same_concept(digest, rounded)
    assert not same_concept(digest, moved)


def test_a_table_counts_as_a_vote_of_its_author_but_not_a_language_model() -> None:
    table = Knowledge.of([Answer("pear", "bumpy", "yes", "file"), Answer("pear", "round", "yes", "llm", "some model")])
    log = Decisions()
    assert [vote.by for vote in log.votes("pear", "bumpy", known=table)] == ["file"]
    assert log.votes("pear", "round", known=table) == ()
    assert [vote.by for vote in log.votes("pear", "bumpy", known=table, viewer="bob")] == ["file"]
    log.decide("pear", "bumpy", "no", by="ann")
    assert log.knowledge(known=table).find("pear", "bumpy") is None  # disputed: nobody knows
    assert log.knowledge(known=table).find("pear", "round").source == "llm"
    log.decide("pear", "bumpy", "yes", by="ann")
    assert log.knowledge("two", known=table).find("pear", "bumpy").by == "file and ann"
    assert [vote.by for vote in log.votes("pear", "bumpy", known=table, viewer="bob")] == ["file"]  # and not ann


def test_an_answer_that_a_model_has_from_the_log_is_not_a_second_vote() -> None:
    log = Decisions()
    log.decide("pear", "bumpy", "yes", by="ann")
    fitted_with = log.knowledge()
    assert len(log.votes("pear", "bumpy", known=fitted_with)) == 1
    assert log.verdict(log.votes("pear", "bumpy", known=fitted_with), "two") == "open"
    log.undo(by="ann")
    assert log.votes("pear", "bumpy", known=fitted_with) == ()
    assert len(log.knowledge(known=fitted_with)) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"answer": "maybe"}, "yes, no, unclear"),
        ({"by": " "}, "must not be empty"),
        ({"reason": "because"}, "a reason is one of"),
        ({"answer": "yes", "reason": "background"}, "for the answer no"),
        ({"reason": "never"}, "use strike"),
        ({"concept": ""}, "must not be empty"),
        ({"concept": "a\x1b[2J"}, "control characters"),
        ({"digest": "xyz"}, "hexadecimal"),
        ({"digest": "aa " * 21 + " "}, "hexadecimal"),  # as long as a real one, and no whole numbers
        ({"digest": "00f"}, "hexadecimal"),
        ({"label": ""}, "empty name"),
    ],
)
def test_bad_decisions_are_refused_and_leave_no_line(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    log = Decisions(tmp_path / "log.jsonl")
    good = {"label": "pear", "concept": "bumpy", "answer": "no", "by": "ann", "reason": ""} | fields
    label, concept, answer = (good.pop(name) for name in ("label", "concept", "answer"))
    with pytest.raises(CCRError, match=message):
        log.decide(label, concept, answer, **good)
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"id": "1"}', '{"undo": "none", "by": "ann"}', '{"id": 3}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    Decisions(path).decide("pear", "bumpy", "yes", by="ann")
    with path.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    with pytest.raises(FormatError, match="line 2 of"):
        Decisions(path)


def test_bad_policies_and_places(tmp_path: Path) -> None:
    with pytest.raises(CCRError, match="one, two, all"):
        Decisions().knowledge("most")
    with pytest.raises(CCRError, match=r"folder|regular"):
        Decisions(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CCRError, match="cannot be written"):
        Decisions(tmp_path / "file" / "log.jsonl").decide("pear", "bumpy", "yes", by="ann")


def test_agreement_is_measured_among_those_who_answered_most() -> None:
    """Of 400 names it was asked for in 80,000 pairs, whenever a page of the studio was opened: 18 seconds."""
    log = Decisions()
    for number in range(30):
        for concept in ("red", "round") if number >= 10 else ("red",):
            log.decide("apple", concept, "yes", by=f"reviewer {number}")
    found = log.agreements()
    assert len(found) == 20 * 19 // 2
    assert {one.first for one in found} | {one.second for one in found} == {f"reviewer {n}" for n in range(10, 30)}
    assert all((one.questions, one.share) == (2, 1.0) for one in found)
    assert log.agreement("reviewer 0", "reviewer 29").questions == 1
