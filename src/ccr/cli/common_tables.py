"""Tables that several commands print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import console

if TYPE_CHECKING:
    from ccr.core.conformal import SetQuality
    from ccr.core.explain import Contribution
    from ccr.core.metrics import Evaluation

#: Classes of a table, unless all are asked for.
MOST_CLASSES = 10


def evaluation_table(evaluations: Mapping[str, Evaluation], title: str) -> Table:
    """One row per model: accuracy with its interval, length, concepts in play, weights per class, fidelity."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("model", no_wrap=True)
    for heading in ("accuracy", "95 %\ninterval", "length", "in\nplay", "weights", "fidelity", "worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, evaluation in evaluations.items():
        table.add_row(
            escape(name),
            f"{evaluation.accuracy:.1%}",
            f"{100 * evaluation.interval.low:.1f}-{100 * evaluation.interval.high:.1f}",
            f"{evaluation.length:.1f}",
            f"{evaluation.in_play:.1f}",
            f"{evaluation.weights_per_class:.1f}",
            *map(fidelity_text, evaluation.fidelity),
        )
    table.caption = (
        "length: concepts per image; in play: those with a weight for any class\n"
        "weights: per class; fidelity, worst: correlation of concepts with their texts"
    )
    return table


def fidelity_text(value: float) -> str:
    """Two digits, or a dash where all images score alike."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def add_whole_column(table: Table, heading: str, texts: Iterable[str], *, justify: JustifyMethod = "right") -> None:
    """A column that becomes narrower by breaking lines between words, never inside a number."""
    least = max(len(word) for text in (heading, *texts) for word in text.split() or [""])
    table.add_column(heading, justify=justify, min_width=least, overflow="fold")


def show_sets(sets: SetQuality, temperature: float) -> None:
    """How prediction sets hold, in two sentences."""
    low, high = sets.interval
    answered = "No image is answered by exactly one class: all are left to people."
    if sets.answered > 0:
        answered = (
            f"{sets.answered:.1%} of the images are answered by exactly one class, of these "
            f"{sets.accuracy_answered:.1%} rightly; the others are left to people."
        )
    console.print(
        f"Sets of coverage {100 * sets.asked:g}% hold the true class of {sets.covered:.1%} of the images ({low:.1%} to "
        f"{high:.1%}), with {sets.mean_size:.2f} classes on average; temperature {temperature:.2f}.\n{answered}",
        highlight=False,
    )


def terms_table(title: str, bias: float, terms: Sequence[Contribution], top: int, ending: str, total: float) -> Table:
    """A sum, term by term: the bias, the `top` largest contributions, the others, and the `total` named `ending`."""
    from ccr.show.sums import sum_rows

    table = Table(title=title, title_justify="left")
    table.add_column("concept", overflow="fold")
    table.add_column("")
    for heading in ("contribution", "code", "weight"):
        table.add_column(heading, justify="right")
    rows = sum_rows(bias, terms, top)
    largest = max(abs(row.value) for row in rows) or 1.0
    for row in rows:
        parts = ("", "") if row.term is None else (f"{row.term.code:.3f}", f"{row.term.weight:.2f}")
        table.add_row(escape(row.name), _bar(row.value / largest), f"{row.value:+.2f}", *parts)
    table.add_row(f"[bold]{ending}[/bold]", "", f"[bold]{total:+.2f}[/bold]", "", "")
    return table


def _bar(share: float, width: int = 12) -> str:
    blocks = "█" * max(1, round(abs(share) * width))
    return f"[blue]{blocks}[/blue]" if share >= 0 else f"[dark_orange3]{blocks}[/dark_orange3]"
