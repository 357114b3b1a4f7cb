"""An explanation as a picture in a notebook: HTML with its styles inline, as the report's bars look; all text is
escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ccr.explain.terms import MARKS, NO_REASON, Contribution, SumRow, row_hint, sum_rows
from ccr.utils.texts import percent, visible

#: Colour-blind safe (Okabe and Ito).
FOR, AGAINST, NEUTRAL, INK = "#0072B2", "#D55E00", "#999999", "#222222"
MUTED = "#666"
_BOX = (
    f"font:14px/1.4 system-ui,sans-serif;color:{INK};background:#fff;border:1px solid #ddd;border-radius:8px;"
    "padding:.7em;margin:.3em 0;max-width:44em;box-sizing:border-box"
)
_COLUMNS = "grid-template-columns:minmax(0,max-content) minmax(4.5em,1fr) max-content"
_GRID = f"display:grid;{_COLUMNS};gap:.1em .5em;align-items:center;font-size:.9em;line-height:1.3"
_NAME = "overflow-wrap:anywhere;unicode-bidi:isolate;text-align:left"
_SUM = "text-align:right;font-variant-numeric:tabular-nums"


def picture(explanation: Any, *, top: int = 10, title: str = "") -> str:
    """One prediction as HTML: the verdict, and the sum that made it as bars.

    Parameters
    ----------
    explanation : what has `prediction`, `probability`, `bias`, `contributions` and `logit`, and may have a `thumbnail`.
    top : concepts shown by name, at least 1; the others are summed.
    title : a line above the verdict.
    """
    verdict = f"<bdi>{shown(explanation.prediction)}</bdi>, {percent(explanation.probability)}"
    count = len(explanation.contributions)
    together = f"bias and {count} concept{'' if count == 1 else 's'} add up to {explanation.logit:.2f}"
    if not count:
        together = f"{NO_REASON}: the bias alone, {explanation.logit:.2f}"
    parts = [f'<div style="color:{MUTED};font-size:.86em;overflow-wrap:anywhere">{shown(title)}</div>'] if title else []
    parts += [f'<div style="font-weight:600;overflow-wrap:anywhere;margin:.2em 0 .4em">{verdict}</div>']
    parts += [_bars(explanation.bias, explanation.contributions, top, getattr(explanation, "informed", None))]
    parts += [f'<div style="color:{MUTED};font-size:.86em;margin-top:.3em">{together}</div>']
    body = f'<div style="flex:1;min-width:15em">{"".join(parts)}</div>'
    return f'<div style="{_BOX};display:flex;gap:1em;flex-wrap:wrap">{_photo(explanation)}{body}</div>'


def shown(text: object) -> str:
    """Text from outside as HTML that does nothing but show it."""
    return escape(visible(str(text)))


def _photo(explanation: Any) -> str:
    thumbnail = getattr(explanation, "thumbnail", None)
    if thumbnail is None:
        return ""
    style = "width:12em;max-width:100%;height:auto;align-self:flex-start;border-radius:4px"
    return f'<img alt="" style="{style}" src="{escape(thumbnail)}">'


def _bars(bias: float, contributions: Sequence[Contribution], top: int, informed: bool | None) -> str:
    """Signed bars on one scale, from a line for zero that is as far right as the longest bar to its left needs."""
    rows = sum_rows(bias, contributions, top, informed=informed)
    values = [row.value for row in rows]
    low, high = min([0.0, *values]), max([0.0, *values])
    wide = high - low or 1.0
    zero = 100 * abs(low) / wide
    return f'<div style="{_GRID}">{"".join(_bar(row, zero, wide) for row in rows)}</div>'


def _bar(row: SumRow, zero: float, wide: float) -> str:
    width = 100 * abs(row.value) / wide
    left, colour = (zero, FOR) if row.value >= 0 else (zero - width, AGAINST)
    line = f"background:linear-gradient({NEUTRAL},{NEUTRAL}) {zero:.1f}% 0/1px 100% no-repeat"
    bar = f"position:absolute;top:0;height:100%;left:{left:.1f}%;width:{width:.1f}%;background:{colour}"
    said = escape(f"{visible(row.name)}: {row_hint(row)}")
    return (
        f'<span style="{_NAME}" title="{said}">{shown(row.name)}{_mark(row)}</span>'
        f'<span style="position:relative;height:.9em;{line}" title="{said}"><span style="{bar}"></span></span>'
        f'<span style="{_SUM}">{row.value:+.2f}</span>'
    )


def _mark(row: SumRow) -> str:
    """The sign of what is known of the row's claim."""
    if row.claim is None:
        return ""
    colour = AGAINST if row.claim == "contradicted" else MUTED
    return f' <span style="color:{colour}">{MARKS[row.claim]}</span>'
