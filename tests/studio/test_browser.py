"""Looking around in the studio in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import functools
import http.server
import re
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from tests.data.helpers import encoded
from tests.studio.browsing import Studio, expect, studio_of, wait_for_rows
from tests.studio.helpers import CLASSES, CONCEPTS, HOSTILE, colour_picture, make_bench, write_store

pytestmark = pytest.mark.browser


def test_the_wall_filters_sorts_and_keeps_its_state_in_the_address(look: Studio) -> None:
    page = look.open("#photos")
    expect(page.locator("h1")).to_have_text("84 photos")
    page.get_by_role("group", name="True class").get_by_label("apple").check()
    expect(page.locator("h1")).to_have_text("21 photos")
    page.get_by_role("group", name="Split").get_by_label("val").check()
    expect(page.locator("h1")).to_have_text("5 photos")
    assert "classes=apple" in page.url
    page.get_by_label("Sort by").select_option("confidence-")
    seen, rows = look.bench.now(), look.bench.photos.validation
    apples = [row for row in rows.tolist() if seen.classes[seen.truth[row]] == "apple"]
    wait_for_rows(page, sorted(apples, key=lambda row: -seen.confidence[row]))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("h1")).to_have_text("5 photos")
    page.get_by_label("Remove the filter class apple").click()
    expect(page.locator("h1")).to_have_text("20 photos")
    page.go_back()
    expect(page.locator("h1")).to_have_text("5 photos")


def test_a_concept_filters_and_sorts_the_wall(look: Studio) -> None:
    page, name = look.open("#photos"), look.bench.now().model.names[0]
    page.get_by_role("combobox", name="Add a filter by concept").fill(name)
    page.get_by_role("combobox", name="Add a filter by concept").press("Enter")
    expect(page.get_by_label(re.compile(f"Remove the filter {name}"))).to_be_visible()
    page.get_by_label("Sort by").select_option("concept")
    expect(page.get_by_role("button", name="most first")).to_be_visible()
    seen = look.bench.now()
    values, least = seen.values(name), round(seen.threshold(), 3)
    shown = [row for row in range(len(values)) if seen.photos.open[row] and values[row] >= least]
    wait_for_rows(page, sorted(shown, key=lambda row: -values[row]))


def test_photos_are_picked_and_shown_as_a_selection(look: Studio) -> None:
    page = look.open("#photos")
    picks = page.locator(".pick")
    picks.nth(0).check(force=True)
    picks.nth(3).click(modifiers=["Shift"], force=True)
    expect(page.get_by_text("4 photos picked")).to_be_visible()
    page.get_by_role("button", name="Show as a selection").click()
    expect(page.get_by_text("A selection of 4 photos")).to_be_visible()
    expect(page.get_by_text("Concepts that set it apart")).to_be_visible()
    expect(page.locator("h1")).to_have_text("4 photos")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 5


def test_arrow_keys_walk_the_wall_and_turn_photos(look: Studio) -> None:
    page = look.open("#photos")
    page.locator(".tile a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The whole sum")).to_be_visible()
    first = page.locator("h1").text_content()
    page.locator("main").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("h1")).not_to_have_text(first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("h1")).to_have_text(first)
    page.get_by_role("link", name="Back").click()
    expect(page.locator("h1")).to_have_text("84 photos")


def test_a_slider_moves_the_prediction(look: Studio) -> None:
    page = look.open("#photo?id=5")
    why = look.bench.now().explain(5)
    expect(page.locator(".verdict").first).to_contain_text(str(why.prediction))
    expect(page.get_by_text(f"{why.logit:.2f}").first).to_be_visible()
    for term in why.contributions:
        slider = page.locator(".sliders").get_by_label(term.concept, exact=True)
        slider.focus()
        page.keyboard.press("Home")
    after = why.intervene({term.concept: 0.0 for term in why.contributions}).after
    expect(page.locator(".what-if")).to_contain_text(str(after.prediction))
    expect(page.locator(".what-if")).to_contain_text(f"{after.probability:.0%}")
    page.get_by_role("button", name="reset").click()
    expect(page.locator(".what-if")).to_contain_text("the prediction follows")
    for term in why.contributions:  # drawn where the patches carry a fifth of the code, and not below
        page.get_by_label("Where is it?").select_option(term.concept)
        expect(page.get_by_text(f"of {term.concept} (")).to_be_visible()
        place = look.bench.places.of(look.bench.now(), "5", term.concept)
        drawn = page.evaluate("document.querySelector('.picture canvas').width") > 0
        assert drawn == (1 - place["rest"] / place["code"] >= 0.2)
    other = next(name for name in look.bench.now().classes if name not in (why.prediction,))
    page.get_by_label("Class to contrast with").select_option(other)
    expect(page.get_by_text(f"{why.contrast(other).difference:.2f}").last).to_be_visible()


def test_a_photo_dropped_on_the_page_is_explained(look: Studio) -> None:
    page = look.open("#photos")
    content = encoded(colour_picture("plum", 4321))
    page.evaluate(
        """(bytes) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "from the desktop.png", { type: "image/png" }));
            document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
        }""",
        list(content),
    )
    expect(page.locator("h1")).to_have_text("from the desktop.png")
    expect(page.get_by_text("The whole sum")).to_be_visible()
    expect(page.get_by_text("Training photos most like it")).to_be_visible()


def test_a_cell_of_the_matrix_gives_its_photos(look: Studio) -> None:
    page = look.open("#mistakes?scope=shown")
    pair = page.locator(".cell.error").first
    label = pair.get_attribute("aria-label")
    pair.click()
    expect(page.get_by_text("The photos", exact=True)).to_be_visible()
    count = int(re.match(r"\d+", label)[0])
    expect(page.locator(".strip .tile")).to_have_count(count)
    expect(page.get_by_text("spoke for").first).to_be_visible()
    assert "truth=" in page.url
    page.get_by_role("link", name="on the wall").click()
    expect(page.locator("h1")).to_have_text("1 photo" if count == 1 else f"{count} photos")
    assert "held=false" in page.url  # these are predictions of the model itself


def test_a_lasso_on_the_map_gives_a_selection(look: Studio) -> None:
    page = look.open("#map")
    page.wait_for_selector(".map canvas")
    page.get_by_label("Colour by").select_option("right")
    expect(page.get_by_role("button", name="wrong")).to_be_visible()
    page.wait_for_timeout(200)
    box = page.locator(".map canvas").bounding_box()
    at = [(0.05, 0.05), (0.6, 0.05), (0.6, 0.95), (0.05, 0.95)]
    page.mouse.move(box["x"] + box["width"] * at[0][0], box["y"] + box["height"] * at[0][1])
    page.mouse.down()
    for x, y in at[1:]:
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=4)
    page.mouse.up()
    expect(page.get_by_text("Concepts that set it apart")).to_be_visible()
    assert "selection=" in page.url


def test_the_map_can_be_used_by_keys_alone(look: Studio) -> None:
    page = look.open("#map")
    page.wait_for_selector(".map canvas")
    page.wait_for_timeout(400)
    page.locator(".map canvas").focus()
    for key in ("+", "ArrowRight", "-", "s"):
        page.keyboard.press(key)
    expect(page.get_by_text("A selection of")).to_be_visible()


def test_hostile_names_are_text(look: Studio) -> None:
    assert HOSTILE in CONCEPTS
    for view in ("#photos?predicted=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E", "#mistakes?scope=shown", "#concepts"):
        page = look.open(view)
        page.wait_for_timeout(300)
        assert page.locator("main img[src=x]").count() == 0
    page = look.open("#photos")
    expect(page.get_by_text(HOSTILE).first).to_be_visible()


def test_read_only_offers_no_change(browser: Any, store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> None:
    running = Running(make_bench(store, model, tmp_path, read_only=True))
    for studio in studio_of(browser, running):
        page = studio.open("#bench")
        expect(page.get_by_text("Read-only")).to_be_visible()
        for label in ("Refit", "Undo", "Save as a model", "Add as a concept"):
            expect(page.get_by_role("button", name=label)).to_have_count(0)
        page = studio.open("#concept?name=word+0")
        expect(page.get_by_role("button", name="Suppress")).to_have_count(0)
    running.close()


def test_the_studio_works_behind_a_proxy_that_shows_it_below_a_prefix(browser: Any, shared: Running) -> None:
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            path = shared.url + self.path.removeprefix("/tools/studio/")
            asked = urllib.request.Request(path, self.rfile.read(size) or None, dict(self.headers), method=self.command)
            assert self.path.startswith("/tools/studio/"), self.path
            with urllib.request.urlopen(asked, timeout=60) as answer:
                content = answer.read()
                self.send_response(answer.status)
                for name in ("Content-Type", "Content-Security-Policy"):
                    self.send_header(name, answer.headers.get(name, ""))
                self.end_headers()
                self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/tools/studio/#photo?id=5")
    expect(page.get_by_text("The whole sum")).to_be_visible()
    page.locator(".sliders input").first.focus()
    page.keyboard.press("Home")
    expect(page.locator(".what-if b")).to_be_visible()  # posting works, too
    page.wait_for_function("() => document.querySelector('.picture img').naturalWidth > 0")
    context.close()
    server.shutdown()


def test_the_studio_works_in_a_frame(browser: Any, shared: Running, tmp_path: Path) -> None:
    """A page of a notebook, on another port of this machine, shows it in a frame."""
    (tmp_path / "notebook.html").write_text(f"<!doctype html>{shared._repr_html_()}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/notebook.html")
    frame = page.frame_locator("iframe")
    expect(frame.locator("h1")).to_have_text("84 photos")
    frame.get_by_role("link", name="Bench").click()
    expect(frame.get_by_text("Before and after")).to_be_visible()
    context.close()
    server.shutdown()


def test_a_hundred_thousand_photos_stay_few_elements(browser: Any, model: ConceptModel, tmp_path: Path) -> None:
    """Only what is near the window is there, from the first photo to the last."""
    rng = np.random.default_rng(0)
    photos = 100_000
    labels = rng.choice(list(CLASSES), photos)
    write_store(tmp_path / "store", rng.standard_normal((photos, model.dimension)), labels)
    running = Running(make_bench(EmbeddingStore.open(tmp_path / "store"), model, tmp_path))
    for studio in studio_of(browser, running, refused=True):
        page = studio.open("#photos")
        expect(page.locator("h1")).to_have_text("100,000 photos")
        expect(page.locator('[data-row="0"]')).to_be_visible()
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator(f'[data-row="{photos - 1}"]')).to_be_visible()
        assert page.locator(".tile").count() < 300
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight / 2)")
        page.wait_for_function("() => Number(document.querySelector('.tile[data-row]')?.dataset.row) < 60000")
        assert page.locator(".tile").count() < 300
    running.close()
