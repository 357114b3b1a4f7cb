"""`ccr knowledge ...` and `ccr fit --knowledge`, as a user types them."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ccr import ConceptModel, EmbeddingStore, Knowledge
from ccr.cli.common_data import note_coverage
from ccr.errors import CCRError
from ccr.vocab import read_concepts
from tests.cli.conftest import as_json, run
from tests.vocab.test_llm import Server


def table(path: Path, rows: list[tuple[str, ...]], heading: str = "class,concept,answer,by") -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(heading.split(","))
        writer.writerows(rows)
    return path


@pytest.fixture
def made(workspace: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A store, its list and a table: of each class every second concept is true."""
    store, concepts = workspace / "store", workspace / "concepts.txt"
    classes, names = EmbeddingStore.open(store).classes, read_concepts(concepts)
    rows = [
        (str(label), name, "yes" if (row + column) % 2 else "no", "Ada")
        for row, label in enumerate(classes)
        for column, name in enumerate(names)
    ]
    return store, concepts, table(tmp_path / "known.csv", rows)


def test_fit_with_a_table_makes_no_other_claims(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store, concepts, known = made
    found = as_json(
        "fit", store, "--concepts", concepts, "--knowledge", known, "--out", tmp_path / "model", "--epochs", 3
    )
    assert found["results"]
    model = ConceptModel.load(tmp_path / "model")
    assert model.provenance.knowledge == Knowledge.read(known)
    assert {claim.status for claim in model.claims()} == {"confirmed"}
    said = run("fit", store, "--concepts", concepts, "--knowledge", known, "--out", tmp_path / "model", "--epochs", 3)
    assert said.exit_code == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--claims", "confirmed"],
        ["--min-transfer", "0.6"],
        ["--stated-truth", "0.85"],
        ["--claims", "some", "--knowledge", "x.csv"],
    ],
)
def test_options_without_a_table_are_misuse(made: tuple[Path, Path, Path], tmp_path: Path, options: list[str]) -> None:
    store, concepts, _ = made
    done = run("fit", store, "--concepts", concepts, "--out", tmp_path / "model", *options)
    assert done.exit_code == 2
    assert not (tmp_path / "model").exists()


def test_show_lists_what_a_class_has(tmp_path: Path) -> None:
    known = table(tmp_path / "known.csv", [("pear", "green", "yes", "A"), ("plum", "green", "no", "A")])
    found = as_json("knowledge", "show", known, "--class", "pear")
    assert [(one["class"], one["concept"], one["answer"]) for one in found["answers"]] == [("pear", "green", "yes")]
    with pytest.raises(CCRError, match="did you mean 'pear'"):
        run("knowledge", "show", known, "--class", "paer")
    assert "pear" in run("knowledge", "show", known).stdout


def test_merge_keeps_the_persons_answer_and_reports_the_conflict(tmp_path: Path) -> None:
    one = table(tmp_path / "one.csv", [("pear", "green", "no", "Ada")])
    two = table(tmp_path / "two.csv", [("pear", "green", "yes", "wordnet")], "class,concept,answer,source")
    found = as_json("knowledge", "merge", one, two, "--out", tmp_path / "all.parquet")
    assert [pair[0]["by"] for pair in found["conflicts"]] == ["Ada"]
    assert Knowledge.read(tmp_path / "all.parquet").find("pear", "green").answer == "no"


def test_check_finds_what_is_wrong(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store, concepts, known = made
    clean = as_json("knowledge", "check", known, "--store", store, "--concepts", concepts)
    assert clean["coverage"] == 1.0
    assert not any(clean["problems"].values())
    assert set(clean["transfer"]) == set(read_concepts(concepts))
    label = str(EmbeddingStore.open(store).classes[0])
    wrong = table(tmp_path / "wrong.csv", [(label.upper() + "s", read_concepts(concepts)[0], "yes", "A")])
    found = as_json("knowledge", "check", wrong, "--store", store, "--concepts", concepts)
    assert found["problems"]["classes of the table that the store does not have"]
    assert found["coverage"] == 0.0


def test_a_language_model_is_asked_strictly_and_only_what_is_open(
    made: tuple[Path, Path, Path], tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, concepts, _ = made
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = read_concepts(concepts)
    asked: list[list[str]] = []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        lines = body["messages"][0]["content"].split("\n")
        wanted = json.loads(lines[2])
        asked.append(wanted)
        # The first answer forgets a concept: it is refused, and asked for again.
        said = dict.fromkeys(wanted[1:] if len(asked) == 1 else wanted, "yes")
        content = {"choices": [{"message": {"content": json.dumps(said)}}]}
        return 200, {}, json.dumps(content).encode()

    server.answers = [answer] * 200
    label = str(EmbeddingStore.open(store).classes[0])
    out = table(tmp_path / "known.csv", [(label, names[0], "no", "Ada")])
    llm = ["--sources", "llm", "--llm-url", server.url, "--llm-model", "tiny"]
    given = ["knowledge", "ask", store, "--concepts", concepts, "--out", out, *llm]
    cost = as_json(*given, "--dry-run")
    found = as_json(*given)
    assert found["failed"] == {}
    assert len(asked) == cost["requests"] + 1
    known = Knowledge.read(out)
    assert known.find(label, names[0]).by == "Ada"
    assert known.find(label, names[1]).source == "llm"
    assert names[0] not in asked[1]
    before = len(asked)
    assert as_json(*given)["new"] == 0
    assert len(asked) == before


def test_asking_again_leaves_corrected_cells_alone(tmp_path: Path, workspace: Path) -> None:
    concepts, out = tmp_path / "list.txt", tmp_path / "known.csv"
    label = str(EmbeddingStore.open(workspace / "store").classes[0])
    colour = label.split()[0]
    concepts.write_text(f"{colour}\nround\n", encoding="utf-8")
    given = ["knowledge", "ask", workspace / "store", "--concepts", concepts, "--out", out]
    try:
        as_json(*given)
    except CCRError as error:
        pytest.skip(str(error))
    asked = Knowledge.read(out)
    assert asked.find(label, colour).answer == "yes"
    out.write_text(out.read_text(encoding="utf-8").replace(",yes,", ",no,"), encoding="utf-8")  # the answer alone
    corrected = Knowledge.read(out)
    assert as_json(*given)["new"] == 0
    assert Knowledge.read(out) == corrected != asked


@pytest.mark.parametrize("options", [["--photos", 2], ["--llm-model", "m"], ["--dry-run"]])
def test_options_for_a_language_model_need_one(
    made: tuple[Path, Path, Path], tmp_path: Path, options: list[object]
) -> None:
    store, concepts, _ = made
    done = run("knowledge", "ask", store, "--concepts", concepts, "--out", tmp_path / "new.csv", *options)
    assert done.exit_code == 2
    assert not (tmp_path / "new.csv").exists()


def test_photos_that_a_model_is_shown_are_small(
    made: tuple[Path, Path, Path], tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, concepts, _ = made
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        wanted = json.loads(body["messages"][0]["content"][0]["text"].split("\n")[2])
        content = {"choices": [{"message": {"content": json.dumps(dict.fromkeys(wanted, "unknown"))}}]}
        return 200, {}, json.dumps(content).encode()

    server.answers = [answer]
    llm = ["--sources", "llm", "--llm-url", server.url, "--llm-model", "tiny", "--photos", 2]
    found = as_json("knowledge", "ask", store, "--concepts", concepts, "--out", tmp_path / "seen.csv", *llm)
    assert found["unknown"] == found["answers"] > 0
    for body in server.requests:
        pictures = body["messages"][0]["content"][1:]
        assert len(pictures) == 2
        for picture in pictures:
            kind, _, content = picture["image_url"]["url"].partition(",")
            assert kind == "data:image/jpeg;base64"
            assert max(Image.open(io.BytesIO(base64.b64decode(content))).size) <= 448


def test_check_names_concepts_that_are_true_of_every_class_or_of_none(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    store, concepts, _ = made
    classes, names = EmbeddingStore.open(store).classes, read_concepts(concepts)
    rows = [(str(label), name, "yes" if at == 0 else "no", "A") for label in classes for at, name in enumerate(names)]
    problems = as_json("knowledge", "check", table(tmp_path / "t.csv", rows), "--store", store)["problems"]
    named = {words: found for words, found in problems.items() if words.startswith("concepts that are yes")}
    assert list(named.values()) == [names[:1], names[1:]]


def test_show_counts_and_file_names_are_no_markup(tmp_path: Path) -> None:
    known = table(tmp_path / "[bold]k.csv", [("pear", "green", "yes", "A"), ("pear", "blue", "no", "A")])
    said = " ".join(run("knowledge", "show", known).stdout.split())
    assert "[bold]k.csv" in said.replace(" ", "")
    assert "1 yes, 1 no, 0 unknown" in said
    assert "1: green" in said


def test_a_sweep_takes_a_table(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store, concepts, known = made
    given = ["sweep", store, "--concepts", concepts, "--over", "radius=0,0.1", "--epochs", 1, "--over", "length=2"]
    found = as_json(*given, "--knowledge", known, "--candidates", 2, "--out", tmp_path / "sweep")
    assert "--candidates 2.0" in found["recommended"]["command"]
    assert f"--knowledge {known}" in found["recommended"]["command"]


def test_rows_for_every_class_are_not_taken_for_knowledge_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "answers.csv"
    for rows, told in (("pear,green,yes", False), ("pear,green,yes\n*,shelf,no", True)):
        table.write_text(f"class,concept,answer\n{rows}\n", encoding="utf-8")
        note_coverage(Knowledge.read(table), ["pear", "apple"], ["green", "shelf"])
        assert ("rows of the class * are for `ccr review --answers` alone" in capsys.readouterr().err) is told
