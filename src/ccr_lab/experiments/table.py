"""A comparison as rows of text: for the terminal, for Markdown, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ccr.metrics import Interval
from ccr_lab.experiments.cache import records_csv
from ccr_lab.experiments.compare import MeaningGap, MethodComparison, MethodRow

NOTHING = "-"
#: In a cell of accuracy with a cut explanation: nothing is lost by the cut.
FULL = "="


class Column(NamedTuple):
    """A heading and what it says of a row; one `apart` says nothing of the method that differences are taken from; rows
    may differ in a `cost` and still be the same."""

    heading: str
    text: Callable[[MethodRow], str]
    apart: bool = False
    cost: bool = False


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


def _range(interval: Interval) -> str:
    return f"{_points(interval.low)} to {_points(interval.high)}"


def _points(difference: float, sign: str = "-") -> str:
    """A difference of accuracies in points; one that is 0 to the last digit shown has no minus."""
    return f"{round(100 * difference, 1) + 0.0:{sign}.1f}"


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _cut(row: MethodRow, accuracy: float | None) -> str:
    """Accuracy with fewer concepts, in percent; `FULL` where it is that with all of them."""
    text = _percent(accuracy)
    return FULL if accuracy is not None and text == _percent(row.accuracy) else text


def _at(row: MethodRow, curve: Sequence[float] | None, k: int) -> str:
    return _cut(row, None if curve is None else curve[k - 1])


SUMMARY = (
    Column(
        "accuracy, % (95 % interval)",
        lambda row: f"{_percent(row.accuracy)} ({100 * row.interval.low:.1f}-{100 * row.interval.high:.1f})",
    ),
    Column("concepts in play", lambda row: _number(row.in_play, 1)),
    Column("shown true, %", lambda row: NOTHING if row.truth is None else f"{100 * row.truth:.0f}"),
    Column("seconds", lambda row: _number(row.fit_seconds, 1), cost=True),
)
SEEDS = (
    Column("seeds, worst-best", lambda row: f"{100 * row.worst:.1f}-{100 * row.best:.1f}"),
    Column("minus the first row", lambda row: _points(row.difference, "+"), apart=True),
    Column("its 95 % interval", lambda row: _range(row.apart), apart=True),
    Column("on validation, %", lambda row: _percent(row.validation_accuracy)),
)
CONCEPTS = (
    Column("per image", lambda row: _number(row.length, 1)),
    Column("% of all", lambda row: _percent(row.sparsity)),
    Column("weights per class", lambda row: _number(row.weights_per_class, 1)),
    Column("fidelity", lambda row: _number(row.fidelity, 2)),
    Column("least fidelity", lambda row: _number(row.min_fidelity, 2)),
    Column("deviation", lambda row: _number(row.deviation, 3)),
    Column("still nearest, %", lambda row: NOTHING if row.retention is None else f"{100 * row.retention:.0f}"),
)
CUT = (
    *(Column(f"top {k}", lambda row, k=k: _at(row, row.accuracy_at, k)) for k in (1, 3, 5)),  # type: ignore[misc]
    *(Column(f"NEC {k}", lambda row, k=k: _at(row, row.nec, k)) for k in (1, 3, 5)),  # type: ignore[misc]
    Column("ANEC", lambda row: _cut(row, row.anec)),
)
COST = (
    Column("fit, s", lambda row: _number(row.fit_seconds, 1), cost=True),
    Column(
        "peak memory, MB", lambda row: NOTHING if row.fit_memory is None else f"{row.fit_memory / 1e6:.0f}", cost=True
    ),
    Column("encode, us/image", lambda row: f"{1e6 * row.encode_seconds:.0f}", cost=True),
)
#: The tables behind the first, by their titles.
DETAILS = {
    "Accuracy by seed, and beside the first row": SEEDS,
    "Concepts": CONCEPTS,
    "Accuracy, %, of explanations that are cut": CUT,
    "Cost": COST,
}
LEGEND = (
    "accuracy: of the test images, mean over seeds, with an interval by bootstrap over them; concepts in play: of an "
    "image, on average, those that have a weight for any class, which is what its decision rests on; {}seconds: of a "
    "fit, with all choices made on validation images. Methods that are alike on every image share a row."
)
#: Of the legend, where there is a table of knowledge.
SHOWN_TRUE = (
    "shown true: of the five concepts shown first that the table of knowledge answers for the image's class, those "
    "that it says yes to; "
)
DETAILS_LEGEND = (
    "Minus the first row: paired, the same images are drawn for both. Per image: concepts that are active (of dense "
    "codes: with a contribution to the predicted class). Fidelity: correlation of a concept's scores on test images "
    "with those of its own text, mean and least; deviation: how far concepts moved; still nearest: concepts nearer to "
    "their own start than to another's. Top k: only an image's k largest contributions count; NEC k: only a class's k "
    f"largest weights; ANEC: mean of NEC 5 to 30; {FULL}: as accurate as with all. Peak memory: of a fit, beyond what "
    "was held before."
)


def gap_in_words(gap: MeaningGap) -> str:
    """Gap to a control with its interval, such as "+2.1 points (1.2 to 3.0) over CCR, random words"."""
    return f"{_points(gap.gap, '+')} points ({_range(gap.interval)}) over {gap.title}"


def meaning(comparison: MethodComparison) -> str:
    """The meaning gaps in a line; empty where there are none."""
    gaps = "; ".join(map(gap_in_words, comparison.meaning_gaps))
    bare = ", without knowledge" if comparison.knowledge_gains else ""
    settings = comparison.settings.split(", knowledge")[0] + bare
    return f"Meaning gap of CCR ({settings}), what its concepts' names are worth: {gaps}." if gaps else ""


def knowledge_worth(comparison: MethodComparison) -> list[str]:
    """A line for each method that was run with and without knowledge: its gain, and that of a shuffled table."""
    lines = []
    for gain in comparison.knowledge_gains:
        line = f"Knowledge is worth {_points(gain.gain, '+')} points ({_range(gain.interval)}) to {gain.title}"
        if gain.shuffled is not None and gain.shuffled_interval is not None:
            line += f", a shuffled table {_points(gain.shuffled, '+')} ({_range(gain.shuffled_interval)})"
        lines.append(f"{line}.")
    return lines


def legend(comparison: MethodComparison) -> str:
    """Explanation of the columns of the first table."""
    told = any(row.truth is not None for row in comparison.rows)
    return LEGEND.format(SHOWN_TRUE if told else "")


def columns_of(comparison: MethodComparison, columns: Sequence[Column]) -> list[Column]:
    """The columns that have an informative value for at least one method."""
    return [column for column in columns if any(column.text(row) not in (NOTHING, FULL) for row in comparison.rows)]


def lines_of(comparison: MethodComparison, columns: Sequence[Column]) -> list[list[str]]:
    """A line for each method, its title first; methods that are the same in all but cost share one."""
    twins = comparison.twins
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in comparison.rows:
        first = row.method == comparison.reference
        texts = [NOTHING if first and column.apart else column.text(row) for column in columns]
        compared = tuple(text for text, column in zip(texts, columns, strict=True) if not column.cost)
        key = (twins.get(row.method, row.method) if compared else row.method, compared)
        if key in lines:
            lines[key][0] += f" = {row.title}"
        else:
            lines[key] = [row.title, *texts]
    return list(lines.values())


def markdown(comparison: MethodComparison) -> str:
    """All tables one after the other, what names and knowledge are worth, and what headings and rows mean."""
    tables = {"": SUMMARY, **DETAILS}
    parts = []
    for title, columns in tables.items():
        parts += [f"**{title}**"] * bool(title) + [_markdown(comparison, columns_of(comparison, columns))]
    parts += [meaning(comparison)] if comparison.meaning_gaps else []
    parts += knowledge_worth(comparison)
    if comparison.failures:
        parts.append("\n".join(f"{item.method}, seed {item.seed}: {item.reason}" for item in comparison.failures))
    return "\n\n".join([*parts, legend(comparison), DETAILS_LEGEND]) + "\n"


def as_csv(comparison: MethodComparison) -> str:
    """One row per method, plain numbers, empty where something does not apply; curves are in the JSON."""
    skipped = ("accuracy_at", "nec")
    records = [{name: value for name, value in _flat(row).items() if name not in skipped} for row in comparison.rows]
    return records_csv(records)


def _flat(row: MethodRow) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in row.to_dict().items():
        if name in ("interval", "apart"):
            flat |= {f"{name}_low": value[0], f"{name}_high": value[1]}
        else:
            flat[name] = value
    return flat


def _markdown(comparison: MethodComparison, columns: Sequence[Column]) -> str:
    lines = ["| method | " + " | ".join(column.heading for column in columns) + " |"]
    lines.append("|---|" + "--:|" * len(columns))
    lines += ["| " + " | ".join(line) + " |" for line in lines_of(comparison, columns)]
    return "\n".join(lines)
