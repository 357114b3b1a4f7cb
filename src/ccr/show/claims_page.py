"""A model's claims as a page: by class, every sentence that a positive weight says, with what speaks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from ccr.core.explain.claims import Claim
from ccr.core.knowledge import Knowledge
from ccr.show import page
from ccr.texts import visible

#: With more classes than this, sections are folded.
MOST_OPEN = 30
HEADER = (
    "claim",
    "status",
    "weight",
    "its images that show it",
    "images showing it that are its",
    "accuracy without",
    "source",
    "by",
    "at",
)


def claims_in_words(counts: Mapping[str, int]) -> str:
    """Such as "70 claims: 52 confirmed, 15 unknown, 3 contradicted"."""
    total = sum(counts.values())
    parts = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    return f"{total:,} claim{'' if total == 1 else 's'}: {parts}"


def count_claims(claims: Sequence[Claim]) -> dict[str, int]:
    """How many of the claims are confirmed, unknown and contradicted."""
    found = [claim.status for claim in claims]
    return {status: found.count(status) for status in ("confirmed", "unknown", "contradicted")}


def claims_page(
    title: str, claims: Sequence[Claim], *, measured: str, knowledge: Knowledge | None, signed: str | None = None
) -> str:
    """The page of these claims, by class. `measured` says in a sentence on which images they were, `signed` who signed
    the model."""
    known = "The model was fitted without knowledge." if knowledge is None else f"Knowledge {knowledge.digest}."
    body = [
        f"<h1>{page.name(visible(title))}</h1>",
        f'<p class="verdict">{claims_in_words(count_claims(claims))}</p>',
        f"<p>A positive weight claims that the class shows the concept. {escape(visible(measured))} "
        f'<span class="muted">{known}</span></p>',
    ]
    if signed is not None:
        body.insert(2, f"<p><strong>{page.name(visible(signed))}</strong></p>")
    groups = [(label, list(found)) for label, found in groupby(claims, key=lambda claim: str(claim.label))]
    for label, found in groups:
        counts = ", ".join(f"{number} {status}" for status, number in count_claims(found).items() if number)
        summary = f'{page.name(visible(label))} <span class="muted">{counts}</span>'
        body.append(page.details(summary, claims_table(found), opened=len(groups) <= MOST_OPEN, kind="class"))
    return page.page(title, body)


def claims_table(claims: Sequence[Claim]) -> str:
    """Claims of one class as a table; columns that are empty for all of them are left out."""
    rows = [_cells(claim) for claim in claims]
    kept = [column for column in range(len(HEADER)) if column < 3 or any(row[column] for row in rows)]
    texts = [at for at, column in enumerate(kept) if HEADER[column] in ("status", "source", "by", "at")]
    return page.table_of_html(
        [HEADER[column] for column in kept], [[row[column] for column in kept] for row in rows], texts=texts
    )


def _cells(claim: Claim) -> list[str]:
    return [
        f"{page.mark(claim.status)} {page.name(visible(claim.sentence))}",
        f'<span class="claim {claim.status}">{claim.status}</span>',
        f"{claim.weight:.2f}",
        percent(claim.share),
        percent(claim.purity),
        "" if claim.accuracy_without is None else f"{claim.accuracy_without:.1%}",
        *(escape(visible(text)) for text in (claim.source, claim.by, claim.at)),
    ]


def percent(share: float | None) -> str:
    """A share without digits behind the point; nothing for None."""
    return "" if share is None else f"{share:.0%}"
