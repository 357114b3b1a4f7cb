"""`ccr theory`: what it prints, writes, and exits with."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
from ccr.errors import CCRError
from ccr_lab.commands import theory as command
from ccr_lab.theory import Testbed, run_claims, scenes
from tests.data.helpers import PixelEncoder

FILES = {"results.json", "paper.png", "necessity.png", "event.png", "phase.png", "anisotropy.png"}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command over small scenes."""
    monkeypatch.setattr(command, "EVENT_WORLDS", 3)
    monkeypatch.setattr(command, "EVENT_SAMPLES", (50, 100))
    monkeypatch.setattr(scenes, "paper_runs", partial(scenes.paper_runs, worlds=2, shorten=100))
    monkeypatch.setattr(
        scenes, "phase_diagram", partial(scenes.phase_diagram, n=3, worlds=2, radii=(0.1, 1.0), steps=5)
    )
    small = {"testbed": Testbed(3, 3, 2), "conditions": (1.0, 100.0), "radii": (0.1, 1.0), "steps": 5}
    monkeypatch.setattr(scenes, "anisotropy_diagrams", partial(scenes.anisotropy_diagrams, **small))
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
    found = json.loads((written / "results.json").read_text())
    assert found["phase"][0]["n"] == 3
    assert [diagram["shrinkage"] for diagram in found["anisotropy"]] == [None, 0.5, 0.01]
    for words in ("n < d", "too few samples", "errors along x", "Every claim holds"):
        assert words in result.stdout


@pytest.mark.parametrize("verdict", ["violated", "cannot tell"])
def test_a_claim_in_doubt_exits_with_1_and_is_named(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    true = run_claims(2)
    worst = float("nan") if verdict == "violated" else true[0].worst
    doubtful = replace(true[0], worst=worst, beyond=int(verdict == "violated"), complete=verdict == "violated")
    monkeypatch.setattr("ccr_lab.theory.run_claims", lambda *args, **options: (doubtful, *true[1:]))
    result = CliRunner().invoke(app, [], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert f"in doubt: {doubtful.claim}" in result.stdout
    as_json = CliRunner().invoke(app, ["--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["claims"][0]["verdict"] == verdict


def _scans(folder: Path, count: int) -> Path:
    """A store of so many scanned digits."""
    (folder / "photos" / "scans").mkdir(parents=True)
    for number, scan in enumerate(load_digits().images[:count]):
        Image.fromarray((15 * scan).astype(np.uint8)).save(folder / "photos" / "scans" / f"{number}.png")
    embed_dataset(open_dataset(folder / "photos"), PixelEncoder(), folder / "store", workers=0)
    return folder / "store"


def test_a_store_is_checked_too(app: typer.Typer, tmp_path: Path) -> None:
    options = ["--instances", "2", "--store", str(_scans(tmp_path, 150))]
    summary = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    assert {"real cap", "real fidelity", "real dimensions", "real condition"} <= {c["key"] for c in summary["claims"]}
    before, *after = summary["isotropy"]
    assert before["shrinkage"] is None
    assert min(spread["dimensions"] for spread in after) > before["dimensions"]
    shown = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert "whitened, shrinkage 0.1" in shown.stdout


def test_a_store_with_few_images_for_its_dimension_cannot_tell(app: typer.Typer, tmp_path: Path) -> None:
    store = _scans(tmp_path, 30)
    result = CliRunner().invoke(app, ["--instances", "2", "--store", str(store), "--json"])
    assert result.exit_code == 1
    verdicts = {claim["key"]: claim["verdict"] for claim in json.loads(result.stdout)["claims"]}
    assert {key for key, verdict in verdicts.items() if verdict == "cannot tell"} == {
        "real dimensions",
        "real condition",
    }
    assert "violated" not in verdicts.values()
    shown = CliRunner().invoke(app, ["--instances", "2", "--store", str(store)], env={"COLUMNS": "200"})
    assert "30 images are too few" in shown.stderr


def test_out_must_not_be_a_file(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "file")])
    assert isinstance(result.exception, CCRError)
    assert "folder" in str(result.exception)
