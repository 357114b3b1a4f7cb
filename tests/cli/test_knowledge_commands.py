"""`ccr knowledge ...` and `ccr fit --knowledge`, as a user types them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ccr import ConceptModel, EmbeddingStore, Knowledge
from ccr.data.vocab import read_concepts
from ccr.errors import CCRError
from tests.cli.test_commands import as_json, run, workspace  # noqa: F401 (fixture)
from tests.data.test_llm import Server, server  # noqa: F401 (fixture)


def table(path: Path, rows: list[tuple[str, ...]], heading: str = "class,concept,answer,by") -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(heading.split(","))
        writer.writerows(rows)
    return path


@pytest.fixture
def made(workspace: Path, tmp_path: Path) -> tuple[Path, Path, Path]:  # noqa: F811 (fixture)
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
    assert said.exit_code == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options", [["--claims", "confirmed"], ["--min-transfer", "0.6"], ["--claims", "some", "--knowledge", "x.csv"]]
)
def test_options_without_a_table_are_misuse(made: tuple[Path, Path, Path], tmp_path: Path, options: list[str]) -> None:
    store, concepts, _ = made
    done = run("fit", store, "--concepts", concepts, "--out", tmp_path / "model", *options)
    assert done.exit_code == 2  # type: ignore[attr-defined]
    assert not (tmp_path / "model").exists()


def test_show_lists_what_a_class_has(tmp_path: Path) -> None:
    known = table(tmp_path / "known.csv", [("pear", "green", "yes", "A"), ("plum", "green", "no", "A")])
    found = as_json("knowledge", "show", known, "--class", "pear")
    assert [(one["class"], one["concept"], one["answer"]) for one in found["answers"]] == [("pear", "green", "yes")]
    with pytest.raises(CCRError, match="did you mean 'pear'"):
        run("knowledge", "show", known, "--class", "paer")
    assert "pear" in run("knowledge", "show", known).stdout  # type: ignore[attr-defined]


def test_merge_keeps_the_persons_answer_and_reports_the_conflict(tmp_path: Path) -> None:
    one = table(tmp_path / "one.csv", [("pear", "green", "no", "Ada")])
    two = table(tmp_path / "two.csv", [("pear", "green", "yes", "wordnet")], "class,concept,answer,source")
    found = as_json("knowledge", "merge", one, two, "--out", tmp_path / "all.parquet")
    assert [pair[0]["by"] for pair in found["conflicts"]] == ["Ada"]
    assert Knowledge.read(tmp_path / "all.parquet").find("pear", "green").answer == "no"  # type: ignore[union-attr]


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
    made: tuple[Path, Path, Path],
    tmp_path: Path,
    server: Server,  # noqa: F811 (fixture)
    monkeypatch: pytest.MonkeyPatch,
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
    assert known.find(label, names[0]).by == "Ada"  # type: ignore[union-attr]
    assert known.find(label, names[1]).source == "llm"  # type: ignore[union-attr]
    assert names[0] not in asked[1]
    before = len(asked)
    assert as_json(*given)["new"] == 0
    assert len(asked) == before
