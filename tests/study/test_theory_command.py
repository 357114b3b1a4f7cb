"""`ccr theory`: what it prints, writes, and exits with."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ccr.cli import theory as command
from ccr.errors import CCRError
from ccr.study import theory as study

FILES = {"results.json", "paper.png", "necessity.png", "event.png", "phase.png"}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command over small scenes."""
    monkeypatch.setattr(command, "EVENT_WORLDS", 3)
    monkeypatch.setattr(command, "EVENT_SAMPLES", (50, 100))
    monkeypatch.setattr(study, "paper_runs", partial(study.paper_runs, worlds=2, shorten=100))
    monkeypatch.setattr(study, "phase_diagram", partial(study.phase_diagram, n=3, worlds=2, radii=(0.1, 1.0), steps=5))
    app = typer.Typer()
    app.command()(command.theory)
    return app


def test_json_is_one_object_and_nothing_else(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--instances", "2", "--seed", "1", "--json"])
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert summary["ok"] is True
    assert {claim["verdict"] for claim in summary["claims"]} == {"holds", "fails, as it must"}
    assert all(claim["instances"] == 2 for claim in summary["claims"])


def test_out_holds_figures_and_results_and_the_table_names_what_was_broken(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["--instances", "2", "--out", str(tmp_path / "new" / "folder")], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 0, result.output
    written = tmp_path / "new" / "folder"
    assert {path.name for path in written.iterdir()} == FILES
    assert json.loads((written / "results.json").read_text())["phase"][0]["n"] == 3
    for words in ("n < d", "too few samples", "errors along x", "Every claim holds"):
        assert words in result.stdout


@pytest.mark.parametrize("verdict", ["violated", "cannot tell"])
def test_a_claim_in_doubt_exits_with_1_and_is_named(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    true = study.run_claims(2)
    worst = float("nan") if verdict == "violated" else true[0].worst
    doubtful = replace(true[0], worst=worst, beyond=int(verdict == "violated"), complete=verdict == "violated")
    monkeypatch.setattr(study, "run_claims", lambda *args, **options: (doubtful, *true[1:]))
    result = CliRunner().invoke(app, [], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert f"in doubt: {doubtful.claim}" in result.stdout
    as_json = CliRunner().invoke(app, ["--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["claims"][0]["verdict"] == verdict


def test_out_must_not_be_a_file(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "file")])
    assert isinstance(result.exception, CCRError)
    assert "folder" in str(result.exception)
