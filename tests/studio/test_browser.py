"""Every flow of the studio in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccr.data.store import EmbeddingStore
from ccr.models.concept_model import ConceptModel
from ccr.studio.serving import Running
from tests.data.helpers import encoded
from tests.studio.helpers import CONCEPTS, HOSTILE, colour_picture, make_bench

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed to open the studio in")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect: Any = playwright.expect
expect.set_options(timeout=60_000)  # a busy machine: nothing is timed here

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
]
VIEWS = [
    "#photos",
    "#photo?id=3",
    "#mistakes?scope=shown",
    "#map",
    "#concepts",
    "#concept?name=word+0",
    "#bench",
    "#compare",
]
#: Controls that a screen reader could not name, and things wider than the window.
UNNAMED = """() => [...document.querySelectorAll("button, a[href], input, select, canvas[tabindex]")].filter((one) => {
  const label = one.getAttribute("aria-label") || one.textContent.trim() || one.title
    || (one.id && document.querySelector(`label[for="${CSS.escape(one.id)}"]`)?.textContent.trim())
    || one.closest("label")?.textContent.trim();
  return !label && !one.hasAttribute("aria-hidden");
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Studio:
    """A page on a running studio; what goes wrong in it is kept."""

    def __init__(self, page: Any, running: Running) -> None:
        self.page, self.running, self.bench = page, running, running.bench
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda box: self.problems.append(f"a name ran a script: {box.message}"))
        page.on("request", lambda asked: None if _own(asked.url, running.url) else self.problems.append(asked.url))

    def open(self, address: str) -> Any:
        self.page.goto("about:blank")
        self.page.goto(self.running.url + address)
        self.page.wait_for_selector("main h1")
        return self.page


def _own(url: str, base: str) -> bool:
    return url.startswith((base, "data:", "blob:", "about:"))


def _wait_for_rows(page: Any, rows: list[int]) -> None:
    """Until the wall shows exactly these photos in this order."""
    page.wait_for_function(
        "(rows) => JSON.stringify([...document.querySelectorAll('.tile')].map((one) => Number(one.dataset.row))) "
        "=== JSON.stringify(rows)",
        arg=rows,
    )


@pytest.fixture(scope="module")
def shared(store: EmbeddingStore, model: ConceptModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(make_bench(store, model, tmp_path_factory.mktemp("shared")))
    yield running
    running.close()


@pytest.fixture
def fresh(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> Iterator[Running]:
    running = Running(make_bench(store, model, tmp_path))
    yield running
    running.close()


@pytest.fixture
def look(browser: Any, shared: Running) -> Iterator[Studio]:
    yield from _studio(browser, shared)


@pytest.fixture
def work(browser: Any, fresh: Running) -> Iterator[Studio]:
    yield from _studio(browser, fresh)


def _studio(browser: Any, running: Running, **options: Any) -> Iterator[Studio]:
    context = browser.new_context(viewport={"width": 1280, "height": 860}, **options)
    context.set_default_timeout(60_000)
    studio = Studio(context.new_page(), running)
    yield studio
    context.close()
    assert not studio.problems, studio.problems[:3]


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
    _wait_for_rows(page, sorted(apples, key=lambda row: -seen.confidence[row]))
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
    values, least = seen.values(name), round(seen.threshold, 3)
    shown = [row for row in range(len(values)) if seen.photos.open[row] and values[row] >= least]
    _wait_for_rows(page, sorted(shown, key=lambda row: -values[row]))


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


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1024, "light"), (1920, "dark")])
def test_every_view_fits_and_every_control_has_a_name(browser: Any, shared: Running, width: int, theme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    studio = Studio(context.new_page(), shared)
    page = studio.open("#photos")
    for view in VIEWS:
        page.evaluate("(view) => { location.hash = view; }", view)
        page.wait_for_selector("main h1")
        page.wait_for_timeout(250)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, width)
        assert page.evaluate(UNNAMED) == [], view
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement !== document.body"), view
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (theme == "light")
    context.close()
    assert not studio.problems, studio.problems[:3]


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
    for studio in _studio(browser, running):
        page = studio.open("#bench")
        expect(page.get_by_text("Read-only")).to_be_visible()
        for label in ("Refit", "Undo", "Save as a model", "Add as a concept"):
            expect(page.get_by_role("button", name=label)).to_have_count(0)
        page = studio.open("#concept?name=word+0")
        expect(page.get_by_role("button", name="Suppress")).to_have_count(0)
    running.close()


def test_the_studio_works_below_a_prefix_and_in_a_frame(browser: Any, shared: Running, tmp_path: Path) -> None:
    """A page of a notebook, on another port of this machine, shows it in a frame."""
    import functools
    import http.server
    import threading

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
