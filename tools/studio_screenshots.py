"""Screenshots of the studio: `python -m tools.studio_screenshots ccr-demo` makes those of docs/studio.md out of what
`ccr demo` left; with `--all FOLDER`, every view and state at three widths, light and dark, to look at."""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ccr.data.store import EmbeddingStore
from ccr.io.files import write_bytes
from ccr.model import ConceptModel
from ccr_studio import serving
from ccr_studio.work.workbench import Workbench

DOCS = Path(__file__).resolve().parents[1] / "docs" / "studio"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
#: Those of the docs: view, light or dark.
SHOWN = {
    "photos": ("#photos?right=wrong&sort=confidence&descending=true", "light"),
    "photo": ("#photo?id={mistake}", "light"),
    "mistakes": ("#mistakes?truth={truth}&predicted={predicted}", "light"),
    "concept": ("#concept?name={concept}", "dark"),
    "bench": ("#bench?words=netted+rind", "light"),
    "review": ("#review?class={truth}", "light"),
}
WIDTHS, THEMES, TALLEST = (390, 1360, 1920), ("light", "dark"), 2400

Act = Callable[[Page], Any]


def _nothing(page: Page) -> None:
    """The view as it opens."""


def _pick(page: Page) -> None:
    for number in range(3):
        page.locator(".pick").nth(number).check(force=True)


def _filters(page: Page) -> None:
    page.locator(".rail-open").click()


def _combobox(page: Page) -> None:
    if page.locator(".rail-open").is_visible():
        _filters(page)
    page.get_by_role("combobox", name="Add a filter by concept").fill("s")


def _slide(page: Page) -> None:
    page.locator(".sliders input").first.focus()
    page.keyboard.press("Home")
    page.wait_for_selector(".what-if b")
    page.locator(".what-if ~ * details, details").first.click()


def _where(page: Page) -> None:
    page.get_by_label("Where is it?").select_option(index=1)
    page.wait_for_function("() => document.querySelector('.picture canvas').width > 0")


def _vote(page: Page) -> None:
    for kind, place in (("yes", "#most"), ("no", "#borderline")):
        for number in range(2):
            page.locator(place).locator(f"[data-vote={kind}]").nth(number).click()


def _press(name: str) -> Act:
    """Press a button, if it can be: the last step may be undone already."""

    def press(page: Page) -> None:
        button = page.get_by_role("button", name=name, exact=True).first
        if button.is_enabled():
            button.click()

    return press


def _answer(page: Page) -> None:
    """A claim confirmed, one rejected, one unclear: the reviewer is known to the page by name."""
    page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
    page.reload()
    page.wait_for_selector(".claim.now .mine")
    for key in ("y", "2", "u"):
        page.keyboard.press(key)
        page.wait_for_timeout(400)


def _refit(page: Page) -> None:
    page.locator("#refit").click()
    page.wait_for_selector(".curve")


def _tip(page: Page) -> None:
    """Over a photo of the map: somewhere in the middle there is one."""
    box = page.locator(".map canvas").bounding_box()
    for step in range(60):
        page.mouse.move(box["x"] + box["width"] * (0.3 + step / 150), box["y"] + box["height"] * 0.5)
        if page.locator(".map-tip:not(.hidden)").count():
            return


def _lasso(page: Page) -> None:
    box = page.locator(".map canvas").bounding_box()
    corners = [(0.3, 0.3), (0.6, 0.25), (0.65, 0.6), (0.4, 0.7)]
    for number, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=5)
        if not number:
            page.mouse.down()


def _in_view(page: Page) -> None:
    page.get_by_label("Closer").click()
    page.get_by_label("Select what is in view").click()
    page.wait_for_selector(".apart-line")


#: Every view and state: where it is, and what is done there.
STATES: dict[str, tuple[str, Act]] = {
    **{name: (address, _nothing) for name, (address, _) in SHOWN.items()},
    "photos-all": ("#photos", _nothing),
    "photos-concept": ("#photos?concept={concept}&above=0.1&sort=concept&by={concept}&descending=true", _nothing),
    "photos-combobox": ("#photos", _combobox),
    "photos-picked": ("#photos", _pick),
    "photos-selection": ("#map", _in_view),
    "photos-empty": ("#photos?right=wrong&low=0.99", _nothing),
    "photos-refused": ("#photos?classes=Durian", _nothing),
    "photo-right": ("#photo?id={right}", _nothing),
    "photo-slider": ("#photo?id={mistake}", _slide),
    "photo-where": ("#photo?id={mistake}", _where),
    "photo-unknown": ("#photo?id=99999999", _nothing),
    "mistakes-matrix": ("#mistakes", _nothing),
    "mistakes-train": ("#mistakes?scope=train", _nothing),
    "map": ("#map", _nothing),
    "map-tip": ("#map?by=right", _tip),
    "map-lasso": ("#map?by=predicted", _lasso),
    "map-concept": ("#map?by=concept&concept={concept}", _nothing),
    "concepts": ("#concepts", _nothing),
    "concepts-none": ("#concepts?words=zzzz", _nothing),
    "concept-votes": ("#concept?name={concept}", _vote),
    "concept-rename": ("#concept?name={concept}", _press("Rename")),
    "concept-suppress": ("#concept?name={concept}", _press("Suppress")),
    "concept-unknown": ("#concept?name=nobody", _nothing),
    "concept-new": ("#concept?name=&teach=new&shows={mistake},{right}", _nothing),
    "bench-idle": ("#bench", _nothing),
    "bench-save": ("#bench", _press("Save as a model")),
    "bench-test": ("#bench", _press("Measure on test photos")),
    "compare": ("#compare", _nothing),
    "compare-same": ("#compare?other={version}", _nothing),
    "undone": ("#bench", _press("Undo")),
    "redone": ("#bench", _press("Redo")),
    "review-start": ("#review", _nothing),
    "review-answered": ("#review", _answer),
    "review-concept": ("#review?by=concept", _nothing),
    "review-open": ("#review?by=open", _nothing),
    "review-disputed": ("#review?by=disputed", _nothing),
    "review-keys": ("#review", lambda page: page.keyboard.press("?")),
    "class": ("#class?name={truth}", _nothing),
    "class-unknown": ("#class?name=nobody", _nothing),
    "signature": ("#signature", _nothing),
    "bench-nonsense": ("#bench?words=asdfghjkl+qwerty", _nothing),
    "bench-running": ("#bench", _refit),
}
#: Views that are also opened before anything was done, of a signed model, and in a studio that only shows.
FIRST = ("photos-all", "mistakes-matrix", "review-start", "bench-idle", "compare")
SIGNED = ("signature", "review", "class", "bench-idle")
READ_ONLY = ("bench", "concept", "photos-all", "review")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `ccr demo` left")
    parser.add_argument("--all", type=Path, help="folder for every view at three widths, light and dark")
    parser.add_argument("--only", default="", help="with --all: names of views, with commas between")
    options = parser.parse_args()
    found = shutil.which("chromium")
    if found is None:
        sys.exit("chromium is needed and not there")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        running = serving.Running(_workbench(options.demo, Path(folder)))
        browser = engine.chromium.launch(executable_path=found, args=FLAGS)
        try:
            if options.all is None:
                _make_docs(browser, running.url, _worked_on(running))
            else:
                _make_all(browser, running, options.all, set(filter(None, options.only.split(","))))
        finally:
            browser.close()
            running.close()


def _workbench(demo: Path, folder: Path) -> Workbench:
    """A new session on the demo's model, which was fitted with its knowledge."""
    store, model = EmbeddingStore.open(demo / "store"), ConceptModel.load(demo / "model")
    return serving.open_workbench(store, model, folder / "session", models=folder, title="ccr-demo")


def _worked_on(running: serving.Running) -> dict[str, Any]:
    """Two steps, a concept added and everything refitted, and predictions out of fold; then what the addresses name: a
    surely wrong validation photo, the cell of the matrix that it is in, a right one."""
    bench = running.bench
    bench.add("sunken stem")
    bench.refit("full", {})
    while bench.refits.running:
        time.sleep(0.1)
    bench.shown(held=True)  # begins them
    while bench.folds.state(bench.now()) == "computing":
        time.sleep(0.1)
    held, seen, rows = bench.shown(held=True), bench.now(), bench.photos.validation
    wrong, right = rows[~seen.right[rows] & ~held.right[rows]], rows[seen.right[rows]]
    row = int(wrong[seen.confidence[wrong].argmax()])
    truth, predicted = seen.classes[seen.truth[row]], seen.classes[seen.predicted[row]]
    most = max(seen.explain(row).contributions, key=lambda term: term.contribution)
    named = {"truth": quote(truth), "predicted": quote(predicted), "concept": quote(most.concept)}
    return {"mistake": row, "right": int(right[0]), "version": seen.version, **named}


def _make_docs(browser: Any, url: str, places: dict[str, Any]) -> None:
    for name, (address, theme) in SHOWN.items():
        page = browser.new_page(viewport={"width": 1360, "height": 850}, color_scheme=theme)
        _open(page, url + address.format(**places))
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=78, optimize=True, progressive=True)
        write_bytes(DOCS / f"{name}.jpg", stream.getvalue())
        print(f"{DOCS / name}.jpg: {len(stream.getvalue()) // 1024} kB")
        page.close()


def _make_all(browser: Any, running: serving.Running, out: Path, only: set[str]) -> None:
    """A sheet for each view and theme, with the three widths side by side."""
    bench = running.bench
    windows = {theme: browser.new_context(color_scheme=theme) for theme in THEMES}

    def make(names: Iterable[str], places: dict[str, Any], prefix: str = "", acting: bool = False) -> None:
        for name in names:
            address, act = STATES[name]
            if not only or f"{prefix}{name}" in only:
                act = act if acting else _nothing
                _sheets(windows, running.url + address.format(**places), act, out, f"{prefix}{name}")
                while bench.refits.running:
                    time.sleep(0.1)

    make(FIRST, {}, "first-")
    places = _worked_on(running)
    make(STATES, places, acting=True)
    _sign(bench)
    make(SIGNED, places, "signed-")
    bench.read_only, bench.decides = True, False
    make(READ_ONLY, places, "read-only-")


def _sign(bench: Workbench) -> None:
    """Every claim confirmed, one concept never a reason, and signed."""
    review = bench.review(bench.now().model)
    for claim in review.claims():
        review.decide(claim.label, claim.concept, "yes", by="ann")
    unused = next(name for name in review.concepts.names if name not in bench.now().model.names)
    review.strike(unused, by="ann")
    bench.sign("ann")


def _sheets(windows: dict[str, Any], address: str, act: Act, out: Path, name: str) -> None:
    for theme in THEMES:
        page, shots = windows[theme].new_page(), []
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        _open(page, address)
        act(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(400)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                print(f"{name} at {width}: {wide} pixels wide")
            shots.append(Image.open(io.BytesIO(_shot(page, width))).convert("RGB"))
        page.close()
        sheet = Image.new("RGB", (sum(shot.width for shot in shots) + 40, max(shot.height for shot in shots)), "#888")
        left = 0
        for shot in shots:
            sheet.paste(shot, (left, 0))
            left += shot.width + 20
        out.mkdir(parents=True, exist_ok=True)
        sheet.save(out / f"{name}-{theme}.png")
        print(out / f"{name}-{theme}.png", flush=True)


def _open(page: Page, address: str) -> None:
    page.set_default_timeout(180_000)  # a busy machine
    page.goto(address)
    page.wait_for_selector("main h1")
    if "#map" in address:
        page.wait_for_selector(".map canvas")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


def _shot(page: Page, width: int) -> bytes:
    """The page as far as it goes, or what is over it: dialogs and the map stay in the window."""
    page.evaluate("window.scrollTo(0, 0)")
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
    if page.locator("dialog").count() or height <= 900:
        return page.screenshot()
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})


if __name__ == "__main__":
    main()
