"""Every block of code of the README and of the site runs, or says to its readers why it is not run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccr.cli import app
from tests.docs.blocks import Block, blocks, command_lines

ROOT = Path(__file__).parents[2]
OTHERS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/RESULTS.md")
PAGES = [*(ROOT / name for name in OTHERS), *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "yaml", "toml", "html", "javascript", "js", "bibtex"}


def run_line(line: str) -> None:
    """A line of a shell; `ccr` runs in this process, which has its imports behind it. A review is told yes to all."""
    words = shlex.split(line, comments=True)
    if words[0] == "ccr" and not re.search(r"[|<>&;$]", line.split(" # ")[0]):
        answers = "y\n" * 500 if words[1] == "review" else None
        done = CliRunner().invoke(app, words[1:], input=answers, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}: {done.output}"
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["bash", "-c", line], check=True, env={**os.environ, "PATH": path})


def run_block(block: Block, names: dict[str, Any]) -> None:
    if block.language == "sh":
        for line in command_lines(block.code):
            run_line(line)
    else:
        above = "\n" * block.line  # so that a traceback names the page's own line
        exec(compile(above + block.code, str(block.page), "exec"), names)


def pages_that_run() -> list[Path]:
    return [page for page in PAGES if any(block.runs for block in blocks(page))]


@pytest.mark.pages
@pytest.mark.parametrize("page", pages_that_run(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_runs_from_top_to_bottom(page: Path, workspace: Path) -> None:
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.runs:
            try:
                run_block(block, names)
            except Exception as error:
                raise AssertionError(f"{block} does not run: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_of_known_languages_and_excuses_are_reasons(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: a language that nobody runs; use text for what is no code"
        said = "not run" in block.above or "not run in the tests" in block.code
        assert not said or block.excuse, f"{block}: write '<!-- not run in the tests: the reason -->' above it"


def test_most_blocks_run() -> None:
    code = [block for page in PAGES for block in blocks(page) if block.language in ("python", "sh")]
    assert sum(block.runs for block in code) > 0.5 * len(code)


def test_a_block_that_fails_is_found(workspace: Path) -> None:
    for language, code in (("sh", "ccr evaluate nothing nothing\n"), ("python", "1 / 0\n")):
        with pytest.raises(Exception, match=r"nothing|division"):
            run_block(Block(ROOT / "README.md", 1, language, code), {})
