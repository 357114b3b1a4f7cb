"""`ccr judge` as a user types it: with lines, with keys on a terminal, killed and resumed, and on a page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr.review.judgement import RANDOM, Sheet, score
from tests.cli.conftest import HOSTILE, Terminal, as_json, exit_code, run


@pytest.fixture
def drawn(model: Path, workspace: Path, tmp_path: Path) -> Path:
    """A sheet of four photos, nothing of it judged."""
    found = as_json("judge", model, workspace / "store", "--photos", 4, "--seed", 3, "--out", tmp_path / "s.json")
    assert found["photos"] == 4
    return tmp_path / "s.json"


def judge(sheet: Path, *options: object, lines: list[str]) -> Any:
    return run("judge", "--out", sheet, *options, lines="".join(f"{line}\n" for line in lines))


def verdicts_in_order(sheet: Path, judge: str = "") -> list[str]:
    read = Sheet.read(sheet)
    return [read.of(judge)[at].get(claim, "") for at, photo in enumerate(read.photos) for claim in photo.claims]


def test_claims_are_the_largest_shown_terms_and_random_ones(drawn: Path, model: Path, workspace: Path) -> None:
    sheet, loaded = Sheet.read(drawn), ConceptModel.load(model)
    rows = EmbeddingStore.open(workspace / "store").select("test")
    assert sheet.origins == ("model", RANDOM)
    for photo, made in zip(sheet.photos, sheet.made_by, strict=True):
        terms = [term.concept for term in loaded.explain(rows[photo.row]).contributions if term.code > 0]
        assert list(made["model"]) == terms[:5]
        assert len(made[RANDOM]) == len(set(made[RANDOM])) == 5
        assert set(made[RANDOM]) <= {*loaded.names, *loaded.provenance.left_out}
        assert sorted(photo.claims) == sorted({*made["model"], *made[RANDOM]})
        assert photo.path == rows.paths[photo.row]


def test_the_same_seed_draws_the_same_sheet_and_another_one_does_not(
    drawn: Path, model: Path, workspace: Path, tmp_path: Path
) -> None:
    for seed in (3, 4):
        options = ("--photos", 4, "--seed", seed, "--out", tmp_path / f"{seed}.json")
        as_json("judge", model, workspace / "store", *options)
    assert (tmp_path / "3.json").read_bytes() == drawn.read_bytes()
    assert Sheet.read(tmp_path / "4.json").digest != Sheet.read(drawn).digest


def test_lines_are_verdicts_back_goes_back_and_the_end_stops(drawn: Path) -> None:
    done = judge(drawn, lines=["t", "h", "b", "f", "true"])
    assert done.exit_code == 0
    assert verdicts_in_order(drawn)[:4] == ["true", "false", "true", ""]
    assert "(so far: half)" in done.stdout
    assert "claims are left" in done.stdout
    judge(drawn, lines=["half", "q", "t"])
    assert verdicts_in_order(drawn)[:5] == ["true", "false", "true", "half", ""]


def test_who_judges_sees_no_origin_and_no_other_verdict(drawn: Path) -> None:
    size = Sheet.read(drawn).size
    judge(drawn, "--judge", "anna", lines=["t"] * size)
    shown = judge(drawn, "--judge", "ben", lines=["f"] * (size - 1)).stdout
    assert "(so far" not in shown
    assert "anna" not in shown
    assert "share" not in shown
    assert not re.search(rf"\bmodel\b|{RANDOM}", shown)


def test_a_finished_sheet_is_scored_with_the_agreement_of_its_judges(drawn: Path) -> None:
    size = Sheet.read(drawn).size
    anna = ["t", "f"] * size
    judge(drawn, "--judge", "anna", lines=anna[:size])
    done = judge(drawn, "--judge", "ben", lines=["f", *anna[1:size]])
    assert "share" in done.stdout
    assert "Cohen's kappa" in done.stdout
    found = as_json("judge", "--score", drawn)
    expected = score(Sheet.read(drawn))
    assert found == json.loads(json.dumps(expected.to_dict()))
    assert found["agreements"][0]["equal"] == pytest.approx((size - 1) / size)
    alone = as_json("judge", "--score", drawn, "--judge", "anna")
    assert [one["name"] for one in alone["judges"]] == ["anna"]


def test_an_unfinished_sheet_says_how_much_is_left(drawn: Path) -> None:
    size = Sheet.read(drawn).size
    judge(drawn, lines=["t", "t", "f"])
    shown = run("judge", "--score", drawn).stdout
    assert f"3 of {size} claims about 4 photos are judged, {size - 3} are left" in shown


def test_bad_input_is_refused_with_rule_value_and_remedy(
    drawn: Path,
    model: Path,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = json.loads(drawn.read_text(encoding="utf-8"))
    claim = next(iter(plain["photos"][1]["verdicts"]))
    plain["photos"][1]["verdicts"][claim] = "perhaps"
    (tmp_path / "bad.json").write_text(json.dumps(plain), encoding="utf-8")
    store = workspace / "store"
    for code, said, arguments in (
        (1, f"about {plain['photos'][1]['path']}", ["--score", tmp_path / "bad.json"]),
        (1, "got 'perhaps'", ["--score", tmp_path / "bad.json"]),
        (1, "nothing is judged yet", ["--score", drawn]),
        (1, "was drawn with photos 4, not 9", [model, store, "--out", drawn, "--photos", 9]),
        (1, "was drawn with seed 3, not 4", [model, store, "--out", drawn, "--seed", 4]),
        (1, "was drawn with models model, not other", [model.parent / "other", store, "--out", drawn]),
        (1, "between 1 and the", [model, store, "--out", tmp_path / "n.json", "--photos", 999]),
        (1, "the store has no split", [model, store, "--out", tmp_path / "n.json", "--split", "tset"]),
        (1, "every model is given once", [model, model, store, "--out", tmp_path / "n.json"]),
        (1, "--page must end in .html", ["--out", drawn, "--page", tmp_path / "p.htm"]),
        (1, "must be a file of verdicts", ["--out", drawn, "--read", tmp_path / "bad.json"]),
        (1, "must be plain text", ["--out", drawn, "--judge", "a\u202eb", "--read", tmp_path / "bad.json"]),
        (1, "a sheet is a plain file", [model, store, "--out", f"file://{tmp_path}/n.json"]),
        (2, "give models and a store", ["--out", tmp_path / "n.json"]),
        (2, "only scores that sheet", [model, store, "--score", drawn]),
    ):
        assert exit_code(["judge", *arguments], monkeypatch) == code, arguments
        shown = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().err).split())
        assert said in shown, arguments
        assert not (tmp_path / "n.json").exists()


def test_a_line_that_is_no_verdict_names_photo_and_claim_and_keeps_those_before(drawn: Path) -> None:
    photo = Sheet.read(drawn).photos[0]
    with pytest.raises(CCRError) as refused:
        judge(drawn, lines=["t", "yes", "f"])
    assert photo.claims[1] in str(refused.value)
    assert str(photo.path) in str(refused.value)
    assert "got 'yes'" in str(refused.value)
    assert verdicts_in_order(drawn)[:2] == ["true", ""]


def test_a_store_that_was_made_anew_is_not_judged(drawn: Path) -> None:
    plain = json.loads(drawn.read_text(encoding="utf-8"))
    plain["photos"][0]["path"] = "elsewhere/9.png"
    drawn.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(CCRError, match=r"must be the photo elsewhere/9\.png"):
        judge(drawn, lines=["t"])


def test_a_sheet_of_earlier_versions_needs_its_store_named(drawn: Path, workspace: Path) -> None:
    plain = json.loads(drawn.read_text(encoding="utf-8"))
    old = {name: plain[name] for name in ("photos", "made_by")}
    for photo in old["photos"]:
        del photo["path"]
    drawn.write_text(json.dumps(old), encoding="utf-8")
    assert judge(drawn, lines=["t"]).exit_code == 2
    assert judge(drawn, workspace / "store", lines=["t"]).exit_code == 0
    assert verdicts_in_order(drawn)[0] == "true"


def test_one_key_is_enough_on_a_terminal_and_a_killed_run_goes_on(drawn: Path) -> None:
    size = Sheet.read(drawn).size
    with Terminal("judge", "--out", drawn) as screen:
        first = screen.until("stop: ")
        assert "▀" in first
        assert "\x1b[38;2;" in first
        screen.type("x\x1b[B\x1b[1;5F\x1bOFt")  # no verdict, then keys that send letters after an escape
        screen.until(f"2/{size}")
        screen.type("F")
        screen.until(f"3/{size}")
    assert verdicts_in_order(drawn)[:3] == ["true", "false", ""]
    with Terminal("judge", "--out", drawn) as screen:
        assert f"3/{size}" in screen.until("stop: ")
        screen.type("\x04")  # Ctrl-D
        screen.until("goes on")
        assert screen.process.wait(120) == 0
    assert verdicts_in_order(drawn)[:3] == ["true", "false", ""]


def test_the_page_holds_claims_and_photos_and_no_origin(drawn: Path, tmp_path: Path) -> None:
    done = run("judge", "--out", drawn, "--page", tmp_path / "p.html", "--judge", 'A "quoted" <b>')
    assert done.exit_code == 0, done.output
    text, sheet = (tmp_path / "p.html").read_text(encoding="utf-8"), Sheet.read(drawn)
    assert text.count("data:image/jpeg;base64,") == 4
    assert text.count("<li>") == sheet.size
    assert "made_by" not in text
    assert RANDOM not in text
    assert not any(name in text for name in HOSTILE if "<" in name)
    assert "<b>" not in text.split("<header>")[1].split("</header>")[0]
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)


@pytest.mark.browser
def test_the_page_is_judged_in_a_browser_and_read_back(drawn: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if chromium is None:
        pytest.skip("no chromium is installed to open the page in")
    from tests.studio.browsing import FLAGS

    size = Sheet.read(drawn).size
    run("judge", "--out", drawn, "--page", tmp_path / "p.html")
    problems: list[str] = []
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(accept_downloads=True)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.goto((tmp_path / "p.html").as_uri())
        page.fill("#judge", "cleo")
        page.click("h1")
        for key in ("t", "h", "b", "F"):
            page.keyboard.press(key)
        page.reload()  # verdicts stay in the browser
        assert f"3 of {size} claims judged" not in page.inner_text("#progress")
        assert f"2 of {size} claims judged" in page.inner_text("#progress")
        page.click("li.here button[data-verdict=half]")
        for _ in range(size - 3):
            page.keyboard.press("t")
        assert "all done" in page.inner_text("#progress")
        with page.expect_download() as saved:
            page.click("#save")
        saved.value.save_as(tmp_path / "verdicts.json")
        browser.close()
    assert not problems, problems[:3]
    done = run("judge", "--out", drawn, "--read", tmp_path / "verdicts.json")
    assert f"{size} verdicts of cleo" in done.stdout
    assert verdicts_in_order(drawn, "cleo") == ["true", "false", "half", *["true"] * (size - 3)]
