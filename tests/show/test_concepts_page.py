"""The page of a checked list, in a real browser."""

import re
from pathlib import Path

from PIL import Image

from ccr.errors import CCRError
from ccr.show.pages import Row, concepts_page
from tests.show.browser import measure


class Photos:
    """A store of two images, the second of which cannot be read."""

    paths = ("0.png", "1.png")

    def image(self, row: int) -> Image.Image:
        if row == 1:
            raise CCRError("the image is gone")
        return Image.new("RGB", (40, 30), (200, 30, 30))


HOSTILE = '<script>alert("x")</script> \u202e'


def test_bad_concepts_come_first_and_texts_stay_texts(tmp_path: Path) -> None:
    rows = [
        Row("red skin", "good", [], 0.25, [0, 1]),
        Row(HOSTILE, "bad", [f"it says {HOSTILE}: drop it"], 0.0, [0]),
        Row("x" * 200, "doubtful", ["long"], None, []),
    ]
    html = concepts_page(f"Concepts {HOSTILE}", [("good", "1")], rows, Photos())
    assert html.index("alert") < html.index("xxxx") < html.index("red skin")
    assert "active in 25.0% of the images" in html
    assert "1 image could not be read: the image is gone" in html
    for width in (360, 1200):
        seen = measure(html, tmp_path, width)
        assert seen["scripts"] == seen["handlers"] == seen["broken"] == 0
        assert seen["images"] == 2
        assert seen["width"] <= seen["window"]


def test_a_long_list_is_folded_and_every_concept_is_a_jump_away(tmp_path: Path) -> None:
    rows = [Row(f"word {number}", "good", []) for number in range(300)] + [Row("odd", "doubtful", ["it is odd"])]
    html = concepts_page("Concepts", [("good", "300")], rows, None)
    assert measure(html, tmp_path, 1200)["folded"] < 1500  # the good ones are folded
    links = re.findall(r'href="#([^"]+)"', html)
    assert links[:3] == ["doubtful", "good", "names"]
    assert len(links) == 3 + len(rows)
    assert all(f'id="{link}"' in html for link in links)
