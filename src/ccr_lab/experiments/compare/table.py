"""A comparison as rows of text: for the terminal, for Markdown, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ccr.metrics import Interval
from ccr_lab.experiments.compare.comparison import Comparison, MeaningGap, Row
from ccr_lab.experiments.records import csv_text

NOTHING = "-"


class Column(NamedTuple):
    """A heading and what it says of a row; one `apart` says nothing of the method that differences are taken from."""

    heading: str
    text: Callable[[Row], str]
    apart: bool = False


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


def _range(interval: Interval) -> str:
    return f"{_points(interval.low)} to {_points(interval.high)}"


def _points(difference: float, sign: str = "-") -> str:
    """A difference of accuracies in points; one that is 0 to the last digit shown has no minus."""
    return f"{round(100 * difference, 1) + 0.0:{sign}.1f}"


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _at(curve: Sequence[float] | None, k: int) -> str:
    return NOTHING if curve is None else _percent(curve[k - 1])


ACCURACY = (
    Column("accuracy, %", lambda row: _percent(row.accuracy)),
    Column("seeds, worst-best", lambda row: f"{100 * row.worst:.1f}-{100 * row.best:.1f}"),
    Column("95 % interval", lambda row: f"{100 * row.interval.low:.1f}-{100 * row.interval.high:.1f}"),
    Column("less the first", lambda row: _points(row.difference, "+"), apart=True),
    Column("its 95 % interval", lambda row: _range(row.apart), apart=True),
    Column("length", lambda row: _number(row.length, 1)),
)
EXPLANATIONS = (
    Column("in play", lambda row: _number(row.in_play, 1)),
    Column("weights", lambda row: _number(row.weights_per_class, 1)),
    Column("fidelity", lambda row: _number(row.fidelity, 2)),
    Column("worst", lambda row: _number(row.min_fidelity, 2)),
    Column("ASR, %", lambda row: _percent(row.sparsity)),
    Column("ACED", lambda row: _number(row.deviation, 3)),
    Column("kept, %", lambda row: NOTHING if row.retention is None else f"{100 * row.retention:.0f}"),
)
CUT = (
    *(Column(f"acc @{k}", lambda row, k=k: _at(row.accuracy_at, k)) for k in (1, 3, 5)),  # type: ignore[misc]
    *(Column(f"NEC {k}", lambda row, k=k: _at(row.nec, k)) for k in (1, 3, 5)),  # type: ignore[misc]
    Column("ANEC", lambda row: _percent(row.anec)),
)
COST = (
    Column("fit, s", lambda row: _number(row.fit_seconds, 1)),
    Column("peak memory, MB", lambda row: NOTHING if row.fit_memory is None else f"{row.fit_memory / 1e6:.0f}"),
    Column("encode, us/image", lambda row: f"{1e6 * row.encode_seconds:.0f}"),
    Column("validation accuracy, %", lambda row: _percent(row.validation_accuracy)),
)
TABLES = {"Accuracy": ACCURACY, "Explanations": EXPLANATIONS, "Cut explanations": CUT, "Cost": COST}
LEGEND = (
    "Means over seeds. Intervals: paired bootstrap over test images. length: concepts per image (dense codes: with a "
    "nonzero contribution to the predicted class); in play: concepts that contribute to any class; weights: per "
    "class; fidelity, worst: correlation of concepts' scores on test images with those of their own texts, mean and "
    "least; ASR: length / concepts; ACED: mean deviation; kept: concepts still nearest to themselves; acc@k: only an "
    "image's k largest contributions; NEC k: only a class's k largest weights; ANEC: mean of NEC 5 to 30; fit: with "
    "all choices made on validation data; peak memory: of that, beyond what was held before. Meaning gap: accuracy of "
    "CCR less that of concepts without meaning at the same settings."
)


def gap_in_words(gap: MeaningGap) -> str:
    """Such as "+2.1 points (1.2 to 3.0) over CCR, random words"."""
    return f"{_points(gap.gap, '+')} points ({_range(gap.interval)}) over {gap.title}"


def meaning(comparison: Comparison) -> str:
    """The meaning gaps in a line; empty where there are none."""
    gaps = "; ".join(map(gap_in_words, comparison.meaning_gaps))
    return f"Meaning gap of CCR ({comparison.settings}): {gaps}." if gaps else ""


def cells(comparison: Comparison, row: Row, columns: Sequence[Column]) -> list[str]:
    """What the columns say of a row."""
    first = row.method == comparison.reference
    return [NOTHING if first and column.apart else column.text(row) for column in columns]


def markdown(comparison: Comparison) -> str:
    """The tables one after the other, the meaning gaps, and what the headings mean."""
    parts = [_markdown(comparison, columns) for columns in TABLES.values()]
    parts += [meaning(comparison)] if comparison.meaning_gaps else []
    if comparison.failures:
        parts.append("\n".join(f"{item.method}, seed {item.seed}: {item.reason}" for item in comparison.failures))
    return "\n\n".join([*parts, LEGEND]) + "\n"


def as_csv(comparison: Comparison) -> str:
    """One row per method, plain numbers, empty where something does not apply; curves are in the JSON."""
    skipped = ("accuracy_at", "nec")
    records = [{name: value for name, value in _flat(row).items() if name not in skipped} for row in comparison.rows]
    return csv_text(records)


def _flat(row: Row) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in row.to_dict().items():
        if name in ("interval", "apart"):
            flat |= {f"{name}_low": value[0], f"{name}_high": value[1]}
        else:
            flat[name] = value
    return flat


def _markdown(comparison: Comparison, columns: Sequence[Column]) -> str:
    lines = ["| method | " + " | ".join(column.heading for column in columns) + " |"]
    lines.append("|---|" + "--:|" * len(columns))
    lines += [f"| {row.title} | " + " | ".join(cells(comparison, row, columns)) + " |" for row in comparison.rows]
    return "\n".join(lines)
