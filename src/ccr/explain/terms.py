"""Signed terms, code x weight, that every explanation is a sum of: as plain types, rows, lines of text, and HTML."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.knowledge import NO, YES
from ccr.knowledge.shown import STATED
from ccr.utils.texts import counted, did_you_mean, percent, visible

Status = Literal["confirmed", "unknown", "contradicted"]


def status(answer: int) -> Status:
    """Status of a claim by its answer: 1 confirmed, -1 contradicted, 0 unknown."""
    return "confirmed" if answer == YES else "contradicted" if answer == NO else "unknown"


def plain(value: Any) -> Any:
    """The value in types that JSON has; what is not finite becomes None."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return value.to_dict() if hasattr(value, "to_dict") else plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_fields(result: Any) -> dict[str, Any]:
    """A result object as a dict of plain types, one entry per field; `label` is written as "class"."""
    names = [item.name for item in fields(result)]
    return {"class" if name == "label" else name: plain(getattr(result, name)) for name in names}


class PlainResult:
    """Base class of results, which are dataclasses of numbers, names and other results."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


@dataclass(frozen=True)
class Contribution:
    """One active concept: `contribution` = `code` x `weight`.

    `claim` says what is known of "the class shows this concept", which a positive weight claims: confirmed, unknown or
    contradicted; None for a weight that claims nothing, being negative or a difference of weights. `shown` is the
    probability that the image shows the concept; None where the model has no map for it. It is `stated` by name unless
    that probability is too small.
    """

    concept: str
    code: float
    weight: float
    contribution: float
    claim: Status | None = None
    shown: float | None = None
    stated: bool = True


@dataclass(frozen=True)
class Contrast(PlainResult):
    """Contrast of `prediction` with `other`: `bias` + sum of contributions == `difference` of their logits."""

    prediction: Any
    other: Any
    difference: float
    bias: float
    contributions: tuple[Contribution, ...]


def contributions(
    names: Sequence[str],
    codes: np.ndarray,
    weights: np.ndarray,
    answers: np.ndarray | None = None,
    shown: np.ndarray | None = None,
    stated: float = STATED,
) -> tuple[Contribution, ...]:
    """The terms code x weight, largest effect first, equal ones by name; concepts without a weight say nothing.

    `answers` (n,) is what is known of the class: 1 yes, -1 no, 0 unknown; None where weights claim nothing. `shown`
    (n,) are the probabilities that the image shows the concepts, where they are known; from `stated` on concepts are
    stated by name.
    """
    known = [None] * len(names) if answers is None else [status(answer) for answer in answers]
    likely = [None] * len(names) if shown is None else [float(value) for value in shown]
    terms = [
        Contribution(
            name,
            float(code),
            float(weight),
            float(code * weight),
            claim if weight > 0 else None,
            chance,
            chance is None or code <= 0 or chance >= stated,
        )
        for name, code, weight, claim, chance in zip(names, codes, weights, known, likely, strict=True)
        if weight != 0
    ]
    return tuple(sorted(terms, key=lambda term: (-abs(term.contribution), term.concept)))


def position(classes: Sequence[Any], name: Any) -> int:
    """Number of the class called `name`; numbers may be named by their text."""
    if isinstance(name, (bool, int, float, np.generic)) and name in classes:  # 1 is 1.0, and True
        return list(classes).index(name)
    names = [str(known) for known in classes]
    if str(name) not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise CCRError(f"no class is called {name!r}{did_you_mean(name, names)}; there are {len(names)}: {shown}")
    return names.index(str(name))


#: Marks of the status of a term's claim; the plain ones are for streams that cannot encode the others.
MARKS: dict[Status, str] = {"confirmed": "✓", "unknown": "?", "contradicted": "✗"}
PLAIN_MARKS: dict[Status, str] = {"confirmed": "yes", "unknown": "?", "contradicted": "no"}


#: Text of an explanation without any contribution.
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
    shows with too small a probability are not stated by name, but together.

    Rows have their claims if the model is `informed`; None: if any claim is known.
    """
    if informed is None:
        informed = any(term.claim in ("confirmed", "contradicted") for term in contributions)
    rows = [SumRow("bias", bias)]
    unsure = [term for term in contributions if not term.stated]
    stated = [term for term in contributions if term.stated]
    rows += [
        SumRow(likely_name(term), term.contribution, term, term.claim if informed else None) for term in stated[:top]
    ]
    if unsure:
        total, note = sum(term.contribution for term in unsure), "; ".join(map(likely_name, unsure))
        rows.append(SumRow(f"{len(unsure)} not sure to be shown", total, note=note))
    if rest := stated[top:]:
        rows.append(SumRow(counted(len(rest), "other"), sum(term.contribution for term in rest)))
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
    if len(rows) == 1:  # the bias alone
        lines.append(f"{'':9}  {NO_REASON}")
    return "\n".join([heading, *lines, f"{f'= {total:.2f}':>9}  logit"])


def total_in_words(explanation: Any) -> str:
    """The logit in words: how many concepts add up to it, or that the image has none."""
    count = len(explanation.contributions)
    if not count:
        return f"{NO_REASON}: the bias alone, {explanation.logit:.2f}"
    return f"bias and {counted(count, 'concept')} add up to {explanation.logit:.2f}"


def signed_name(term: Any) -> str:
    """The name of a `concept` as its `code` counted: one with a negative code counted by being away from the image."""
    return term.concept if term.code >= 0 else f"not: {term.concept}"


def likely_name(term: Contribution) -> str:
    """The signed name with the probability that the image shows the concept, where the model knows it."""
    return signed_name(term) if term.shown is None or term.code < 0 else f"{term.concept}, {percent(term.shown)}"


def row_hint(row: SumRow) -> str:
    """Tooltip of a row."""
    if row.term is None:
        return "the same for every image" if row.name == "bias" else row.note or "summed"
    known = "" if row.claim is None else f"; claim {row.claim}"
    return f"code {row.term.code:.3f} x weight {row.term.weight:.3f}{known}"


#: Colour-blind safe (Okabe and Ito).
FOR, AGAINST, NEUTRAL, INK = "#0072B2", "#D55E00", "#999999", "#222222"
MUTED = "#666"
_CLAIMS: dict[Status, str] = {"confirmed": MUTED, "unknown": MUTED, "contradicted": AGAINST}
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
    faint = f"color:{MUTED};font-size:.86em"
    verdict = f"<bdi>{shown(explanation.prediction)}</bdi>, {percent(explanation.probability)}"
    bars = _bars(explanation.bias, explanation.contributions, top, getattr(explanation, "informed", None))
    heading = f'<div style="{faint};overflow-wrap:anywhere">{shown(title)}</div>' if title else ""
    body = (
        f'<div style="flex:1;min-width:15em">{heading}'
        f'<div style="font-weight:600;overflow-wrap:anywhere;margin:.2em 0 .4em">{verdict}</div>{bars}'
        f'<div style="{faint};margin-top:.3em">{total_in_words(explanation)}</div></div>'
    )
    photo, thumbnail = "", getattr(explanation, "thumbnail", None)
    if thumbnail is not None:
        style = "width:12em;max-width:100%;height:auto;align-self:flex-start;border-radius:4px"
        photo = f'<img alt="" style="{style}" src="{escape(thumbnail)}">'
    return f'<div style="{_BOX};display:flex;gap:1em;flex-wrap:wrap">{photo}{body}</div>'


def shown(text: object) -> str:
    """Text from outside as HTML that does nothing but show it."""
    return escape(visible(str(text)))


def jpeg_address(image: Any, size: int, *, quality: int = 80) -> str:
    """An image of Pillow as a data: address of a JPEG that is at most `size` pixels wide and high."""
    small, stream = image.convert("RGB"), io.BytesIO()
    small.thumbnail((size, size))
    small.save(stream, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


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
    hint = escape(f"{visible(row.name)}: {row_hint(row)}")
    mark = "" if row.claim is None else f' <span style="color:{_CLAIMS[row.claim]}">{MARKS[row.claim]}</span>'
    return (
        f'<span style="{_NAME}" title="{hint}">{shown(row.name)}{mark}</span>'
        f'<span style="position:relative;height:.9em;{line}" title="{hint}"><span style="{bar}"></span></span>'
        f'<span style="{_SUM}">{row.value:+.2f}</span>'
    )
