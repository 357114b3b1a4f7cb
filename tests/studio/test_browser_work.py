"""Work on a model in a real browser: concepts edited and taught, the bench, undo, saving, comparing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr.vocab.wordnet import WordNet
from ccr_studio.serving import Running
from tests.data.helpers import PixelEncoder
from tests.studio.browsing import Studio, expect, studio_of
from tests.studio.helpers import CONCEPTS, make_bench

pytestmark = pytest.mark.browser


def test_a_concept_is_renamed_scaled_pinned_taught_and_suppressed(work: Studio) -> None:
    page, bench = work.open("#concepts"), work.bench
    name = bench.now().model.names[0]
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_text("Borderline")).to_be_visible()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("New name").fill("smooth skin")
    page.get_by_role("button", name="Rename").last.click()
    expect(page.locator("h1")).to_have_text("smooth skin")
    page.get_by_role("button", name="Scale").click()
    page.get_by_label("Factor").fill("0.25")
    page.get_by_role("button", name="Scale").last.click()
    expect(page.get_by_text("is scaled by 0.25")).to_be_visible()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Pinned")).to_be_disabled()
    field = page.locator(".weight input").first
    field.fill("2.5")
    field.press("Tab")
    expect(page.get_by_text("weighs 2.5")).to_be_visible()
    for kind in ("yes", "no"):
        for at in range(2):
            page.locator("#most" if kind == "yes" else "#borderline").locator(f"[data-vote={kind}]").nth(at).click()
    page.get_by_role("button", name="Teach it").click()
    expect(page.get_by_text("is taught anew")).to_be_visible()
    actions = [entry["action"] for entry in bench.now().model.provenance.edits]
    assert actions == ["rename", "scale", "pin", "set_weight", "teach"]
    page.get_by_role("button", name="Suppress").click()
    page.get_by_role("button", name="Suppress").last.click()
    expect(page.get_by_text("is suppressed")).to_be_visible()
    expect(page.get_by_role("link", name="smooth skin")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(page.get_by_role("link", name="smooth skin", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="smooth skin", exact=True)).to_be_visible()


def test_the_bench_adds_refits_measures_saves_and_compares(work: Studio) -> None:
    page, bench = work.open("#bench"), work.bench
    page.get_by_label("Words to look for").fill("warm light")
    expect(page.locator(".results .tile")).to_have_count(18)
    page.get_by_role("button", name="Add as a concept").click()
    expect(page.locator(".steps .now")).to_contain_text("warm light")
    gone = bench.now().model.names[0]
    page.get_by_role("combobox", name="Remove a concept").fill(gone)
    page.get_by_role("option", name=gone, exact=True).click()
    expect(page.locator(".steps .now")).to_contain_text(gone)
    assert gone not in bench.now().model.names
    page.locator("#fidelity").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.locator("#refit").click()
    expect(page.locator(".curve")).to_be_visible()
    expect(page.locator(".steps .now")).to_contain_text("refitted")
    assert bench.now().model.provenance.settings["fidelity"] == pytest.approx(0.86)
    expect(page.locator(".ba.all")).to_be_visible()
    page.get_by_role("button", name="Measure on test photos").click()
    expect(page.get_by_text("On the test photos")).to_be_visible()
    expect(page.get_by_text("looked at 1 time")).to_be_visible()
    page.get_by_role("button", name="Undo", exact=True).last.click()
    expect(page.locator(".steps .undone")).to_contain_text("refitted")
    page.get_by_role("button", name="Redo", exact=True).last.click()
    expect(page.locator(".steps .now")).to_contain_text("refitted")
    page.get_by_role("button", name="Save as a model").click()
    page.get_by_label("Name").fill("better fruit")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved in")).to_be_visible()
    assert ConceptModel.load(bench.models / "better fruit").provenance.edits[-1]["action"] == "fit"
    with page.expect_download() as download:
        page.get_by_role("link", name="Report").click()
    assert "validation photos" in Path(download.value.path()).read_text()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_label("Model to compare with")).to_be_visible()
    page.get_by_label("Model to compare with").select_option("0")
    page.get_by_role("button", name=re.compile("^both right")).click()
    expect(page.locator(".sums h3")).to_have_text(["The model now", "The other"])


def test_a_reload_or_another_page_finds_the_same_session(work: Studio) -> None:
    name = work.bench.now().model.names[0]
    page = work.open("#bench")
    work.bench.edit("suppress", {"concept": name})  # as a script would
    expect(page.locator(".steps .now")).to_contain_text("suppress")
    page.reload()
    expect(page.locator(".steps .now")).to_contain_text("suppress")


def test_words_that_nobody_knows_are_no_concept_to_add_at_first_sight(work: Studio) -> None:
    page = work.open("#bench")
    wait_for_dictionary(work)
    page.get_by_label("Words to look for").fill("asdfghjkl qwerty")
    expect(page.locator("#doubtful-words")).to_contain_text("'asdfghjkl' is in no dictionary")
    expect(page.locator(".results .tile")).to_have_count(18)
    button = page.get_by_role("button", name="Add it all the same")
    expect(button).not_to_have_class(re.compile("primary"))
    page.get_by_label("Words to look for").fill("an apple")  # a class
    expect(page.locator("#doubtful-words")).to_contain_text("it names a class")
    page.get_by_label("Words to look for").fill("warm light")
    expect(page.get_by_role("button", name="Add as a concept")).to_have_class(re.compile("primary"))
    expect(page.locator("#doubtful-words")).to_have_count(0)


def test_a_concept_that_the_model_left_out_is_offered(browser: Any, store: EmbeddingStore, tmp_path: Path) -> None:
    names = [*CONCEPTS, "a plastic bag"]
    texts = Concepts(names, PixelEncoder().embed_texts(names))
    estimator = ConceptClassifier(texts, coder=HardThreshold(length=6), max_iter=4, weights_per_class=2, random_state=0)
    model = estimator.fit(store.select("train")).model_
    left = model.provenance.left_out[0]  # whichever it is, it is asked for without its article, in capitals
    running = Running(make_bench(store, model, tmp_path))
    for studio in studio_of(browser, running):
        page = studio.open("#bench")
        page.get_by_label("Words to look for").fill(f"the {left.removeprefix('a ').upper()}")
        page.get_by_role("button", name=f"Take in {left}").click()
        expect(page.locator(".steps .now")).to_contain_text(f"{left} added")
        assert left in running.bench.now().model.names
    running.close()


def wait_for_dictionary(studio: Studio) -> None:
    """Until words are looked up; skipped where there is no dictionary."""
    try:
        WordNet.open()
    except CCRError as error:
        pytest.skip(f"WordNet is not here: {error}")
    for _ in range(200):
        if studio.bench.words.problems("asdfghjkl", classes=()):
            return
        studio.page.wait_for_timeout(50)
    raise AssertionError("the dictionary is not read")
