"""The commands as a user types them: on a real small data set, with a real (tiny, random) CLIP saved to disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ccr.cli import app, main
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


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos (colour and noise) of three classes, a tiny CLIP, a list of concepts, and the store made of them; made
    once, so a test that writes among the photos takes away what it wrote."""
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
    done = run("embed", folder / "photos", "--out", folder / "store", *named(folder), "--workers", "0")
    assert done.exit_code == 0, done.output
    assert "broken.jpg" in done.output
    return folder


@pytest.fixture(scope="session")
def model(workspace: Path) -> Path:
    options = ["--concepts", workspace / "concepts.txt", "--length", 4, "--weights", "all"]
    found = as_json("fit", workspace / "store", *options, "--out", workspace / "model")
    assert found["split"] == "test"
    assert set(found["results"]) == {"baseline (fidelity 1)", "CCR (fidelity 0.875)"}
    return workspace / "model"


def run(*arguments: object) -> Any:
    """The result of a command, whose errors are raised."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def as_json(*arguments: object) -> dict[str, Any]:
    """What a command prints with --json."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def exit_code(arguments: list[object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How the whole program ends, which prints its errors."""
    monkeypatch.setattr("sys.argv", ["ccr", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def named(workspace: Path) -> list[str]:
    """The encoder by name: other test runs on the machine may change the list of those that were named."""
    return ["--encoder", f"hf:{workspace / 'clip'}"]
