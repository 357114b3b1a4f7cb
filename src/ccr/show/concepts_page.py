"""A list of concepts as a page: what is wrong with each, in how many images it is seen, and the images that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ccr.show import page
from ccr.show.report.pictures import Pictures


@dataclass(frozen=True)
class Row:
    """A concept on the page: its verdict (good, doubtful, implausible, bad), why, the share of images in which it is
    active, and the rows of the store that show it most; the last two None and empty where no photos were looked at."""

    concept: str
    verdict: str
    reasons: Sequence[str]
    share: float | None = None
    top: Sequence[int] = ()


def concepts_page(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[Row], store: Any | None) -> str:
    """The page, bad ones first. `facts` are pairs of what and how much; `store` has the images of the rows' `top`."""
    pictures = None if store is None else Pictures(store)
    order = sorted(rows, key=lambda row: ("bad", "implausible", "doubtful", "good").index(row.verdict))
    body = [f"<h1>{escape(title)}</h1>", page.table(("", ""), facts, texts=(1,)), "<h2>Concepts, the worst first</h2>"]
    body += ['<div class="cards">', *(_card(row, pictures) for row in order), "</div>"]
    if pictures is not None and pictures.missing:
        count = "1 image" if pictures.missing == 1 else f"{pictures.missing:,} images"
        body.append(f'<p class="muted">{count} could not be read: {escape(pictures.reason)}</p>')
    return page.page(title, body)


def _card(row: Row, pictures: Pictures | None) -> str:
    kind = "right" if row.verdict == "good" else "wrong"
    parts = [f'<p class="verdict">{page.name(row.concept)} <span class="{kind}">{row.verdict}</span></p>']
    parts += [f'<div class="muted">{escape(reason)}</div>' for reason in row.reasons]
    if row.share is not None:
        parts.append(f'<div class="muted">active in {row.share:.1%} of the images</div>')
    if pictures is not None:
        parts.append(pictures.strip([(number, "") for number in row.top]))
    return f'<section class="card">{"".join(parts)}</section>'
