"""A page on a running studio, in Debian's chromium. Where there is none, tests that import this are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ccr_studio.serving import Running

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no chromium is installed to open the studio in", allow_module_level=True)
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


@contextmanager
def opened_browser() -> Iterator[Any]:
    """The browser, closed afterwards."""
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


def studio_of(
    browser: Any, running: Running, *, width: int = 1280, refused: bool = False, **options: Any
) -> Iterator[Studio]:
    """A window on a studio; afterwards, nothing may have gone wrong in it. With `refused` the test asks for what is not
    there, and is told so (422) whenever the answer comes."""
    context = browser.new_context(viewport={"width": width, "height": 860}, **options)
    context.set_default_timeout(60_000)
    studio = Studio(context.new_page(), running)
    yield studio
    context.close()
    problems = [line for line in studio.problems if not (refused and "422" in line)]
    assert not problems, problems[:3]


def wait_for_rows(page: Any, rows: list[int]) -> None:
    """Until the wall shows exactly these photos in this order."""
    page.wait_for_function(
        "(rows) => JSON.stringify([...document.querySelectorAll('.tile')].map((one) => Number(one.dataset.row))) "
        "=== JSON.stringify(rows)",
        arg=rows,
    )


def _own(url: str, base: str) -> bool:
    return url.startswith((base, "data:", "blob:", "about:"))
