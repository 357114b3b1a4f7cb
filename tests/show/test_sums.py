"""Terminal, page and picture show the same terms in the same order."""

from __future__ import annotations

import re
from html import unescape
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from scipy import sparse

from ccr.cli.common_photo import terms_table
from ccr.coding.heads import LinearHead
from ccr.explain import Explanation, explain
from ccr.explain.terms import sum_rows
from ccr.show import page, plots

NAMES = ["a name that is rather long, but for which there is room", "b", "c", "d", "e"]


@pytest.fixture
def found() -> Explanation:
    # In order of effect d, b, a, c, e: not the order of codes.
    code = sparse.csr_matrix(np.array([[0.9, -0.5, 0.7, 0.1, 0.05]], np.float32))
    head = LinearHead(np.array([[1.0, -2.0, -0.6, 20.0, 0.1], np.zeros(5)]), np.array([0.5, 0.0]))
    return explain(code, head, concepts=NAMES, classes=["apple", "pear"])


def test_rows_are_the_whole_sum(found: Explanation) -> None:
    for top in (1, 3, 4, 5, 9):
        rows = sum_rows(found.bias, found.contributions, top)
        assert sum(row.value for row in rows) == pytest.approx(found.logit)
        assert len(rows) == 1 + min(top, 5) + (top < 5)
    assert [row.name for row in sum_rows(0.5, found.contributions, 3)] == ["bias", "d", "not: b", NAMES[0], "2 others"]
    assert sum_rows(0.5, found.contributions, 4)[-1].name == "1 other"


def test_terminal_page_and_picture_show_them_alike(found: Explanation) -> None:
    against, top = found.contrast("pear"), 3
    sums = {
        0: sum_rows(found.bias, found.contributions, top),
        1: sum_rows(against.bias, against.contributions, top),
    }
    console = Console(file=StringIO(), width=120)
    console.print(terms_table("", found.bias, found.contributions, top, "logit", found.logit))
    console.print(terms_table("", against.bias, against.contributions, top, "difference", against.difference))
    html = page.explanation_card(found, against=against, top=top)
    names, values = (
        [unescape(text) for text in re.findall(rf'class="{kind}">([^<]*)<', html)] for kind in ("name", "sum")
    )
    axes = plots.explanation(found, np.zeros((4, 4, 3)), against=against, top=top).axes
    drawn = [item for item in axes if item.get_title(loc="left") == "contribution"]
    printed = console.file.getvalue()
    assert printed.count("x weight (for this class)") == 2
    for number, rows in sums.items():
        part = slice(number * len(rows), (number + 1) * len(rows))
        assert names[part] == [row.name for row in rows]
        assert values[part] == [f"{row.value:+.2f}" for row in rows]
        assert [label.get_text() for label in drawn[number].get_yticklabels()] == names[part]
        assert [bar.get_width() for bar in drawn[number].patches] == pytest.approx([row.value for row in rows])
    lines = [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")]
    expected = [[row.name for row in rows] for rows in sums.values()]
    assert lines == [*expected[0], "logit", *expected[1], "difference"]


def test_bars_begin_at_zero_beside_their_names() -> None:
    for values, zero in (([1.0, 3.0], 0.0), ([-1.0, 3.0], 25.0), ([-1.0, -2.0], 100.0), ([0.0], 0.0)):
        html = page.bars([("name", value, "") for value in values])
        assert f"--zero:{zero:.1f}%" in html
        edges = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", html)
        for value, (left, width) in zip(values, edges, strict=True):
            assert float(left) + (float(width) if value < 0 else 0) == pytest.approx(zero)
            assert 0 <= float(left) <= float(left) + float(width) <= 100
