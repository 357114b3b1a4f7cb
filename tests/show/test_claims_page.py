"""The page of a model's claims: whole, inert, readable on a phone; and the signs of claims on other pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from scipy import sparse

from ccr.coding.heads import LinearHead
from ccr.explain import explain
from ccr.explain.claims import Claim
from ccr.knowledge import Knowledge
from ccr.show import page, plots
from ccr.show.pages import claims_in_words, claims_page
from tests.show.browser import measure
from tests.show.test_pages import Reader

HOSTILE = '<script>alert("x")</script> \u202e & more'
CLAIMS = (
    Claim("apple", "round", 2.0, "yes", "person", "Ada", "2026-11-18", 0.5, 0.25, 0.8, 0.7),
    Claim("apple", HOSTILE, 1.5, "no", HOSTILE, HOSTILE),
    Claim(HOSTILE, "x" * 300, 1.0),
)


def test_all_claims_are_there_and_texts_stay_texts(tmp_path: Path) -> None:
    known = Knowledge(["apple"], ["round"], [["yes"]])
    html = claims_page(f"Claims {HOSTILE}", CLAIMS, measured=f"Measured on {HOSTILE}.", knowledge=known)
    reader = Reader()
    reader.feed(html)
    text = " ".join("".join(reader.text).split())
    assert "script" not in reader.tags
    assert "\u202e" not in html.partition("<body>")[2]
    assert claims_in_words({"confirmed": 1, "unknown": 1, "contradicted": 1}) in text
    for said in (
        known.digest,
        "apple shows round",
        "50%",
        "25%",
        "70.0%",
        "Ada",
        "2026-11-18",
        "confirmed",
        "contradicted",
        "unknown",
    ):
        assert said in text
    for width in (360, 1200):
        seen = measure(html, tmp_path, width)
        assert seen["scripts"] == seen["handlers"] == seen["broken"] == 0
        assert seen["width"] <= seen["window"]


def test_a_model_that_claims_nothing_has_a_page_that_says_so() -> None:
    html = claims_page("Claims", (), measured="Not measured.", knowledge=None)
    assert "0 claims: 0 confirmed, 0 unknown, 0 contradicted" in html
    assert "without knowledge" in html
    assert claims_in_words({"confirmed": 1}) == "1 claim: 1 confirmed"


@pytest.mark.parametrize("informed", [True, False])
def test_pages_and_figures_mark_claims_only_where_something_is_known(informed: bool) -> None:
    head = LinearHead(np.array([[2.0, 1.0, 0.5, -1.0], [0.0] * 4], np.float32), np.zeros(2, np.float32))
    code = sparse.csr_matrix(np.ones((1, 4), np.float32))
    answers = np.array([[1, 0, -1, 1], [0] * 4], np.int8) if informed else np.zeros((2, 4), np.int8)
    names = ("round", "red", "square", "blue")
    found = explain(code, head, concepts=names, classes=("apple", "pear"), answers=answers)
    card = page.explanation_card(found)
    bare = page.explanation_card(explain(code, head, concepts=names, classes=("apple", "pear")))
    figure = plots.explanation(found)
    drawn = {text.get_text() for text in figure.findobj(Text)}
    if not informed:
        assert card == bare, "as it was before there was knowledge"
        assert set(names) <= drawn
        return
    for name, sign, status in (("round", "✓", "confirmed"), ("red", "?", "unknown"), ("square", "✗", "contradicted")):
        assert f'{name} <span class="claim {status}" title="{status}">{sign}</span>' in card
        assert f"{name} {sign}" in drawn
    assert "blue" in drawn, "a negative weight claims nothing"
    assert ">blue</span>" in card
    assert plots.png(figure).startswith(b"\x89PNG")
