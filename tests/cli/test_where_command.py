"""`ccr explain --where`, `--box` and the report's maps, as a user types them, with a tiny real CLIP."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccr.explain import Frame
from ccr.explain.terms import AGAINST, FOR
from ccr.explain.where import PatchMap
from ccr.show.pictures import common_scale, framed, overlay, rgb, scales_of
from tests.cli.conftest import as_json, exit_code, run


@pytest.fixture
def photo(workspace: Path) -> Path:
    return sorted(path for path in (workspace / "photos").rglob("*") if path.suffix in (".png", ".jpg"))[0]


def test_every_contribution_has_a_map_that_adds_up(model: Path, photo: Path) -> None:
    (plain,) = as_json("explain", model, photo)["explanations"]
    (found,) = as_json("explain", model, photo, "--where", "--box", "0,0,0.5,1")["explanations"]
    assert "where" not in plain
    for mine, theirs in zip(found["contributions"], plain["contributions"], strict=True):
        assert mine["concept"] == theirs["concept"]
        assert mine["contribution"] == pytest.approx(theirs["contribution"], rel=1e-4)
    where = found["where"]
    assert where["way"] == "exact"
    assert [item["name"] for item in where["contributions"]] == [term["concept"] for term in found["contributions"]]
    for item, term in zip(where["contributions"], found["contributions"], strict=True):
        assert np.shape(item["map"]) == (where["rows"], where["columns"])
        together = np.sum(item["map"]) + sum(item["rest"].values())
        assert together == pytest.approx(term["contribution"], rel=1e-4, abs=1e-4)
    assert where["class"]["total"] == pytest.approx(found["logit"], abs=1e-4)
    assert where["box"]["box"] == [0, 0, 0.5, 1]


def _with_something_inside(model: Path, workspace: Path) -> Path:
    """A photo whose patches speak for its class: in the explanations of a random encoder not all do."""
    for path in sorted((workspace / "photos").rglob("*.png")):
        (found,) = as_json("explain", model, path, "--where", "--box", "0,0,1,1")["explanations"]
        if found["where"]["box"]["concepts"]:
            return path
    raise AssertionError("no photo has a concept inside the box")


@pytest.mark.parametrize("ending", [".html", ".png", ".json"])
def test_it_is_drawn_and_written(model: Path, workspace: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"why{ending}"
    photo = _with_something_inside(model, workspace)
    done = run("explain", model, photo, "--where", "--box", "0,0,1,1", "--top", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert "in the picture" in done.stdout
    assert "in the box" in done.stdout
    if ending == ".png":
        assert Image.open(out).width > 400
    elif ending == ".html":
        assert ", in the maps of single concepts " in out.read_text(encoding="utf-8")
        assert "from the box 0, 0, 1, 1" in out.read_text(encoding="utf-8")
    else:
        assert json.loads(out.read_text(encoding="utf-8"))[0]["where"]["rows"] > 1


@pytest.mark.parametrize("box", ["left", "0,0,1", "0,0,2,1", "0.5,0,0.5,1"])
def test_a_wrong_box_is_refused(model: Path, photo: Path, box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(["explain", str(model), str(photo), "--box", box], monkeypatch) == 1


def test_a_wrong_way_or_class_is_refused_before_any_photo_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for options, why in (
        (["--where", "--way", "magic"], "auto, exact, values, occlusion"),
        (["--against", "x"], "'x'"),
    ):
        assert exit_code(["explain", str(model), "gone.jpg", *options], monkeypatch) == 1
        assert why in capfd.readouterr().err


@pytest.mark.parametrize("number", [0, 2])
def test_the_reports_first_photos_show_where(model: Path, workspace: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "report.html"
    options = ["--no-baseline", "--no-probe", "--images", 4, "--where", number]
    assert run("report", model, workspace / "store", "--out", out, *options).exit_code == 0
    assert out.read_text(encoding="utf-8").count("<summary>Where in the picture</summary>") == number


def test_blue_speaks_for_and_orange_against() -> None:
    picture = Image.new("RGB", (40, 40), "grey")
    drawn = np.asarray(overlay(picture, np.array([[1.0, -1.0], [0.0, 0.0]]), 1.0), np.float32)
    left, right, below = drawn[2, 2], drawn[2, -3], drawn[-3, 2]
    assert np.abs(left - rgb(FOR)).sum() < np.abs(left - rgb(AGAINST)).sum()
    assert np.abs(right - rgb(AGAINST)).sum() < np.abs(right - rgb(FOR)).sum()
    assert np.ptp(below) < 2, "nothing there: the picture alone"


def test_the_frame_is_what_is_drawn() -> None:
    picture = Image.new("RGB", (100, 200), "white")
    assert framed(picture, Frame(0.0, 0.25, 1.0, 0.75), 50).size == (50, 50)
    assert framed(picture, Frame(), 50).size == (25, 50)
    assert common_scale([]) == 1.0


def test_single_concepts_are_not_pale_beside_their_sum() -> None:
    single = [PatchMap(name, np.full((2, 2), 0.1), {}, 0.4) for name in "abcdefgh"]
    maps = [("all together", PatchMap("all", np.full((2, 2), 0.8), {}, 3.2)), *((item.name, item) for item in single)]
    scales = scales_of(maps, against=None)
    assert scales == pytest.approx([0.8] + [0.1] * 8)
    assert scales_of(maps[:1], against=None) == pytest.approx([0.8])
