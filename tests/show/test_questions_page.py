"""The page of questions about photos: inert, answered by keys without a network, its answers read as knowledge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ccr.explain.terms import jpeg_address
from ccr.knowledge import Knowledge
from ccr.show.pages import PhotoQuestion, questions_page

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)> \u202e & \"more\""
PICTURES = [jpeg_address(Image.new("RGB", (64, 48), colour), 320) for colour in ("red", "green")]
QUESTIONS = (
    PhotoQuestion("apple", "red skin", "a/1, two.jpg", 0),
    PhotoQuestion("", "red skin", "a/2.jpg", 1),
    PhotoQuestion("=1+1", '-sum("x")', "@b.jpg", 0),
    PhotoQuestion(HOSTILE, HOSTILE, HOSTILE, 1),
)


class Tags(HTMLParser):
    """Elements of a page, and what could run in it."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.scripts.append(dict(attrs))


def test_texts_from_outside_stay_texts_and_the_policy_names_the_only_script() -> None:
    html = questions_page("Questions", QUESTIONS, PICTURES, by=HOSTILE)
    tags = Tags()
    tags.feed(html)
    assert [script.get("type") for script in tags.scripts] == ["application/json", None]
    assert tags.handlers == []
    assert "\u202e" not in html
    policy = html.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline'; script" not in policy
    assert html.count(PICTURES[0]) == 1  # shown twice, in the page once


def test_a_page_without_questions_is_a_page() -> None:
    assert "0 questions about 0 concepts" in questions_page("Questions", [], [])


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """The page in Chromium without a network; afterwards, nothing may have gone wrong in it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium is installed to open the page in")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    file, problems = tmp_path / "questions.html", []
    file.write_text(questions_page("Questions", QUESTIONS, PICTURES, by="Ada"), encoding="utf-8")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 380, "height": 760}, accept_downloads=True, offline=True)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda box: problems.append(f"a name ran a script: {box.message}"))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else problems.append(asked.url),
        )
        page.goto(file.as_uri())
        page.wait_for_selector("#form:not([hidden])")
        yield page
        browser.close()
    assert not problems, problems[:3]


def downloaded(page: Any, folder: Path) -> Knowledge:
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "answers.csv"
    waiting.value.save_as(folder / "answers.csv")
    return Knowledge.read(folder / "answers.csv")


@pytest.mark.browser
def test_keys_answer_and_the_answers_are_read_as_they_were_given(opened: Any, tmp_path: Path) -> None:
    page = opened
    assert page.inner_text(".ask") == "Does this photo show red skin?"
    for key in ("y", "N", "ArrowLeft", "ArrowLeft", "u", "y"):  # back to the first, which is unclear after all
        page.keyboard.press(key)
    assert page.inner_text("#count").startswith("3 of 4 answered")
    assert HOSTILE.replace("\u202e", "\\u202e") in page.inner_text(".ask")
    page.keyboard.press("Control+y")  # no answer
    page.click("#by")
    page.keyboard.type(" Lovelace, yn")  # a name, and no answers
    assert page.inner_text("#count").startswith("3 of 4 answered")
    known = downloaded(page, tmp_path)
    assert [(one.label, one.concept, one.answer, one.photo) for one in known] == [
        ("apple", "red skin", "unknown", "a/1, two.jpg"),
        ("", "red skin", "no", "a/2.jpg"),
        ("=1+1", '-sum("x")', "yes", "@b.jpg"),
    ]
    assert {(one.source, one.by) for one in known} == {("person", "Ada Lovelace, yn")}
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


@pytest.mark.browser
def test_answers_stay_in_the_browser_and_buttons_do_what_keys_do(opened: Any, tmp_path: Path) -> None:
    page = opened
    page.click("[data-answer=yes]")
    page.click("[data-answer=no]")
    page.click("#back")
    assert page.get_attribute("[data-answer=no]", "aria-pressed") == "true"
    page.reload()
    page.wait_for_selector("#form:not([hidden])")
    assert page.inner_text("#count").startswith("2 of 4 answered")  # and it goes on at the third
    page.keyboard.press("y")
    page.keyboard.press("y")
    assert page.is_visible("#done")
    assert len(downloaded(page, tmp_path)) == 4
    page.evaluate('localStorage.setItem(Object.keys(localStorage)[0], \'{"answers": {"0": ["<b>", 3], "99": 1}}\')')
    page.reload()
    page.wait_for_selector("#form:not([hidden])")
    assert page.inner_text("#count").startswith("0 of 4 answered")
