"""A sum as rows, the same ones in the same order in every terminal, page, notebook and figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ccr.core.explain.terms import Contribution


class SumRow(NamedTuple):
    """One row of a sum: a name, what it adds, and the concept behind it; None: the bias, or the others together."""

    name: str
    value: float
    term: Contribution | None = None


def sum_rows(bias: float, contributions: Sequence[Contribution], top: int) -> list[SumRow]:
    """The bias, the `top` largest contributions, and the others together, if there are any."""
    rows = [SumRow("bias", bias)]
    rows += [SumRow(signed_name(term), term.contribution, term) for term in contributions[:top]]
    rest = contributions[top:]
    if rest:
        total = sum(term.contribution for term in rest)
        rows.append(SumRow(f"{len(rest)} other{'s' if len(rest) > 1 else ''}", total))
    return rows


def sum_text(heading: str, rows: Sequence[SumRow], total: float) -> str:
    """A sum in plain text: a row in a line, the total below them."""
    lines = [f"{row.value:+9.2f}  {row.name}" for row in rows]
    return "\n".join([heading, *lines, f"{f'= {total:.2f}':>9}  logit"])


def signed_name(term: Any) -> str:
    """The name of a `concept` as its `code` counted: one with a negative code counted by being away from the image."""
    return term.concept if term.code >= 0 else f"not: {term.concept}"


def row_hint(row: SumRow) -> str:
    """What to say of a row when the pointer rests on it."""
    if row.term is None:
        return "the same for every image" if row.name == "bias" else "summed"
    return f"code {row.term.code:.3f} x weight {row.term.weight:.3f}"
