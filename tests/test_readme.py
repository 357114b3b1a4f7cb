"""The README's first screen: a sentence, a picture, pip before make, six lines of commands, six of Python.

Its blocks are run by tests/docs/test_blocks.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from tests.docs.blocks import blocks, command_lines

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def first_screen() -> str:
    return README.read_text(encoding="utf-8").split("\n## ")[0]


def test_the_first_screen_has_a_sentence_and_a_picture() -> None:
    sentences = re.findall(r"\*\*(.+?)\*\*", first_screen())
    assert len(sentences) == 1
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", first_screen())
    with Image.open(ROOT / picture) as drawn:
        assert drawn.width > 2 * drawn.height  # it leaves room for the lines below it
    assert (ROOT / picture).stat().st_size < 100_000


def test_pip_comes_before_make() -> None:
    assert first_screen().index("pip install") < first_screen().index("make", first_screen().index("pip install"))


def test_six_lines_of_commands_and_six_of_python() -> None:
    shown = [block for block in blocks(README) if block.code in first_screen()]
    (commands,) = (block for block in shown if block.language == "sh" and block.runs)
    assert len(command_lines(commands.code)) <= 6
    assert [line.split()[1] for line in command_lines(commands.code)][:1] == ["embed"]
    assert command_lines(commands.code)[-1].split()[1] == "report"
    (python,) = (block for block in shown if block.language == "python")
    assert len([line for line in python.code.splitlines() if line.strip()]) <= 6
    assert "ccr-demo" in python.code
