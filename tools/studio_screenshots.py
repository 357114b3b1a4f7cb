"""Screenshots of the studio: `python -m tools.studio_screenshots ccr-demo` makes those of docs/studio.md out of what
`ccr demo` left; with `--all FOLDER`, every view at three widths, light and dark, to look at."""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ccr.data.encoders import load_encoder
from ccr.data.store import EmbeddingStore
from ccr.data.vocab import embed_concepts, read_concepts
from ccr.files import write_bytes
from ccr.studio import serving

DOCS = Path(__file__).resolve().parents[1] / "docs" / "studio"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
#: The five of the docs: view, light or dark.
SHOWN = {
    "photos": ("#photos?right=wrong&sort=confidence&descending=true", "light"),
    "photo": ("#photo?id={mistake}", "light"),
    "mistakes": ("#mistakes?truth={truth}&predicted={predicted}", "light"),
    "concept": ("#concept?name={concept}", "dark"),
    "bench": ("#bench?words=netted+rind", "light"),
}
VIEWS = {name: address for name, (address, _) in SHOWN.items()}
VIEWS |= {
    "map": "#map",
    "map-concept": "#map?by=concept&concept=citrus+fruit",
    "concepts": "#concepts",
    "compare": "#compare",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `ccr demo` left")
    parser.add_argument("--all", type=Path, help="folder for every view at three widths, light and dark")
    options = parser.parse_args()
    found = shutil.which("chromium")
    if found is None:
        sys.exit("chromium is needed and not there")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        running = _studio(options.demo, Path(folder))
        browser = engine.chromium.launch(executable_path=found, args=FLAGS)
        try:
            places = _places(running)
            if options.all is None:
                _make_docs(browser, running.url, places)
            else:
                _make_all(browser, running.url, places, options.all)
        finally:
            browser.close()
            running.close()


def _studio(demo: Path, folder: Path) -> serving.Running:
    """A session with two steps: a concept added, and everything refitted."""
    store = EmbeddingStore.open(demo / "store")
    concepts = embed_concepts(read_concepts(demo / "concepts.txt"), load_encoder("bundled"))
    model = serving.first_model(store, concepts)
    bench = serving.open_workbench(store, model, folder / "session", models=folder, title="fruit", fitted_here=True)
    running = serving.Running(bench)
    bench.add("netted rind")
    bench.refit("full", {})
    while bench.refits.running:
        time.sleep(0.1)
    return running


def _places(running: serving.Running) -> dict[str, Any]:
    """A surely wrong validation photo, and the cell of the matrix that it is in."""
    seen, rows = running.bench.now(), running.bench.photos.validation
    wrong = rows[~seen.right[rows]]
    row = int(wrong[seen.confidence[wrong].argmax()])
    truth, predicted = seen.classes[seen.truth[row]], seen.classes[seen.predicted[row]]
    most = max(seen.explain(row).contributions, key=lambda term: term.contribution)
    return {"mistake": row, "truth": truth, "predicted": predicted, "concept": quote(most.concept)}


def _make_docs(browser: Any, url: str, places: dict[str, Any]) -> None:
    for name, (address, theme) in SHOWN.items():
        page = browser.new_page(viewport={"width": 1360, "height": 850}, color_scheme=theme)
        shot = _shot(page, url + address.format(**places))
        picture = Image.open(io.BytesIO(shot)).convert("RGB")
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=78, optimize=True, progressive=True)
        write_bytes(DOCS / f"{name}.jpg", stream.getvalue())
        print(f"{DOCS / name}.jpg: {len(stream.getvalue()) // 1024} kB")
        page.close()


def _make_all(browser: Any, url: str, places: dict[str, Any], out: Path) -> None:
    for theme in ("light", "dark"):
        for width in (390, 1024, 1920):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            for name, address in VIEWS.items():
                write_bytes(out / f"{name}-{width}-{theme}.png", _shot(page, url + address.format(**places)))
            page.close()


def _shot(page: Page, address: str) -> bytes:
    page.set_default_timeout(180_000)  # a busy machine
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(600)
    return page.screenshot()


if __name__ == "__main__":
    main()
