"""The commands as a user types them: on a real small data set, with a real (tiny, random) CLIP saved to disk."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from ccr_lab.experiments import frontier
from tests.cli.conftest import COLOURS, HOSTILE, as_json, exit_code, run
from tests.encoders.test_hf import save


def test_embed_again_finds_everything_done(workspace: Path) -> None:
    found = as_json(
        "embed", workspace / "photos", "--out", workspace / "store", "--encoder", f"hf:{workspace / 'clip'}"
    )
    assert found["rows"] == 42
    assert found["resumed"] == 43
    assert len(found["skipped"]) == 1


def test_fit_prints_the_model_beside_its_baseline(workspace: Path) -> None:
    given = ["--concepts", workspace / "concepts.txt", "--out", workspace / "again", "--epochs", 2]
    done = run("fit", workspace / "store", *given)
    assert done.exit_code == 0
    assert "baseline (fidelity 1)" in done.stdout
    assert "CCR (fidelity 0.875)" in done.stdout
    assert "transfer" not in done.stdout
    asks = f"ccr review {workspace / 'again'} {workspace / 'store'}".split()
    assert all(word in "".join(done.stdout.split()) for word in asks)  # a long path may be broken anywhere


@pytest.mark.parametrize(
    "options",
    [
        ["--threshold", 0.05],
        ["--dispersion", "none", "--no-center", "--radius", 0.1],
        ["--dispersion", "angular"],
        ["--radius", 0],
        ["--sign", "both", "--weights", "all"],
        ["--weights", 2, "--candidates", 1.5],
        ["--weights", "auto"],
    ],
)
def test_fit_takes_the_designs_options(workspace: Path, tmp_path: Path, options: list[object]) -> None:
    given = ["--concepts", workspace / "concepts.txt", "--out", tmp_path / "m", "--epochs", 2]
    found = as_json("fit", workspace / "store", *given, *options)
    assert found["epochs"] == 2


def test_evaluate(model: Path, workspace: Path) -> None:
    found = as_json("evaluate", model, workspace / "store", "--split", "test")
    assert 0.0 <= found["accuracy"] <= 1.0
    assert set(found["per_class"]) == set(COLOURS)
    done = run("evaluate", model, workspace / "store")
    assert "Hardest first" in done.stdout


def test_explain_sums_and_writes_by_ending(model: Path, workspace: Path, tmp_path: Path) -> None:
    image = workspace / "photos" / "red fruit" / "3.png"
    found = as_json("explain", model, image, "--against", "green fruit")["explanations"][0]
    total = found["bias"] + sum(term["contribution"] for term in found["contributions"])
    assert total == pytest.approx(found["logit"], rel=1e-9)
    against = found["against"]
    assert against["bias"] + sum(t["contribution"] for t in against["contributions"]) == pytest.approx(
        against["difference"]
    )
    for ending in (".html", ".png", ".json"):
        done = run("explain", model, image, "--top", 3, "--out", tmp_path / f"why{ending}")
        assert done.exit_code == 0
    html = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "://" not in html
    assert Image.open(tmp_path / "why.png").size[0] > 400
    assert json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))[0]["prediction"] in COLOURS


def test_figures(workspace: Path, tmp_path: Path) -> None:
    options = ["--length", 4, "--epochs", 1, "--seeds", 1, "--no-frontier"]
    found = as_json(
        "figures", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path, *options
    )
    drawn = {"dispersion.png", "training.png", "ablations.png", "thresholds.png", "radii.png", "figures.json"}
    assert {path.name for path in tmp_path.iterdir()} == drawn
    assert len(found["radii"]) == 6


def test_figures_of_the_frontiers(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(frontier.FrontierGrid, fidelities=(0.9,), weights=(1, None), rival_lengths=(2.0,))
    monkeypatch.setattr(frontier, "FrontierGrid", small)
    options = ["--concepts", workspace / "concepts.txt", "--length", 4, "--no-paper", "--out", tmp_path]
    found = as_json("figures", workspace / "store", *options)
    assert {path.name for path in tmp_path.iterdir()} == {"fidelity.png", "in_play.png", "frontier.json", "runs"}
    written = json.loads((tmp_path / "frontier.json").read_text(encoding="utf-8"))
    assert written == found["frontier"]
    # The tiny encoder knows no real word: all random words are one to it, and that is said.
    assert list(written["failures"]) == ["random words"]
    assert {point["kind"] for point in written["points"]} == {"named concepts", "random vectors"}
    done = run("figures", workspace / "store", *options)
    assert "random words could not be fitted" in " ".join(done.output.split())
    assert json.loads((tmp_path / "frontier.json").read_text(encoding="utf-8")) == written  # kept runs are read again


def test_hostile_names_are_only_text(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("\n".join(HOSTILE), encoding="utf-8")
    given = ["--concepts", tmp_path / "c.txt", "--length", 6, "--sign", "both", "--weights", "all", "--no-baseline"]
    as_json("fit", workspace / "store", *given, "--out", tmp_path / "m")
    image = workspace / "photos" / "blue <b>fruit" / "0.png"
    done = run("explain", tmp_path / "m", image, "--out", tmp_path / "why.html")
    assert done.exit_code == 0
    assert "[red]markup[/red]" in done.stdout
    html = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert run("explain", tmp_path / "m", image, "--out", tmp_path / "why.png").exit_code == 0


def test_refused_input_exits_one_and_misuse_two(
    workspace: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["evaluate", tmp_path / "nothing", workspace / "store"], monkeypatch) == 1
    assert "no such folder" in capsys.readouterr().err
    assert exit_code(["evaluate", tmp_path / "nothing", workspace / "store", "--json"], monkeypatch) == 1
    assert "no such folder" in json.loads(capsys.readouterr().out)["error"]
    assert exit_code(["explain", model, tmp_path / "no.png"], monkeypatch) == 1
    assert exit_code(["explain", model, workspace / "photos" / "red fruit" / "broken.jpg"], monkeypatch) == 1
    assert exit_code(["explain", model, tmp_path / "no.png", "--out", tmp_path / "x.pdf"], monkeypatch) == 1
    assert exit_code(["evaluate", model, workspace / "store", "--split", "winter"], monkeypatch) == 1
    assert exit_code(["fit", workspace / "store"], monkeypatch) == 2
    assert exit_code(["no-such-command"], monkeypatch) == 2
    both = ["fit", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path / "m"]
    assert exit_code([*both, "--length", 3, "--threshold", 0.1], monkeypatch) == 2
    assert exit_code([*both, "--dispersion", "wild"], monkeypatch) == 2
    assert exit_code([*both, "--sign", "negative"], monkeypatch) == 2
    for weights in ("0", "some", "2.5"):
        assert exit_code([*both, "--weights", weights], monkeypatch) == 2
    assert exit_code([*both, "--candidates", 0.5], monkeypatch) == 2
    assert exit_code([*both, "--candidates", 2, "--weights", "all"], monkeypatch) == 2
    assert exit_code([*both, "--length", 500], monkeypatch) == 1
    assert not (tmp_path / "m").exists()


def test_a_store_of_another_encoder_is_refused(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "other", "clip", seed=5)
    arguments = ["fit", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path / "m"]
    assert exit_code([*arguments, "--encoder", f"hf:{tmp_path / 'other'}"], monkeypatch) == 1
    assert "cannot be compared" in " ".join(capsys.readouterr().err.split())


def test_every_commands_help_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    from tools.commands_page import commands_page

    assert page == commands_page(), "run: python -m tools.commands_page > docs/commands.md"
