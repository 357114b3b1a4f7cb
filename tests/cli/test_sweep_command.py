"""`ccr sweep` as a user types it."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ccr.classifier import ConceptClassifier
from ccr.coding.coders import check_length, usual_length
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.vocab import read_concepts
from ccr_lab.experiments.sweep import with_validation
from tests.cli.conftest import as_json, exit_code, run

GRID = ("--over", "length=3,5,999", "--over", "radius=0,0.1")


def arguments(workspace: Path, out: Path, *more: object) -> list[object]:
    return ["sweep", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", out, *more]


def only_what_failed(self: ConceptClassifier, *_: object, **__: object) -> None:
    """Settings that fail are tried again; a finished one must not be fitted."""
    assert self.coder.length == 999, "fitted again"
    check_length(999.0, len(self.concepts))


def test_a_sweep_from_grid_to_recommended_model(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "it's a sweep"
    typed = arguments(workspace, out, *GRID, "--epochs", 2, "--seeds", 2)
    found = as_json(*typed)
    assert {path.name for path in out.iterdir()} == {"runs", "sweep.json", "sweep.csv", "pareto.png"}
    with Image.open(out / "pareto.png") as image:
        image.load()
        assert image.size[0] > 800
    facts = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    assert found == {"out": str(out), **facts}
    results, failed = found["results"], found["failed"]
    assert [len(results), len(failed)] == [4, 2]
    shares = [result["validation_accuracy"]["mean"] for result in results]
    assert shares == sorted(shares, reverse=True)
    with (out / "sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["validation_accuracy"]) for row in rows[:4]] == shares
    assert "number of concepts" in rows[-1]["error"]

    monkeypatch.setattr(ConceptClassifier, "fit", only_what_failed)
    assert as_json(*typed) == found
    printed = run(*typed).stdout
    monkeypatch.undo()
    recommended = found["recommended"]
    command = recommended["command"]
    assert command in printed
    assert "…" not in printed  # in 80 columns
    ends = [100 * recommended["validation_accuracy"][end] for end in ("min", "max")]
    assert f"{ends[0]:.1f}-{ends[1]:.1f}" in printed
    words = shlex.split(command)
    assert words[:2] == ["ccr", "fit"]
    fitted = as_json(*words[1:])["results"]
    # The store has a split val, so the command makes the very model that was measured.
    assert list(fitted.values())[-1]["accuracy"] == recommended["runs"][0]["test_accuracy"]


def test_a_sweep_says_what_it_chose_and_by_which_rule(workspace: Path, tmp_path: Path) -> None:
    grid = *GRID, "--over", "dispersion=none,symmetric:0.9", "--over", "center=none"
    typed = arguments(workspace, tmp_path, *grid, "--epochs", 1)
    done = run(*typed, "--at-most", 4)
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert "the best validation accuracy of the settings that are short enough" in text
    assert "4 failed (length 999, radius 0, dispersion none;" in text
    assert "--no-center" in text
    recommended = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))["recommended"]
    assert recommended["validation_length"]["mean"] <= 4 * 1.02
    none = run(*typed, "--at-most", 1)
    assert "No setting has at most 1 concepts" in none.output


def test_a_sweep_over_fidelity_and_weights_leads_to_its_own_model(workspace: Path, tmp_path: Path) -> None:
    grid = ("--over", "fidelity=0.8,1", "--over", "weights=2", "--over", "radius=0.1", "--over", "sign=positive")
    typed = arguments(workspace, tmp_path, *grid, "--epochs", 3)
    done = run(*typed)
    assert done.exit_code == 0, done.output
    for heading in ("fidelity", "worst", "weights", "play"):
        assert heading in done.stdout
    found: Any = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    assert not found["failed"]
    assert all(result["weights_per_class"]["mean"] <= 2 for result in found["results"])
    faithful = [r["test_fidelity"]["mean"] for r in found["results"] if r["setting"]["fidelity"] == 1]
    assert faithful == pytest.approx([1.0], abs=1e-3)
    fitted: Any = as_json(*shlex.split(found["recommended"]["command"])[1:])["results"]
    assert list(fitted.values())[-1]["accuracy"] == found["recommended"]["runs"][0]["test_accuracy"]


def test_a_sweep_takes_the_length_that_fit_takes(workspace: Path, tmp_path: Path) -> None:
    typed = arguments(workspace, tmp_path, "--over", "radius=0", "--epochs", 1)
    found: Any = as_json(*typed)
    listed = len(read_concepts(workspace / "concepts.txt"))
    assert listed < 36
    assert [result["setting"]["length"] for result in found["results"]] == [usual_length(listed)]
    found = as_json(*arguments(workspace, tmp_path, "--over", "threshold=0.05", "--epochs", 1))
    assert [result["setting"]["length"] for result in found["results"]] == [None]


@pytest.mark.parametrize(
    "over",
    [
        [],
        ["--over", "width=3"],
        ["--over", "length=ten"],
        ["--over", "radius="],
        ["--over", "fidelity=2"],
        ["--over", "weights=0"],
        ["--over", "length=5", "--over", "length=6"],
        ["--over", "length=5", "--over", "threshold=0.1"],
        ["--over", "dispersion=wild"],
    ],
)
def test_a_bad_grid_is_misuse(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: list[object]
) -> None:
    assert exit_code(arguments(workspace, tmp_path / "out", *over), monkeypatch) == 2
    assert not (tmp_path / "out").exists()


def test_candidates_are_passed_on_and_stand_in_the_command(workspace: Path, tmp_path: Path) -> None:
    typed = arguments(workspace, tmp_path / "out", "--over", "weights=2", "--candidates", 1.5, "--epochs", 1)
    command = as_json(*typed)["recommended"]["command"]  # type: ignore[index]
    as_json(*shlex.split(command)[1:])
    assert ConceptClassifier.load(tmp_path / "out" / "model").candidates == 1.5


def test_refused_input(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(arguments(workspace, tmp_path / "out", "--over", "length=999", "--json"), monkeypatch) == 1
    assert "none of the 1 settings" in json.loads(capsys.readouterr().out)["error"]
    (tmp_path / "file").write_text("mine")
    assert exit_code(arguments(workspace, tmp_path / "file", "--over", "length=3"), monkeypatch) == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_without_a_validation_split_a_part_of_train_is_held_out(workspace: Path) -> None:
    store = EmbeddingStore.open(workspace / "store")
    some = store.select(rows=store.splits != "val")
    parts = with_validation(some, "a sweep")
    train, held = parts["train"], parts["val"]
    assert len(held.y) >= 1
    rows = [row.tobytes() for part in (train, held) for row in part.X]
    assert sorted(rows) == sorted(row.tobytes() for row in some.select("train")[:])
    assert np.array_equal(with_validation(some, "a sweep")["val"].X, held.X)
    with pytest.raises(CCRError, match="has no test"):
        with_validation(store.select("train"), "a sweep")
