"""The README: first a sentence, a picture, pip before make and four commands, then a table; six lines of Python below.

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
    sentences = re.findall(r"^\*\*(.+?)\*\*$", first_screen(), re.MULTILINE)
    assert len(sentences) == 1
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", first_screen())
    with Image.open(ROOT / picture) as drawn:
        assert drawn.width > 2 * drawn.height  # it leaves room for the lines below it
    assert (ROOT / picture).stat().st_size < 100_000


def test_pip_comes_before_make() -> None:
    assert first_screen().index("pip install") < first_screen().index("make", first_screen().index("pip install"))


def test_four_commands_come_first_and_then_what_they_are_worth() -> None:
    shown = [block for block in blocks(README) if block.code in first_screen()]
    (commands,) = (block for block in shown if block.language == "sh" and block.runs)
    lines = command_lines(commands.code)
    assert len(lines) <= 4
    assert [lines[0].split()[1], lines[-1].split()[1]] == ["embed", "report"]
    assert first_screen().index("|---|") > first_screen().index(commands.code)
    assert len(first_screen().splitlines()) < 60


def test_six_lines_of_python() -> None:
    (python,) = (block for block in blocks(README) if block.language == "python")
    assert len([line for line in python.code.splitlines() if line.strip()]) <= 6
    assert "ccr-demo" in python.code
