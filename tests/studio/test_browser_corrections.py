"""From a mistake to its repair in a real browser: answers about a photo, its label, leaving it out; out of fold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.knowledge import Answer, Knowledge
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from tests.data.helpers import PixelEncoder
from tests.studio.browsing import Studio, expect, studio_of
from tests.studio.helpers import CONCEPTS, fit_model, make_bench

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
    expect(page.get_by_text("nothing can be learned from it")).to_be_visible()


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
    page.locator(".cell.error").first.click()  # what spoke for it are sums of another model
    expect(page.get_by_text("These sums are of the model itself")).to_be_visible()
    for scope in ("shown", "train"):
        page = folded.open(f"#mistakes?scope={scope}")
        expect(page.locator(".head .note")).to_contain_text("trained on")  # whichever model it is
    page = folded.open("#photos")
    expect(page.get_by_label("Predicted by")).to_have_value("held")
    page.get_by_label("Predicted by").select_option("own")
    expect(page.get_by_label("Predicted by")).to_have_value("own")
    assert "held=false" in page.url


def test_a_bar_says_how_likely_its_concept_is_shown(browser: Any, store: EmbeddingStore, tmp_path: Path) -> None:
    """With answers about photos; concepts that are not sure to be shown are one bar, and can be answered."""
    running = Running(make_bench(store, _answered_model(store), tmp_path))
    seen = running.bench.now()
    row = next(
        row for row in seen.photos.training if len({term.stated for term in seen.explain(row).contributions}) == 2
    )
    explained = seen.explain(row)
    stated = [f"{term.concept}, {round(100 * term.shown)} %" for term in explained.contributions if term.stated]
    unsure = [f"{term.concept}, {round(100 * term.shown)} %" for term in explained.contributions if not term.stated]
    for studio in studio_of(browser, running):
        page = studio.open(f"#photo?id={row}")
        names = page.get_by_role("region", name="Why").locator("> div .name")
        expect(names).to_have_text(["bias", *stated, f"{len(unsure)} not sure to be shown"])
        page.get_by_text("is it here?").click()
        expect(page.locator(".unsure .name")).to_have_text(unsure)
        contrast = page.get_by_label("Class to contrast with").locator("xpath=..").locator(".name")
        expect(contrast.filter(has_text=stated[0])).to_have_count(1)
        expect(contrast.filter(has_text="not sure to be shown")).to_have_count(1)
        page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
        page.locator(".unsure .answer.no").first.click()
        expect(page.locator(".toast").last).to_contain_text("not here")
    least = next(term.concept for term in explained.contributions if not term.stated)
    assert running.bench.corrections.about(least) == {row: "no"}
    running.close()


def _answered_model(store: EmbeddingStore) -> ConceptModel:
    """A model with ten answers about photos for each concept, the higher its score the more often yes."""
    train, texts = store.select("train"), Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    first, told = fit_model(store), []
    codes = first.encode(train).toarray()
    for column, name in enumerate(first.names):
        for at, row in enumerate(np.argsort(-codes[:, column], kind="stable")[:20:2]):
            answer = "yes" if (at * 7 + column) % 10 < 8 - at else "no"
            told.append(Answer("", name, answer, "person", photo=str(train.paths[row])))
    options = {"knowledge": Knowledge.of(told), "min_probability": 0.1, "max_iter": 12, "random_state": 0}
    return ConceptClassifier(texts, coder=HardThreshold(length=6), **options).fit(train).model_
