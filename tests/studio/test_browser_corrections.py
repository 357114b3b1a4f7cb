"""From a mistake to its repair in a real browser: answers about a photo, its label, leaving it out; out of fold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from tests.studio.browsing import Studio, expect, studio_of
from tests.studio.helpers import make_bench

pytestmark = pytest.mark.browser


def photo_of(work: Studio, split: str) -> tuple[Any, int]:
    row = int(work.bench.photos.of_split(split)[0])
    page = work.open("#photos")
    page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
    return work.open(f"#photo?id={row}&from=photos"), row


def test_two_clicks_answer_about_a_photo_and_the_concept_collects_it(work: Studio) -> None:
    page, row = photo_of(work, "train")
    concept = work.bench.now().explain(row).contributions[0].concept
    here, not_here = (page.get_by_role("button", name=f"{concept}: {words}") for words in ("it is here", "not here"))
    not_here.click()
    expect(not_here).to_have_attribute("aria-pressed", "true")
    assert work.bench.corrections.of(row) == {("concept", concept): "no"}
    box = not_here.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    page.reload()  # it is on the disk, not in the page
    expect(not_here).to_have_attribute("aria-pressed", "true")
    here.click()
    expect(page.locator(".toast").last).to_contain_text("it is here")
    page.locator(".toast button", has_text="Undo").last.click()
    expect(not_here).to_have_attribute("aria-pressed", "true")
    page.locator(".terms a", has_text=concept).first.click()
    expect(page.locator("#answers h2")).to_contain_text("1 time “not here”")
    page.get_by_role("button", name="Take them as marks").click()
    expect(page.locator(".lesson b")).to_contain_text("1 do")


def test_a_wrong_label_is_corrected_and_a_photo_left_out(work: Studio) -> None:
    page, row = photo_of(work, "train")
    page.get_by_text("Label wrong, or leave this photo out?").click()
    page.get_by_label("The right class").select_option("plum")
    expect(page.locator(".verdict")).to_contain_text("plum")
    assert work.bench.now().classes[work.bench.now().truth[row]] == "plum"
    page.get_by_role("button", name="Take back").click()
    page.get_by_role("button", name="Leave this photo out").click()
    expect(page.get_by_text("nothing is trained or measured on it")).to_be_visible()
    assert row not in work.bench.photos.training
    page.get_by_role("button", name="Let it count again").click()
    expect(page.get_by_role("button", name="Leave this photo out")).to_be_visible()
    assert row in work.bench.photos.training


def test_a_test_photo_offers_no_repair(work: Studio) -> None:
    page, _ = photo_of(work, "test")
    expect(page.get_by_role("heading", name="The whole sum")).to_be_visible()
    assert page.locator(".answer").count() == 0
    assert page.locator(".mend").count() == 0


@pytest.fixture
def folded(browser: Any, store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> Iterator[Studio]:
    running = Running(make_bench(store, model, tmp_path, folds=True))
    yield from studio_of(browser, running)
    running.close()


def test_mistakes_open_with_predictions_of_refits_that_have_not_seen_the_photo(folded: Studio) -> None:
    page = folded.open("#mistakes")
    expect(page.locator("[data-value=held]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#held")).to_contain_text("has not seen it")  # once they are there
    seen = folded.bench.shown(held=True)
    rows = seen.rows("shown")
    wrong = int((~seen.right[rows]).sum())
    expect(page.locator("h1")).to_contain_text(f"{wrong} mistake")
    expect(page.locator(".score")).to_contain_text("out of fold")
    page = folded.open("#photos")
    expect(page.get_by_label("Predicted by")).to_have_value("held")
    page.get_by_label("Predicted by").select_option("own")
    expect(page.get_by_label("Predicted by")).to_have_value("own")
    assert "held=false" in page.url
