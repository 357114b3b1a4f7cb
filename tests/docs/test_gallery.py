"""The gallery is what its script makes, and its rules choose what they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from PIL import Image
from tools.gallery import choice
from tools.gallery.__main__ import make_gallery
from typer.testing import CliRunner

from ccr.cli import app

DOCS = Path(__file__).parents[2] / "docs"


def seen() -> choice.Predictions:
    predicted = np.array(["a", "a", "b", "b", "c"])
    return choice.Predictions(
        predicted, np.array([0.9, 0.8, 0.99, 0.5, 0.7]), np.array(["x", "shelf", "y", "shelf", "x"])
    )


def test_rules_choose_the_surest_of_different_classes() -> None:
    truth = np.array(["a", "a", "c", "b", "c"])
    assert choice.right(seen(), truth, 3) == [0, 4, 3]
    assert choice.wrong(seen(), truth, 3) == [2]
    assert choice.surprising(seen(), truth, ["shelf"], 3) == [1]  # 1 and 3 have the same first concept
    assert choice.right(seen(), np.array(["z"] * 5), 3) == []


def test_the_script_makes_a_page_whose_pictures_are_there(workspace: Path) -> None:
    options = ["--concepts", "ccr-demo/concepts.txt", "--length", "11", "--out", "untold"]
    assert CliRunner().invoke(app, ["fit", "ccr-demo/store", *options]).exit_code == 0
    said = make_gallery(Path("ccr-demo"), Path("untold"), Path("made"), each=1)
    page = Path("made/gallery.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((gallery/[\w-]+\.png)\)", page)
    assert said.startswith(f"{len(pictures)} pictures")
    for picture in pictures:
        with Image.open(Path("made") / picture) as drawn:
            assert drawn.width > 300


def test_the_page_in_the_repository_has_every_section_and_small_pictures() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for title in ("Right", "Wrong", "Right for a doubtful reason", "Before and after a correction"):
        assert f"## {title}\n" in page
    for picture in re.findall(r"\]\((gallery/[\w-]+\.png)\)", page):
        assert (DOCS / picture).stat().st_size < 80_000
