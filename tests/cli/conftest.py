"""The commands as a user types them: on a real small data set, with a real (tiny, random) CLIP saved to disk."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ccr.cli import app, main
from tests.encoders.test_hf import save
from tests.vocab.test_llm import server  # noqa: F401 (a fixture)

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


def run(*arguments: object, lines: str | None = None) -> Any:
    """The result of a command with these lines on its standard input; its errors are raised."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=lines, catch_exceptions=False)


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


class Terminal:
    """A command in a real terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self.handle, theirs = pty.openpty()
        own = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"  # so that Ctrl-C is a signal
        program = f"{own}; import sys; sys.argv[1:] = {[*map(str, arguments)]!r}; from ccr.start import main; main()"
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
        environment.pop("NO_COLOR", None)
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        command = [sys.executable, "-c", program]
        self.process = subprocess.Popen(command, **streams, env=environment, start_new_session=True)
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.handle)

    def type(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    def until(self, text: str = "") -> str:
        """What it shows until `text` is on it; without a text, until it ends."""
        seen = ""
        while not text or text not in seen:
            assert select.select([self.handle], [], [], 120)[0], f"{text!r} never came, only {seen[-500:]!r}"
            try:
                part = os.read(self.handle, 65536)
            except OSError:  # Linux, when the other side is closed
                part = b""
            if not part:
                assert not text, f"the terminal ended before {text!r}: {seen[-500:]!r}"
                break
            seen += part.decode("utf-8", "replace")
        return seen
