"""Tables that several commands print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import console, print_json

if TYPE_CHECKING:
    from ccr.core.conformal import SetQuality
    from ccr.core.explain import Contribution
    from ccr.core.metrics import Evaluation
    from ccr.data.vocab.propose.llm import Estimate

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
    if any(evaluation.claims is not None for evaluation in evaluations.values()):
        table.caption += ",\nor, with knowledge, with where it grounded them"
    return table


def show_knowledge(evaluations: Mapping[str, Evaluation]) -> None:
    """What knowledge says of each model that was fitted with some, in a sentence; nothing of the others."""
    from ccr.show.claims_page import claims_in_words

    for name, found in evaluations.items():
        if found.claims is None:
            continue
        parts = [claims_in_words(found.claims)]
        if found.truth is not None:
            unknown = f" ({found.unanswered:.1%} have none)" if found.unanswered else ""
            parts.append(
                f"{found.truth:.1%} of the shown concepts with an answer{unknown} are true of the image's class"
            )
        if found.transfer is not None:
            parts.append(f"transfer {found.transfer:.2f} to classes that concepts were not told about (0.5 is chance)")
        if found.text_fidelity is not None:
            mean, least = map(fidelity_text, found.text_fidelity)
            parts.append(f"fidelity to the bare texts {mean}, worst {least} (above: to where they were grounded)")
        console.print(f"{escape(name)}: {'; '.join(parts)}", highlight=False)


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
    kept = " (kept at 1: too few mistakes among the images held out to measure another)" if temperature == 1 else ""
    console.print(
        f"Sets of coverage {100 * sets.asked:g}% hold the true class of {sets.covered:.1%} of the images ({low:.1%} to "
        f"{high:.1%}), with {sets.mean_size:.2f} classes on average; temperature {temperature:.2f}{kept}.\n{answered}",
        highlight=False,
    )


def terms_table(
    title: str,
    bias: float,
    terms: Sequence[Contribution],
    top: int,
    ending: str,
    total: float,
    *,
    informed: bool | None = None,
) -> Table:
    """A sum, term by term: the bias, the `top` largest contributions, the others, and the `total` named `ending`; of an
    `informed` model also what is known of each claim."""
    from ccr.show.sums import claim_marks, sum_rows

    signs = claim_marks(console.encoding)
    table = Table(title=title, title_justify="left")
    table.add_column("concept", overflow="fold")
    table.add_column("")
    for heading in ("contribution", "code", "weight"):
        table.add_column(heading, justify="right")
    rows = sum_rows(bias, terms, top, informed=informed)
    marked = any(row.claim is not None for row in rows)
    if marked:
        table.add_column("claim", justify="center")
        table.caption, table.caption_justify = claim_legend(signs), "left"
    largest = max(abs(row.value) for row in rows) or 1.0
    for row in rows:
        parts = ("", "") if row.term is None else (f"{row.term.code:.3f}", f"{row.term.weight:.2f}")
        claim = ["" if row.claim is None else signs[row.claim]] if marked else []
        table.add_row(escape(row.name), _bar(row.value / largest), f"{row.value:+.2f}", *parts, *claim)
    table.add_row(f"[bold]{ending}[/bold]", "", f"[bold]{total:+.2f}[/bold]", "", "")
    return table


def claim_legend(signs: Mapping[Any, str]) -> str:
    """The signs of claims, in words."""
    return "claim: " + ", ".join(f"{sign} {status}" for status, sign in signs.items())


def _bar(share: float, width: int = 12) -> str:
    blocks = "█" * max(1, round(abs(share) * width))
    return f"[blue]{blocks}[/blue]" if share >= 0 else f"[dark_orange3]{blocks}[/dark_orange3]"


def show_estimate(cost: Estimate, url: str, prices: str | None, *, option: str = "--llm-price", as_json: bool) -> None:
    """Print what asking a language model would cost; `prices` are those of the `option`."""
    try:
        first, second = (float(part) for part in (prices or "0,0").split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} is two numbers such as 0.15,0.60, got {prices!r}") from None
    price = cost.price(first, second) if prices else None
    if as_json:
        print_json({**cost._asdict(), "price_at_most": price})
        return
    money = f", at most {price:.4f} by {option}" if price is not None else ""
    console.print(
        f"{cost.requests} requests to {escape(url)} ({cost.cached} are answered already): about "
        f"{cost.prompt_tokens} tokens sent, at most {cost.answer_tokens} answered{money}"
    )
