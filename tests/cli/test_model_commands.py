"""`ccr audit`, `ccr edit`, `ccr report` and what `ccr explain` says beyond the sum, as a user types them."""

from __future__ import annotations

import json
import shlex
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from ccr.classifier import ConceptClassifier
from ccr.cli.edit import read_number, read_pair, read_weight
from ccr.cli.explain import _embedded
from ccr.encoders import load_encoder
from ccr.errors import CCRError
from ccr.show import plots
from tests.cli.conftest import COLOURS, HOSTILE, as_json, exit_code, run
from tests.library.test_left_out import as_older_versions_wrote_it


def test_audit_with_and_without_images(model: Path, workspace: Path) -> None:
    alone = as_json("audit", model, "--top", 3)
    assert len(alone["concepts"]) == 3
    assert alone["images"] == 0
    seen = as_json("audit", model, workspace / "store")
    assert seen["images"] > 0
    assert alone["fidelity"]["min"] <= alone["fidelity"]["mean"] <= 1
    assert seen["fidelity"] == as_json("evaluate", model, workspace / "store")["fidelity"]
    flags = [bool(item["flags"]) for item in seen["concepts"]]
    assert flags == sorted(flags, reverse=True), "flagged first"
    for arguments in ([], [workspace / "store", "--split", "train"]):
        done = run("audit", model, *arguments, "--top", 50)
        assert done.exit_code == 0
        assert "concepts flagged for drift; mean fidelity" in done.stdout
        # Nothing was known of the classes, so no concept is verified, whatever its fidelity.
        assert " unverified" in done.stdout
        assert ("gained" in done.stdout) == bool(arguments)


def test_edits_make_a_new_model_with_a_log(model: Path, workspace: Path, tmp_path: Path) -> None:
    before = ConceptClassifier.load(model)
    edits = ["--suppress", "leaf", "--rename", "round=ball=round", "--scale", "noise=0.5", "--pin", "dull"]
    edits += ["--weight", "red fruit:shiny=2.5", "--merge", "warm colour+cold colour", "--suppress", HOSTILE[0]]
    found = as_json("edit", model, "--out", tmp_path / "new", *edits, "--store", workspace / "store")
    actions = [entry["action"] for entry in found["edits"]]
    assert actions == ["pin", "scale", "set_weight", "merge", "suppress", "suppress", "rename"]
    after = ConceptClassifier.load(tmp_path / "new")
    assert len(after.concepts_) == len(before.concepts_) - 3
    assert "ball=round" in after.concepts_.names
    red = after.classes_.tolist().index("red fruit")
    assert after.coef_[red, after.concepts_.index("shiny")] == pytest.approx(2.5)
    assert {item["name"] for item in found["effect"]["classes"]} == set(COLOURS)
    assert np.array_equal(ConceptClassifier.load(model).coef_, before.coef_), "the model itself stays"
    again = as_json("edit", tmp_path / "new", "--log")
    assert again["edits"] == found["edits"]


def test_a_log_alone_makes_no_model_and_claims_none(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["edit", model, "--log", "--out", tmp_path / "e3"], monkeypatch) == 2
    assert "give an edit such as --suppress NAME, too" in " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "e3").exists()


def test_texts_that_the_encoder_gives_otherwise_now_are_said(model: Path, workspace: Path, tmp_path: Path) -> None:
    add = ["--add", "a new thing"]
    same = run("edit", model, "--out", tmp_path / "a", *add)
    assert "not those" not in same.stdout + same.stderr
    concepts = ["--concepts", workspace / "concepts.txt", "--epochs", 1, "--weights", "all"]
    run("fit", workspace / "store", *concepts, "--template", "far away from {}", "--out", tmp_path / "other")
    done = run("edit", tmp_path / "other", "--out", tmp_path / "b", *add)
    assert "not those that the model was fitted with" in " ".join((done.stdout + done.stderr).split())


def test_a_concept_is_added_by_text_and_the_head_refitted(model: Path, workspace: Path, tmp_path: Path) -> None:
    done = run("edit", model, "--out", tmp_path / "new", "--add", "a=new:thing+", "--store", workspace / "store")
    assert done.exit_code == 0
    assert "says nothing until it has weights" in done.output
    added = ["--add", "a=new:thing+", "--weight", "red fruit:a=new:thing+=1", "--refit", workspace / "store"]
    done = run("edit", model, "--out", tmp_path / "new", *added, "--log", "--store", workspace / "store")
    assert done.exit_code == 0
    assert "refit" in done.stdout
    assert "predictions changed" in done.stdout
    new = ConceptClassifier.load(tmp_path / "new")
    red = new.classes_.tolist().index("red fruit")
    assert new.coef_[red, new.concepts_.index("a=new:thing+")] == pytest.approx(1.0), "a weight set by hand stays"


def test_refused_edits_write_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", tmp_path / "new"]
    assert exit_code(["edit", model, *out, "--suppress", "no such"], monkeypatch) == 1
    assert "no concept is called 'no such'" in capsys.readouterr().err.replace("\n", " ")
    assert exit_code(["edit", model, *out, "--rename", "no such=x"], monkeypatch) == 1
    assert exit_code(["edit", model, *out, "--weight", "red fruit:round=many"], monkeypatch) == 1
    assert exit_code(["edit", model, *out, "--scale", "round=nan"], monkeypatch) == 1
    assert exit_code(["edit", model, "--out", model, "--suppress", "leaf"], monkeypatch) == 1
    assert "another folder" in capsys.readouterr().err.replace("\n", " ")
    assert exit_code(["edit", model, "--suppress", "leaf"], monkeypatch) == 2
    assert exit_code(["edit", model], monkeypatch) == 2
    assert not (tmp_path / "new").exists()


def test_names_may_hold_the_signs_that_separate() -> None:
    concepts = ["a", "a=b", "c+d", "d", "x:y"]
    assert read_pair("--rename", "c+d=e=f", "=", concepts, None) == ("c+d", "e=f")
    assert read_pair("--merge", "c+d + x:y", "+", concepts, concepts) == ("c+d", "x:y")
    assert read_weight("k:l:x:y=-1e-2", ["k:l", "m"], concepts) == ("k:l", "x:y", -0.01)
    assert read_number("--scale", "a=b=2") == ("a=b", 2.0)
    with pytest.raises(CCRError, match="can be read as 'a' = 'b=c' or 'a=b' = 'c'"):
        read_pair("--rename", "a=b=c", "=", concepts, None)
    for text, why in {"a": "needs a =", "q=r": "nothing called 'q'", "a=": "nothing after the ="}.items():
        with pytest.raises(CCRError, match=why):
            read_pair("--rename", text, "=", concepts, None)
    with pytest.raises(CCRError, match="nothing called 'zz'"):
        read_pair("--merge", "a+zz", "+", concepts, concepts)
    for text in ("a", "=2", "a=two"):
        with pytest.raises(CCRError, match="must end in = and a number"):
            read_number("--scale NAME=FACTOR", text)


def test_several_photos_are_one_picture_one_below_the_other(model: Path, workspace: Path, tmp_path: Path) -> None:
    photos = [workspace / "photos" / label / "0.png" for label in ("red fruit", "green fruit")]
    sizes = []
    for number, some in enumerate([photos[:1], photos[1:], photos]):
        as_json("explain", model, *some, "--out", tmp_path / f"{number}.PNG")
        sizes.append(Image.open(tmp_path / f"{number}.PNG").size)
    (wide, high), (wide_too, high_too), both = sizes
    assert both == (max(wide, wide_too), high + high_too)


@pytest.mark.parametrize("options", [[], ["--where"]])
def test_a_picture_names_its_photo(
    options: list[str], model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = []
    for kind in ("explanation", "located"):
        draw = getattr(plots, kind)
        monkeypatch.setattr(
            plots, kind, lambda *given, draw=draw, **more: named.append(draw(*given, **more)) or named[-1]
        )
    photos = [workspace / "photos" / label / "0.png" for label in ("red fruit", "green fruit")]
    renamed = [Path(shutil.copy(photo, tmp_path / f"{number} cut $here$.png")) for number, photo in enumerate(photos)]
    as_json("explain", model, *renamed, *options, "--out", tmp_path / "why.png")
    for figure, photo in zip(named, renamed, strict=True):
        (drawn,) = [text for text in figure.findobj(Text) if text.get_text() == photo.name]
        assert not drawn.get_parse_math(), "a dollar sign is no formula"


def test_the_weights_of_a_contrast_are_called_differences(model: Path, workspace: Path) -> None:
    image = workspace / "photos" / "red fruit" / "0.png"
    (found,) = as_json("explain", model, image)["explanations"]
    other = next(name for name in COLOURS if name != found["prediction"])
    said = " ".join(run("explain", model, image, "--against", other).stdout.split())
    assert said.count("x weight (for this class)") == 1
    assert f"x weight (of {found['prediction']}, less that of {other})" in said


def test_explain_tells_how_far_it_is(workspace: Path) -> None:
    encoder, told = load_encoder(f"hf:{workspace / 'clip'}"), []
    pictures = [Image.new("RGB", (30, 30), (number, 90, 200)) for number in range(9)]
    rows = _embedded(encoder, pictures, lambda *step: told.append(step))
    assert told == [(done, 9, "embedding photos") for done in (0, 4, 8)]
    assert np.allclose(rows, encoder.embed_images(pictures), atol=1e-6)


def test_explain_says_what_would_change_it_and_what_the_baseline_says(
    model: Path, workspace: Path, tmp_path: Path
) -> None:
    image = workspace / "photos" / "red fruit" / "3.png"
    options = ["--concepts", workspace / "concepts.txt", "--length", 4, "--radius", 0, "--epochs", 3]
    as_json("fit", workspace / "store", *options, "--out", tmp_path / "base")
    found = as_json("explain", model, image, "--baseline", tmp_path / "base")["explanations"][0]
    assert found["baseline"]["prediction"] in COLOURS
    assert 0 <= found["baseline"]["comparison"]["overlap"] <= 1
    changed = found["counterfactual"]
    assert changed is None or changed["becomes"] != found["prediction"]
    done = run("explain", model, image, "--baseline", tmp_path / "base", "--out", tmp_path / "why.html")
    assert "baseline:" in done.stdout
    said = " ".join(done.stdout.split())
    assert "it would be" in said or "No removal" in said
    html = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "Baseline: " in html
    assert "<script" not in html


def test_every_command_copes_with_concepts_that_were_left_out(workspace: Path, tmp_path: Path) -> None:
    store, model = workspace / "store", tmp_path / "short"
    options = ["--concepts", workspace / "concepts.txt", "--length", 4, "--weights", 1, "--epochs", 5]
    as_json("fit", store, *options, "--out", model)
    left_out = ConceptClassifier.load(model).model_.provenance.left_out
    assert left_out
    image = workspace / "photos" / "red fruit" / "3.png"
    found = as_json("explain", model, image)["explanations"][0]
    assert len(found["contributions"]) <= 1
    assert as_json("evaluate", model, store)["weights_per_class"] <= 1
    audited = as_json("audit", model, store)
    assert not {concept["concept"] for concept in audited["concepts"]} & set(left_out)
    as_json("report", model, store, "--out", tmp_path / "report.html", "--images", 3)
    assert "that it left out" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    older = as_older_versions_wrote_it(model, tmp_path / "older")
    as_json("report", older, store, "--out", tmp_path / "older.html", "--images", 3)
    assert f"without the {len(left_out)} that it left out" in (tmp_path / "older.html").read_text(encoding="utf-8")
    done = run("edit", model, "--out", tmp_path / "new", "--add", left_out[0], "--refit", store, "--encoder", "none")
    assert done.exit_code == 0, done.output
    again = ConceptClassifier.load(tmp_path / "new")
    assert again.concepts_.names[-1] == left_out[0]
    assert (np.count_nonzero(again.coef_, axis=1) <= 1).all()


def test_report_with_fitted_and_given_baseline(model: Path, workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    found = as_json("report", model, workspace / "store", "--out", out, "--mistakes-first", "--images", 5)
    assert found["linear_probe"] is not None
    assert found["baseline"] is not None
    html = out.read_text(encoding="utf-8")
    assert found["bytes"] == len(html.encode())
    assert "baseline (fidelity 1)" in html
    assert "data:image/jpeg" in html
    assert "<script" not in html
    assert "://" not in html
    given = as_json(
        "report", model, workspace / "store", "--out", out, "--baseline", model, "--no-probe", "--split", "val"
    )
    assert given["baseline"] == given["accuracy"]
    assert given["linear_probe"] is None
    done = run("report", model, workspace / "store", "--out", out, "--no-baseline", "--images", 0)
    assert done.exit_code == 0
    assert "MB in" in done.stdout
    assert "baseline (" not in out.read_text(encoding="utf-8")


def test_a_report_says_the_whole_command_that_makes_it(model: Path, workspace: Path, tmp_path: Path) -> None:
    options = ["--images", "2", "--split", "val", "--no-baseline", "--no-probe", "--mistakes-first"]
    options += ["--title", "my own 'title'", "--data", str(workspace / "photos"), "--where", "0"]
    options += ["--encoder", f"hf:{workspace / 'clip'}"]
    out = tmp_path / "report.html"
    as_json("report", model, workspace / "store", "--out", out, *options)
    page = unescape(out.read_text(encoding="utf-8"))
    assert str(workspace) not in page  # it may be mailed: of paths, the last two names
    short = [option.replace(str(workspace), workspace.name) for option in options]
    assert shlex.join(["ccr", "report", f"{workspace.name}/model", f"{workspace.name}/store", *short]) in page
    assert "fidelity=0.875" in page  # the value that was used, not None
    as_json("report", model, workspace / "store", "--out", out, "--images", 0, "--probe", "--no-baseline")
    again = unescape(out.read_text(encoding="utf-8"))
    assert "--split test --no-baseline --probe --where 6" in again


def test_report_survives_images_that_moved_and_a_store_without_splits(
    model: Path, workspace: Path, tmp_path: Path
) -> None:
    shutil.copytree(workspace / "store", tmp_path / "store")
    description = json.loads((tmp_path / "store" / "store.json").read_text(encoding="utf-8"))
    description["source"]["path"] = str(tmp_path / "gone")
    (tmp_path / "store" / "store.json").write_text(json.dumps(description), encoding="utf-8")
    out = tmp_path / "report.html"
    as_json("report", model, tmp_path / "store", "--out", out, "--no-baseline", "--no-probe")
    html = out.read_text(encoding="utf-8")
    assert "no image: " in html
    assert "could not be read" in html
    as_json(
        "report", model, tmp_path / "store", "--out", out, "--data", workspace / "photos", "--no-baseline", "--no-probe"
    )
    assert "could not be read" not in out.read_text(encoding="utf-8")


def test_report_refuses_what_it_cannot_do(
    model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--out", tmp_path / "r.html"]
    assert exit_code(["report", model, workspace / "store", *out, "--split", "winter"], monkeypatch) == 1
    assert (
        exit_code(["report", model, workspace / "store", *out, "--baseline", model, "--no-baseline"], monkeypatch) == 2
    )
    assert exit_code(["report", tmp_path / "nothing", workspace / "store", *out], monkeypatch) == 1
    assert not (tmp_path / "r.html").exists()
