"""What a model may say and may never say as a page to read and print: by class, by whom, when, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ccr.show import page
from ccr.texts import visible

_PRINT = "@media print { details { break-inside: avoid; } nav { display: none; } }"
HEADER = ("concept", "state", "source", "by", "at", "reason")


def review_page(title: str, rows: Sequence[Mapping[str, Any]], *, signed: str, without: str = "") -> str:
    """The page of the rows of a review (`ccr.review.review_rows`). `signed` says in a sentence who signed, or what is
    missing; `without` is the class that is predicted where no concept is shown."""
    may = [row for row in rows if row["answer"] != "no"]
    never = [row for row in rows if row["answer"] == "no"]
    body = [f"<h1>{page.name(visible(title))}</h1>", f'<p class="verdict">{page.name(visible(signed))}</p>']
    if without:
        body.append(f"<p>An image that shows no concept is called {page.name(visible(without))}.</p>")
    for heading, chosen in (("It may say", may), ("It may never say", never)):
        body.append(f"<h2>{heading} <span class='muted'>({len(chosen):,})</span></h2>")
        labels = dict.fromkeys(str(row["class"]) for row in chosen)
        for label in labels:
            own = [_cells(row) for row in chosen if str(row["class"]) == label]
            table = page.table_of_html(HEADER, own, texts=range(len(HEADER)))
            body.append(page.details(page.name(visible(label)), table, opened=True, kind="class"))
    return page.page(title, body, style=_PRINT)


def _cells(row: Mapping[str, Any]) -> list[str]:
    concept = page.name(visible(str(row["concept"])))
    return [concept, *(escape(visible(str(row[name]))) for name in HEADER[1:])]
