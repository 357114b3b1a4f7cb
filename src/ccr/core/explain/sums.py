"""A sum as rows, the same ones in the same order in every terminal, page, notebook and figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ccr.core.explain.terms import Contribution, Status
from ccr.core.shown import STATED

#: What is known of a term's claim, as a sign; a stream that has no such signs gets the plain ones.
MARKS: dict[Status, str] = {"confirmed": "✓", "unknown": "?", "contradicted": "✗"}
PLAIN_MARKS: dict[Status, str] = {"confirmed": "yes", "unknown": "?", "contradicted": "no"}


#: What an explanation without any contribution says.
NO_REASON = "shows none of the concepts that this model may use"


class SumRow(NamedTuple):
    """One row of a sum: a name, what it adds, and the concept behind it; None: the bias, or the others together.
    `claim` is what is known of its claim, where the model knows anything; `note` says more of a row without a term."""

    name: str
    value: float
    term: Contribution | None = None
    claim: Status | None = None
    note: str = ""


def sum_rows(
    bias: float, contributions: Sequence[Contribution], top: int, *, informed: bool | None = None
) -> list[SumRow]:
    """The bias, the `top` largest contributions, and the others together, if there are any; concepts that the image
    shows with a probability below `STATED` are not stated by name, but together.

    Rows have their claims if the model is `informed`; None: if any claim is known.
    """
    if informed is None:
        informed = any(term.claim in ("confirmed", "contradicted") for term in contributions)
    rows = [SumRow("bias", bias)]
    unsure = [term for term in contributions if term.code > 0 and term.shown is not None and term.shown < STATED]
    stated = [term for term in contributions if term not in unsure]
    rows += [
        SumRow(likely_name(term), term.contribution, term, term.claim if informed else None) for term in stated[:top]
    ]
    if unsure:
        total, note = sum(term.contribution for term in unsure), "; ".join(map(likely_name, unsure))
        rows.append(SumRow(f"{len(unsure)} not sure to be shown", total, note=note))
    rest = stated[top:]
    if rest:
        total = sum(term.contribution for term in rest)
        rows.append(SumRow(f"{len(rest)} other{'s' if len(rest) > 1 else ''}", total))
    return rows


def claim_marks(encoding: str | None) -> dict[Status, str]:
    """The signs that a stream of this encoding can show."""
    try:
        "".join(MARKS.values()).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS
    return MARKS


def sum_text(heading: str, rows: Sequence[SumRow], total: float, *, encoding: str | None = None) -> str:
    """A sum in plain text: a row in a line, the total below them; claims have signs of this encoding."""
    marks = claim_marks(encoding)
    lines = [f"{row.value:+9.2f}  {row.name}{'' if row.claim is None else f' {marks[row.claim]}'}" for row in rows]
    return "\n".join([heading, *lines, *_no_reason(rows), f"{f'= {total:.2f}':>9}  logit"])


def _no_reason(rows: Sequence[SumRow]) -> list[str]:
    """A line for an image that shows none of the concepts."""
    return [] if len(rows) > 1 else [f"{'':9}  {NO_REASON}"]


def signed_name(term: Any) -> str:
    """The name of a `concept` as its `code` counted: one with a negative code counted by being away from the image."""
    return term.concept if term.code >= 0 else f"not: {term.concept}"


def likely_name(term: Contribution) -> str:
    """The signed name with the probability that the image shows the concept, where the model knows it."""
    return signed_name(term) if term.shown is None or term.code < 0 else f"{term.concept}, {term.shown:.0%}"


def row_hint(row: SumRow) -> str:
    """What to say of a row when the pointer rests on it."""
    if row.term is None:
        return "the same for every image" if row.name == "bias" else row.note or "summed"
    known = "" if row.claim is None else f"; claim {row.claim}"
    return f"code {row.term.code:.3f} x weight {row.term.weight:.3f}{known}"
