"""The tutorials run from top to bottom on the demo's photos, and what they keep is small."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from tools.site.notebooks import notebook_page
from tools.tutorials import TUTORIALS, run_notebook

NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.pages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, workspace: Path) -> None:
    run = run_notebook(path, workspace)
    assert all(cell.execution_count for cell in run.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_small_and_shows_what_it_printed(path: Path) -> None:
    assert path.stat().st_size < 300_000
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code), "run: python -m tools.tutorials ccr-demo"
    errors = [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert errors == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_page(path: Path) -> None:
    page = notebook_page(path)
    assert page.text.startswith("# ")
    assert path.name in page.text
    for name, content in page.pictures.items():
        assert content.startswith(b"\x89PNG")
        assert f"({name})" in page.text
