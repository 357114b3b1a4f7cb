"""Answers that come late, and settings that nobody moved: what the page shows and sends is what was asked for last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from tests.data.helpers import PixelEncoder
from tests.studio.browsing import Studio, expect, studio_of, wait_for_rows
from tests.studio.helpers import CLASSES, CONCEPTS, make_bench, write_store

pytestmark = pytest.mark.browser


@contextmanager
def held(page: Any, address: str) -> Iterator[list[Any]]:
    """Requests of such an address are kept waiting, and answered at the end, unless the page has given them up."""
    waiting: list[Any] = []
    page.route(address, lambda route: waiting.append(route))
    yield waiting
    for route in waiting:
        route.continue_()
    page.unroute(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(200)


def until_asked(page: Any, waiting: list[Any]) -> None:
    """Wait for the first request that is held."""
    for _ in range(200):
        if waiting:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page asked for nothing")


def refit_sent(page: Any) -> dict[str, Any]:
    """What the button asks for; it is not done."""
    with page.expect_request(lambda asked: asked.url.endswith("api/refit") and asked.method == "POST") as sent:
        page.route("**/api/refit", lambda route: route.abort())
        page.locator("#refit").click()
    page.unroute("**/api/refit")
    return json.loads(sent.value.post_data)


SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"fidelity": 0.66, "weights_per_class": 20, "coder": HardThreshold(length=8)}, ["0.660", "8", "20"]),
    (
        {"radius": 0.1, "weights_per_class": "auto", "coder": HardThreshold(threshold=0.2)},
        ["radius 0.1", "threshold 0.2", "auto"],
    ),
]


@pytest.mark.parametrize(("options", "shown"), SETTINGS)
def test_a_refit_changes_no_setting_that_was_not_moved(
    browser: Any, store: EmbeddingStore, tmp_path: Path, options: dict[str, Any], shown: list[str]
) -> None:
    texts = Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    train, val = store.select("train"), store.select("val")
    estimator = ConceptClassifier(texts, max_iter=4, random_state=0, **options)
    running = Running(make_bench(store, estimator.fit(train, validation=(val, val.y)).model_, tmp_path))
    context = browser.new_context()
    page = context.new_page()
    page.goto(running.url + "#bench")
    expect(page.locator(".setting output")).to_have_text(shown)
    assert refit_sent(page) == {"kind": "full"}
    page.locator("#length").focus()
    page.keyboard.press("ArrowRight")
    moved = int(page.locator("#length").input_value())
    assert refit_sent(page) == {"kind": "full", "length": moved}
    page.get_by_role("button", name="Concepts per photo: as it is").click()
    expect(page.locator(".setting output")).to_have_text(shown)
    assert refit_sent(page) == {"kind": "full"}
    context.close()
    running.close()


def test_a_setting_that_was_moved_lasts_until_a_refit_is_done(work: Studio) -> None:
    page = work.open("#bench")
    page.locator("#weights_per_class").focus()
    page.keyboard.press("End")
    page.locator("#fidelity").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    work.bench.edit("pin", {"concept": work.bench.now().model.names[0]})  # as a script would
    expect(page.locator(".steps .now")).to_contain_text("pin")
    expect(page.locator(".setting output")).to_have_text(["0.890", "6", "all"])
    page.get_by_role("link", name="Concepts", exact=True).click()
    page.get_by_role("link", name="Bench").click()
    expect(page.locator(".setting output")).to_have_text(["0.890", "6", "all"])
    page.locator("#refit").click()
    expect(page.locator(".steps .now")).to_contain_text("refitted")
    settings = work.bench.now().model.provenance.settings
    assert (settings["fidelity"], settings["weights_per_class"]) == (pytest.approx(0.89), None)
    expect(page.get_by_role("button", name=re.compile("as it is"))).to_have_count(0)
    page.get_by_role("button", name="Undo", exact=True).last.click()
    expect(page.locator(".setting output")).to_have_text(["0.875", "6", "5"])


def test_the_wall_asks_for_photos_of_the_store_that_is_open(
    browser: Any, store: EmbeddingStore, model: ConceptModel, tmp_path: Path
) -> None:
    """By an address that names it: on the same port, a browser would show what it kept of another one."""
    addresses = []
    for number, opened in enumerate((store, store.select(rows=np.arange(len(store))[::-1]))):
        running = Running(make_bench(opened, model, tmp_path / str(number)))
        for studio in studio_of(browser, running):
            image = studio.open("#photos").locator(".tile img").first
            addresses.append(image.get_attribute("src"))
            assert f"of={running.bench.thumbnails.digest}" in addresses[-1]
        running.close()
    assert addresses[0] != addresses[1]


def test_bounds_stay_with_their_concept(look: Studio) -> None:
    seen = look.bench.now()
    one, other = seen.model.names[:2]
    page = look.open(f"#photos?concept={one}&concept={other}&above=0.05&above=0.01".replace(" ", "%20"))
    expect(page.locator(".chip bdi")).to_have_text([f"{one} ≥ 0.05", f"{other} ≥ 0.01"])
    page.get_by_role("group", name="Concept").get_by_label("at least").first.fill("")
    page.keyboard.press("Tab")
    expect(page.locator(".chip bdi")).to_have_text([f"{one}", f"{other} ≥ 0.01"])
    values = seen.values(other)
    wait_for_rows(page, [row for row in range(len(values)) if seen.photos.open[row] and values[row] >= 0.01][:120])
    page.reload()
    expect(page.locator(".chip bdi")).to_have_text([f"{one}", f"{other} ≥ 0.01"])


@pytest.mark.parametrize(
    "view", ["#mistakes?scope=shown&truth=apple&predicted=apple", "#concept?name=word+0", "#bench?words=red"]
)
def test_photos_are_turned_wherever_they_were_opened(look: Studio, view: str) -> None:
    page = look.open(view)
    tiles = page.locator(".strip, .results").first.locator(".tile")
    rows = [tiles.nth(at).get_attribute("data-row") for at in range(2)]
    tiles.first.locator("a").click()
    page.get_by_label("Next photo").click()  # among the photos that it was opened from
    page.wait_for_url(re.compile(rf"id={rows[1]}\b"))
    page.get_by_label("Previous photo").click()
    page.wait_for_url(re.compile(rf"id={rows[0]}\b"))
    expect(page.get_by_label("Previous photo")).to_be_disabled()
    expect(page.locator(".toast")).to_have_count(0)


def test_a_photo_that_is_not_in_the_set_leads_nowhere(look: Studio) -> None:
    row = int(look.bench.photos.test[0])
    page = look.open(f"#photo?id={row}&from=mistakes%3Fscope%3Dtest")
    page.wait_for_load_state("networkidle")
    for label in ("Next photo", "Previous photo"):
        expect(page.get_by_label(label)).to_be_disabled()


def test_a_late_contrast_and_a_late_what_if_are_not_shown(look: Studio) -> None:
    page, why = look.open("#photo?id=5"), look.bench.now().explain(5)
    chooser = page.get_by_label("Class to contrast with")
    first, second = [name for name in CLASSES if name.isalpha() and name != why.prediction][:2]
    total = chooser.locator("xpath=..").locator(".total b")
    page.wait_for_load_state("networkidle")
    with held(page, f"**/contrast?other={first}"):
        chooser.select_option(second)
        chooser.select_option(first)
        chooser.select_option(second)
        expect(total).to_have_text(f"{why.contrast(second).difference:.2f}")
    expect(total).to_have_text(f"{why.contrast(second).difference:.2f}")
    with held(page, "**/intervene") as asked:
        page.locator(".slider input").first.focus()
        page.keyboard.press("End")
        until_asked(page, asked)
        page.get_by_role("button", name="reset").click()
        page.wait_for_timeout(100)
    expect(page.locator(".what-if")).to_have_text("Move a slider: the prediction follows.")


def test_a_late_selection_and_late_colours_are_not_shown(look: Studio) -> None:
    kept = look.bench.selections.add(look.bench.photos.training[:3])
    page = look.open("#photos")
    with held(page, "**/api/selections/*") as asked:
        page.evaluate(f"location.hash = '#photos?selection={kept}'")
        expect(page.locator("h1")).to_have_text("3 photos")
        until_asked(page, asked)
        page.evaluate("location.hash = '#photos'")
        expect(page.locator("h1")).to_have_text("84 photos")
    expect(page.get_by_text("A selection of")).to_have_count(0)
    page = look.open("#map")
    expect(page.get_by_role("button", name="apple")).to_be_visible()
    with held(page, "**/api/map/colours?by=split*"):
        page.get_by_label("Colour by").select_option("split")
        page.get_by_label("Colour by").select_option("right")
        expect(page.get_by_role("button", name="wrong")).to_be_visible()
        page.wait_for_timeout(100)
        drawn = page.evaluate("document.querySelector('.map canvas').toDataURL()")
    assert page.evaluate("document.querySelector('.map canvas').toDataURL()") == drawn


def test_a_search_that_was_given_up_is_not_shown(look: Studio) -> None:
    page = look.open("#bench")
    field = page.get_by_label("Words to look for")
    with held(page, "**/api/search*") as asked:
        field.fill("red")
        until_asked(page, asked)
        field.fill("")
        page.wait_for_timeout(600)
    expect(page.locator(".results .tile")).to_have_count(0)
    field.fill("green")
    page.get_by_role("link", name="Concepts", exact=True).click()
    page.wait_for_timeout(800)
    assert page.url.endswith("#concepts")


def test_a_range_is_picked_whole_also_where_it_was_never_shown(
    browser: Any, model: ConceptModel, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(list(CLASSES))[np.arange(1500) // 750]
    write_store(tmp_path / "store", rng.standard_normal((1500, model.dimension)), labels)
    running = Running(make_bench(EmbeddingStore.open(tmp_path / "store"), model, tmp_path))
    for studio in studio_of(browser, running, refused=True):
        page = studio.open("#photos")
        page.locator('[data-row="0"] .pick').click(force=True)
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        page.locator('[data-row="1499"] .pick').click(modifiers=["Shift"], force=True)
        expect(page.get_by_text("1,500 photos picked")).to_be_visible()
        page.get_by_role("button", name="Clear").click()
        page = studio.open("#photos?classes=apple")
        page.locator('[data-row="2"] .pick').click(force=True)
        page.evaluate("location.hash = '#photos?classes=lime'")
        page.locator('[data-row="759"] .pick').click(modifiers=["Shift"], force=True)
        expect(page.get_by_text("2 photos picked")).to_be_visible()
    running.close()
