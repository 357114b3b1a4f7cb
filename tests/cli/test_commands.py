"""The commands as a user types them: on a real small data set, with a real (tiny, random) CLIP saved to disk."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ccr.cli import app, main
from ccr_lab.experiments import frontier
from tests.encoders.test_hf import save

HOSTILE = [
    '<script>alert("x")</script>',
    'a $5 note\'s "price"',
    "\u05d0\u05d1 right to left",
    "emoji 🍎",
    "x" * 200,
    "[red]markup[/red]",
]
COLOURS = {"red fruit": (200, 30, 30), "green fruit": (40, 170, 50), "blue <b>fruit": (40, 50, 190)}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos (colour and noise) of three classes, a tiny CLIP, a list of concepts, and the store made of them."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    for label, colour in COLOURS.items():
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(14):
            pixels = np.clip(np.array(colour) + rng.normal(0, 25, (40, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{number}.png")
    (folder / "photos" / "red fruit" / "broken.jpg").write_bytes(b"not an image")
    save(folder / "clip", "clip")
    words = ["round", "square", "shiny", "dull", "warm colour", "cold colour", "leaf", "noise", *HOSTILE]
    (folder / "concepts.txt").write_text("# what one sees\n" + "\n".join(words) + "\n", encoding="utf-8")
    done = run(
        "embed", folder / "photos", "--out", folder / "store", "--encoder", f"hf:{folder / 'clip'}", "--workers", "0"
    )
    assert done.exit_code == 0, done.output
    assert "broken.jpg" in done.output
    return folder


def run(*arguments: object) -> object:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def as_json(*arguments: object) -> dict[str, object]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output  # type: ignore[attr-defined]
    return json.loads(done.stdout)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def model(workspace: Path) -> Path:
    found = as_json(
        "fit",
        workspace / "store",
        "--concepts",
        workspace / "concepts.txt",
        "--out",
        workspace / "model",
        "--length",
        4,
        "--weights",
        "all",
    )
    assert found["split"] == "test"
    assert set(found["results"]) == {"baseline (fidelity 1)", "CCR (fidelity 0.875)"}  # type: ignore[arg-type]
    return workspace / "model"


def test_embed_again_finds_everything_done(workspace: Path) -> None:
    found = as_json(
        "embed", workspace / "photos", "--out", workspace / "store", "--encoder", f"hf:{workspace / 'clip'}"
    )
    assert found["rows"] == 42
    assert found["resumed"] == 43
    assert len(found["skipped"]) == 1  # type: ignore[arg-type]


def test_fit_prints_the_model_beside_its_baseline(workspace: Path) -> None:
    done = run(
        "fit",
        workspace / "store",
        "--concepts",
        workspace / "concepts.txt",
        "--out",
        workspace / "again",
        "--epochs",
        2,
    )
    assert done.exit_code == 0  # type: ignore[attr-defined]
    assert "baseline (fidelity 1)" in done.stdout  # type: ignore[attr-defined]
    assert "CCR (fidelity 0.875)" in done.stdout  # type: ignore[attr-defined]


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
    found = as_json(
        "fit",
        workspace / "store",
        "--concepts",
        workspace / "concepts.txt",
        "--out",
        tmp_path / "m",
        "--epochs",
        2,
        *options,
    )
    assert found["epochs"] == 2


def test_evaluate(model: Path, workspace: Path) -> None:
    found = as_json("evaluate", model, workspace / "store", "--split", "test")
    assert 0.0 <= found["accuracy"] <= 1.0  # type: ignore[operator]
    assert set(found["per_class"]) == set(COLOURS)  # type: ignore[arg-type]
    done = run("evaluate", model, workspace / "store")
    assert "Hardest first" in done.stdout  # type: ignore[attr-defined]


def test_explain_sums_and_writes_by_ending(model: Path, workspace: Path, tmp_path: Path) -> None:
    image = workspace / "photos" / "red fruit" / "3.png"
    found = as_json("explain", model, image, "--against", "green fruit")["explanations"][0]  # type: ignore[index]
    total = found["bias"] + sum(term["contribution"] for term in found["contributions"])
    assert total == pytest.approx(found["logit"], rel=1e-9)
    against = found["against"]
    assert against["bias"] + sum(t["contribution"] for t in against["contributions"]) == pytest.approx(
        against["difference"]
    )
    for ending in (".html", ".png", ".json"):
        done = run("explain", model, image, "--top", 3, "--out", tmp_path / f"why{ending}")
        assert done.exit_code == 0  # type: ignore[attr-defined]
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
    assert len(found["radii"]) == 6  # type: ignore[arg-type]


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
    as_json(
        "fit",
        workspace / "store",
        "--concepts",
        tmp_path / "c.txt",
        "--out",
        tmp_path / "m",
        "--length",
        6,
        "--sign",
        "both",
        "--weights",
        "all",
        "--no-baseline",
    )
    image = workspace / "photos" / "blue <b>fruit" / "0.png"
    done = run("explain", tmp_path / "m", image, "--out", tmp_path / "why.html")
    assert done.exit_code == 0  # type: ignore[attr-defined]
    assert "[red]markup[/red]" in done.stdout  # type: ignore[attr-defined]
    html = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert run("explain", tmp_path / "m", image, "--out", tmp_path / "why.png").exit_code == 0  # type: ignore[attr-defined]


def exit_code(arguments: list[object], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["ccr", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


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
