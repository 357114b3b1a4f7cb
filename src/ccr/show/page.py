"""HTML: one self-contained file, no network, no script but its own; everything from outside is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from PIL import Image

from ccr.explain import Contrast, Contribution, Explanation
from ccr.explain.terms import (
    AGAINST,
    FOR,
    INK,
    MARKS,
    NEUTRAL,
    Status,
    jpeg_address,
    row_hint,
    sum_rows,
    total_in_words,
)
from ccr.utils.texts import percent

#: A page may show what is in it, and do nothing else.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def static(name: str) -> str:
    """Text of a style, a script or a form that comes with the package."""
    return (files("ccr.show") / "static" / name).read_text(encoding="utf-8")


_COLOURS = f"--for: {FOR}; --against: {AGAINST}; --neutral: {NEUTRAL}; --ink: {INK}; --muted: #666; --line: #ddd"
STYLE = f":root {{ {_COLOURS} }}\n{static('page.css')}"


def page(title: str, body: Sequence[str], *, style: str = "", script: str = "") -> str:
    """A whole document from parts that are HTML already; `style` is added to that of all pages. A `script` is the only
    one that the page runs: its policy names the script's hash."""
    policy = POLICY
    if script:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        body = [*body, f"<script>{script}</script>"]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Collection[int] = ()) -> str:
    """A table of escaped cells; the first column and the `texts` are words, the others numbers."""
    return table_of_html(header, [[escape(cell) for cell in row] for row in rows], texts=texts)


def table_of_html(header: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Collection[int] = ()) -> str:
    """The same with cells that are HTML already. On a narrow screen a row is a paragraph, each cell after its
    heading."""
    kinds = [' class="text"' if column in texts else "" for column in range(len(header))]
    labels = [f' data-label="{escape(cell)}"' if cell else "" for cell in header]
    head = "".join(f"<th{kind}>{escape(cell)}</th>" for cell, kind in zip(header, kinds, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{kind}{label}>{cell}</td>" for cell, kind, label in zip(row, kinds, labels, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def name(text: object) -> str:
    """A name inside a sentence: escaped, and kept from turning the direction of the words around it."""
    return f"<bdi>{escape(str(text))}</bdi>"


def details(summary: str, body: str, *, opened: bool = False, kind: str = "") -> str:
    """Something to unfold; both parts are HTML already."""
    attributes = (f' class="{kind}"' if kind else "") + (" open" if opened else "")
    return f"<details{attributes}><summary>{summary}</summary>{body}</details>"


def drawing(png: bytes, alt: str) -> str:
    """A figure as PNG inside the page; on a narrow screen it scrolls sideways in its own box."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<div class="figure"><img alt="{escape(alt)}" src="{source}"></div>'


def thumbnail(image: Image.Image, size: int = 230) -> str:
    """The image as a small JPEG inside the page."""
    return f'<img alt="" src="{jpeg_address(image, size)}">'


def explanation_card(
    explanation: Explanation,
    image: Image.Image | str | None = None,
    *,
    truth: Any | None = None,
    against: Contrast | None = None,
    caption: str = "",
    more: Sequence[str] = (),
    below: Sequence[str] = (),
    top: int = 10,
    big: bool = False,
) -> str:
    """One prediction as HTML: image, verdict, and the sum that made it; optionally why not another class.

    Parameters
    ----------
    image : the image, or HTML that stands for it.
    truth : the true class; None: the verdict says nothing about it.
    against : why the predicted class and not another.
    caption : text below the image.
    more : HTML to put below the sum.
    below : HTML to put below all, over the full width of the card.
    top : concepts shown by name, at least 1; the others are summed.
    big : a card over the full width.
    """
    sums = [verdict(explanation, truth)]
    sums.append(terms(explanation.bias, explanation.contributions, top, informed=explanation.informed))
    sums.append(f'<div class="muted">{total_in_words(explanation)}</div>')
    sums += more
    seen = [] if image is None else [image if isinstance(image, str) else thumbnail(image, 460 if big else 230)]
    seen += [f'<div class="muted">{escape(caption)}</div>'] if caption else []
    parts = ["".join(sums), *([] if against is None else [contrast(against, top)])]
    parts = [f"<div>{part}</div>" for part in (["".join(seen), *parts] if seen else parts)]
    parts += [f'<div class="below">{part}</div>' for part in below]
    return f'<section class="card{" big" if big else ""}">' + "\n".join(parts) + "</section>"


def contrast(against: Contrast, top: int) -> str:
    """Contrast of one class with another."""
    heading = f"{name(against.prediction)} rather than {name(against.other)}"
    together = f'<div class="muted">together {against.difference:+.2f}</div>'
    return f'<p class="verdict">{heading}</p>{terms(against.bias, against.contributions, top)}{together}'


def verdict(explanation: Explanation, truth: Any | None) -> str:
    """HTML of the predicted class, its probability, and whether it is right."""
    prediction = f"{name(explanation.prediction)}, {percent(explanation.probability)}"
    if truth is None:
        return f'<p class="verdict">{prediction}</p>'
    if str(truth) == str(explanation.prediction):
        return f'<p class="verdict right">{prediction}: right</p>'
    return f'<p class="verdict wrong">{prediction}: wrong, it is {name(truth)}</p>'


def terms(bias: float, contributions: Sequence[Contribution], top: int, *, informed: bool | None = None) -> str:
    """A sum as bars: bias, the largest contributions, the others; with the signs of what is known of their claims."""
    rows = sum_rows(bias, contributions, top, informed=informed)
    return bars([(row.name, row.value, row_hint(row)) for row in rows], claims=[row.claim for row in rows])


def mark(claim: Status | None) -> str:
    """The sign of what is known of a claim, as HTML; nothing for None."""
    return "" if claim is None else f'<span class="claim {claim}" title="{claim}">{MARKS[claim]}</span>'


def bars(
    rows: Sequence[tuple[str, float, str]], *, scale: float = 0.0, claims: Sequence[Status | None] | None = None
) -> str:
    """Signed bars on one scale: (name, value, what to say when the pointer rests on it); `claims` have their signs.

    They begin beside their names, at a line for zero as far from there as the longest bar to its left needs. The
    longest bar is the largest value, or `scale` if that is larger.
    """
    values = [value for _, value, _ in rows]
    low, high = min([0.0, *values]), max([0.0, *values])
    wide = max(high - low, scale) or 1.0
    zero = 100 * (wide if low < high == 0.0 else abs(low)) / wide
    known = [None] * len(rows) if claims is None else claims
    lines = "".join(_bar(*row, zero, wide, mark(claim)) for row, claim in zip(rows, known, strict=True))
    return f'<div class="terms" style="--zero:{zero:.1f}%">{lines}</div>'


def _bar(label: str, value: float, hint: str, zero: float, wide: float, sign: str) -> str:
    width = 100 * abs(value) / wide
    left, colour = (zero, FOR) if value >= 0 else (zero - width, AGAINST)
    return (
        f'<div class="term" title="{escape(label)}: {escape(hint)}"><span class="name">'
        f"{escape(label)}{sign and ' '}{sign}</span>"
        f'<span class="track"><span class="bar" style="left:{left:.1f}%;width:{width:.1f}%;background:{colour}"></span>'
        f'</span><span class="sum">{value:+.2f}</span></div>'
    )
