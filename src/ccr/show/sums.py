"""A sum as rows, the same ones in the same order in every terminal, page and figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ccr.core.explain import Contribution
from ccr.show.style import signed_name


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
