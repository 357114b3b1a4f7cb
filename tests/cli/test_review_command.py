"""`ccr review`, as a user types it: by a table, by lines, by keys of a terminal; check, sign, export."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccr import ConceptModel, Knowledge
from ccr.cli import app
from ccr.errors import CCRError
from ccr.review import Decisions
from tests.cli.conftest import HOSTILE, Terminal, as_json, run


@pytest.fixture(scope="module")
def small(workspace: Path) -> Path:
    """A model with two weights per class."""
    as_json("fit", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", workspace / "small",
            "--length", 4, "--weights", 2)  # fmt: skip
    return workspace / "small"


@pytest.fixture
def given(small: Path, workspace: Path, tmp_path: Path) -> list[object]:
    """The command with its arguments, its log not begun yet."""
    return ["review", small, workspace / "store", "--log", tmp_path / "log.jsonl", "--out", tmp_path / "reviewed"]


def said(given: list[object], lines: str, *options: object) -> Any:
    return run(*given, *options, lines=lines)


def exit_code(*arguments: object) -> int:
    """How the command ends: 1 where it refuses its input in words, 2 for misuse."""
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exception is None or isinstance(done.exception, (CCRError, SystemExit)), done.exception
    return done.exit_code


def write_answers(path: Path, model: Path, *, no: int = 0) -> Path:
    """Yes to all concepts of the list for all classes, but for the model's first claims of each class."""
    loaded = ConceptModel.load(model)
    names = [*loaded.names, *loaded.provenance.left_out]
    first = {(str(claim.label), claim.concept) for claim in loaded.claims()[:no]}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["class", "concept", "answer", "reason"])
        for label in loaded.classes.tolist():
            for name in names:
                wrong = (label, name) in first
                writer.writerow([label, name, "no" if wrong else "yes", "background" if wrong else ""])
    return path


def test_a_whole_review_by_a_table(given: list[object], small: Path, workspace: Path, tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "answers.csv", small, no=2)
    assert exit_code("review", small, "--check") == 1
    found: Any = as_json(*given, "--answers", answers, "--by", "Ada", "--rounds", 5, "--folds", 2, "--sign")
    assert found["signed"]
    assert found["open"] == []
    assert found["answers"] == found["decisions"] == len(Decisions(tmp_path / "log.jsonl"))
    assert [claim["concept"] for claim in found["rounds"][0]["gone"]]
    assert all(0 <= found["rounds"][-1][f"accuracy_{when}"] <= 1 for when in ("before", "after"))
    reviewed = ConceptModel.load(tmp_path / "reviewed")
    assert reviewed.is_signed
    assert reviewed.signature is not None
    assert reviewed.signature.by == "Ada"
    assert {one.reason for one in reviewed.signature.never} == {"background"}
    assert not {(one.label, one.concept) for one in reviewed.signature.never} & {
        (str(claim.label), claim.concept) for claim in reviewed.claims()
    }
    assert exit_code("review", tmp_path / "reviewed", "--check") == 0
    assert not ConceptModel.load(small).is_signed
    again: Any = as_json(*given, "--answers", answers, "--rounds", 5)  # goes on where it stopped: nothing is left
    assert again["answers"] == 0
    assert again["rounds"] == []
    shown = said(["claims", tmp_path / "reviewed"], "")
    assert "Signed by Ada" in " ".join(shown.stdout.split())
    photo = workspace / "photos" / "red fruit" / "0.png"
    why: Any = as_json("explain", tmp_path / "reviewed", photo, "--out", tmp_path / "why.html")
    assert why["explanations"][0]["signature"].startswith("Signed by Ada")
    assert "Signed by Ada" in (tmp_path / "why.html").read_text(encoding="utf-8")
    edited = tmp_path / "edited"
    assert exit_code("edit", tmp_path / "reviewed", "--out", edited, "--scale", f"{reviewed.names[0]}=0.5") == 0
    assert exit_code("review", edited, "--check") == 1


def test_lines_answer_and_the_same_command_goes_on(given: list[object], tmp_path: Path) -> None:
    done = said(given, "y\n2\nx\nb\nu\ns\nq\n", "--by", "Ada")
    assert done.exit_code == 0, done.output
    log = Decisions(tmp_path / "log.jsonl")
    assert [(one.answer, one.reason) for one in log] == [("yes", ""), ("no", "wrong of this class"), ("unclear", "")]
    assert {one.by for one in log} == {"Ada"}
    assert all(one.digest and one.model for one in log)
    assert "shows" in done.stdout
    assert "of the class" in done.stdout
    before = [(one.label, one.concept) for one in log]
    done = said(given, "never a reason for any class\nq\n", "--by", "Ada")
    log = Decisions(tmp_path / "log.jsonl")
    assert len(log) == 4
    assert list(log)[-1].label is None
    assert list(log)[-1].concept not in {concept for _, concept in before[:1]}
    with pytest.raises(CCRError, match="an answer is one of"):
        said(given, "nonsense\n", "--by", "Ada")


def test_refit_by_key_writes_the_model_and_asks_what_is_new(given: list[object], tmp_path: Path) -> None:
    done = said(given, "n\nr\nq\n", "--by", "Ada", "--folds", "2")
    assert done.exit_code == 0, done.output
    assert "round 1" in done.output
    (no,) = Decisions(tmp_path / "log.jsonl")
    claims = ConceptModel.load(tmp_path / "reviewed").claims()
    assert (no.label, no.concept) not in {(str(claim.label), claim.concept) for claim in claims}
    assert "Round 2" in done.stdout
    done = said(given, "q\n", "--by", "Ada")
    assert "the model of the last round" in done.output


def test_two_reviewers_and_a_policy(given: list[object], small: Path, tmp_path: Path) -> None:
    claims = len(ConceptModel.load(small).claims())
    said(given, "y\n" * claims, "--by", "Ada", "--policy", "two")
    done = said(given, "y\nn\n" + "y\n" * claims, "--by", "Bob", "--policy", "two")
    assert f"agree on {(claims - 1) / claims:.0%} of {claims} claims" in " ".join(done.stdout.split())
    assert "disputed" in done.stdout
    found = said(["review", small, "--log", tmp_path / "log.jsonl", "--check", "--policy", "two", "--json"], "")
    assert found.exit_code == 1
    facts = json.loads(found.stdout)
    assert facts["counts"]["disputed"] == 1
    assert facts["counts"]["confirmed"] == claims - 1
    assert len(facts["disputes"]) == 1
    assert not facts["signed"]


@pytest.mark.parametrize("ending", ["csv", "json", "html"])
def test_exports(given: list[object], small: Path, tmp_path: Path, ending: str) -> None:
    said(given, "y\nn\nq\n", "--by", "=1+1")
    path = tmp_path / f"table.{ending}"
    options = ["--log", tmp_path / "log.jsonl", "--export", path]
    assert exit_code("review", small, *options) == 0
    text = path.read_text(encoding="utf-8")
    claims = ConceptModel.load(small).claims()
    if ending == "csv":
        known = Knowledge.read(path)  # a table that `ccr fit --knowledge` takes
        assert known.counts["yes"] == known.counts["no"] == 1
        assert len(known) == len(claims)
        assert not any(cell.startswith("=") for row in csv.reader(text.splitlines()) for cell in row)
    elif ending == "json":
        assert len(json.loads(text)["claims"]) == len(claims)
    else:
        assert "<script" not in text
        assert "It may never say" in text
        assert f"Not signed: nobody has signed this model; {len(claims) - 1} claims are not confirmed: " in text
        assert not any(name in text for name in HOSTILE if "<" in name)


def test_misuse_is_refused(given: list[object], small: Path, workspace: Path, tmp_path: Path) -> None:
    assert exit_code("review", small) == 2
    assert exit_code("review", small, "--rounds", 3, "--check") == 2
    assert exit_code(*given, "--json") == 2
    assert exit_code(*given, "--claims", "all") == 2
    assert exit_code("review", small, "--check", "--sign") == 2
    assert exit_code(*given, "--policy", "most") == 1
    assert exit_code("review", small, "--sign", "--by", "Ada") == 1  # claims are open
    assert exit_code("review", small, "--check", "--log", tmp_path / "none.jsonl") == 1
    assert exit_code("review", small, "--export", tmp_path / "table.pdf") == 1
    (tmp_path / "bad.csv").write_text("class,concept,answer\nred fruit,round,perhaps\n", encoding="utf-8")
    assert exit_code(*given, "--answers", tmp_path / "bad.csv") == 1
    assert not (tmp_path / "log.jsonl").exists()


def test_keys_in_a_terminal_with_photos_drawn(given: list[object], tmp_path: Path) -> None:
    with Terminal(*given, "--by", "Ada") as screen:
        screen.type("\x1b[Byn1q")  # an arrow is no answer
        shown = screen.until()
        assert screen.process.wait(120) == 0, shown
    assert [one.answer for one in Decisions(tmp_path / "log.jsonl")] == ["yes", "no", "no"]
    assert "▀" in shown


def test_the_end_says_how_to_go_on(given: list[object], small: Path, workspace: Path, tmp_path: Path) -> None:
    begun = " ".join(said(given, "y\nq\n", "--by", "ann").output.split())
    assert "log.jsonl;thesamecommandgoesonfromthere" in begun.replace(" ", "")  # a long path may be broken anywhere
    assert "--sign" not in begun.rpartition("quit")[2]
    unfinished = said(given, "n\nq\n", "--by", "ann", "--sign")
    assert unfinished.exit_code == 1
    told = " ".join(unfinished.output.split())
    assert "goes with a refit, such as --rounds 5, and with --claims confirmed only what is known" in told
    assert re.search(r"Not signed: 1 of \d+ claims confirmed\.$", told.strip()), told
    table = write_answers(tmp_path / "yes.csv", small)
    done = " ".join(said(given, "", "--by", "ben", "--answers", table, "--log", tmp_path / "other").output.split())
    assert "goes on from there" not in done
    assert "Every claim is confirmed: with --sign it is signed." in done
    assert "Signed" in said(given, "", "--by", "ben", "--answers", table, "--log", tmp_path / "other", "--sign").output
