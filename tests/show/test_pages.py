"""Figures and pages: readable with long names, safe with hostile ones, the same numbers as the object."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

from ccr.coding.heads import LinearHead
from ccr.explain import Explanation, explain
from ccr.show import page, plots
from ccr.show.pictures import shortened

NAMES = [
    "<script>alert(1)</script>",
    "a \"quoted\" 'name'",
    "\u202eright to left",
    "🍎 emoji",
    "x" * 200,
    "$5 note",
    "a\nb",
    "plain",
]


@pytest.fixture
def found() -> Explanation:
    rng = np.random.default_rng(0)
    code = sparse.csr_matrix(rng.normal(size=(1, len(NAMES))).astype(np.float32))
    head = LinearHead(rng.normal(size=(3, len(NAMES))), rng.normal(size=3))
    return explain(code, head, concepts=NAMES, classes=["<i>apple</i>", "pear & plum", "$x_1$"])


class Reader(HTMLParser):
    """Collects tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_page_is_inert_and_whole(found: Explanation) -> None:
    image = Image.fromarray(np.zeros((30, 40, 3), np.uint8))
    card = page.explanation_card(
        found, image, truth="pear & plum", against=found.contrast("$x_1$"), caption="<b>", top=20
    )
    html = page.page("<title>", [card, page.table(("<th>",), [("<td>",)])])
    reader = Reader()
    reader.feed(html)
    assert not {"script", "iframe", "link", "i"} & set(reader.tags)
    assert "<script>alert(1)</script>" in "".join(reader.text)
    assert not re.search(r"(src|href)=\"(?!data:image/jpeg;base64,)", html)
    for term in found.contributions:
        assert f"{term.contribution:+.2f}" in html


def test_figures_draw_hostile_and_long_names(found: Explanation) -> None:
    image = Image.fromarray(np.zeros((30, 40, 3), np.uint8))
    for figure in (
        plots.explanation(found, image, truth="pear & plum"),
        plots.explanation(found),
    ):
        assert plots.png(figure).startswith(b"\x89PNG")


def test_an_empty_explanation_is_drawn() -> None:
    head = LinearHead(np.zeros((2, 3)), np.array([1.0, 0.0]))
    empty = explain(sparse.csr_matrix((1, 3)), head, concepts=["a", "b", "c"], classes=["x", "y"])
    assert plots.png(plots.explanation(empty)).startswith(b"\x89PNG")
    assert "shows none of the concepts" in page.explanation_card(empty)


def test_names_are_shortened_to_one_printable_line() -> None:
    assert shortened("a\nb\tc") == "a b c"
    assert len(shortened("y" * 300)) == 40
    assert "\u202e" not in shortened("\u202eabc")
