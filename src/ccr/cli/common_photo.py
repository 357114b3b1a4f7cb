"""Terminal output and input of commands: tables, sentences about a model, photos as coloured half blocks, and single
keys as answers."""

from __future__ import annotations

import getpass
import os
import select
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ccr.cli.common import console, note, print_json
from ccr.errors import CCRError
from ccr.utils.texts import counted, fidelity_text, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.calibration import Calibration, SetQuality
    from ccr.explain import Contribution
    from ccr.metrics import Evaluation
    from ccr.vocab.llm import Estimate

# Tables that several commands print.
#: Classes of a table, unless all are asked for.
MOST_CLASSES = 10
#: Fewer measured images than this are noted.
FEW = 30


def plain_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    texts: Sequence[int] = (0,),
    caption: str = "",
    whole: bool = False,
    **style: Any,
) -> Table:
    """A table whose columns `texts` are words and the others numbers, kept `whole` where it is narrow if that is asked
    for. A cell is plain text, or a `Text` with a colour; `style` is as of Rich."""
    table = Table(title=escape(title), title_justify="left", caption=caption, caption_justify="left", **style)
    for number, heading in enumerate(headings):
        if number in texts:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=whole)
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def evaluation_table(evaluations: Mapping[str, Evaluation], title: str) -> Table:
    """One row per model: accuracy with its interval, length, concepts in play, weights per class, fidelity."""
    headings = ("model", "accuracy", "95 %\ninterval", "length", "in\nplay", "weights", "fidelity", "lowest")
    rows = [
        (
            name,
            f"{evaluation.accuracy:.1%}",
            f"{100 * evaluation.interval.low:.1f}-{100 * evaluation.interval.high:.1f}",
            f"{evaluation.length:.1f}",
            f"{evaluation.in_play:.1f}",
            f"{evaluation.weights_per_class:.1f}",
            *map(fidelity_text, evaluation.fidelity),
        )
        for name, evaluation in evaluations.items()
    ]
    caption = (
        "length: concepts that an image shows, on average; in play: those of them with a "
        "weight for any class; weights: per class; fidelity, mean and lowest: correlation "
        "of a concept's scores with those of its own text"
    )
    if any(evaluation.claims is not None for evaluation in evaluations.values()):
        caption += " or, with knowledge, of where it was grounded"
    return plain_table(title, headings, rows, caption=caption, whole=True, box=box.SIMPLE_HEAD, padding=0)


def note_few(images: int) -> None:
    """Say that so few measured images say little, if they are few."""
    if images < FEW:
        note(f"note: {counted(images, 'image')} to measure on: these numbers say little, read the interval")


def show_knowledge(evaluations: Mapping[str, Evaluation]) -> None:
    """Print, for each model fitted with knowledge, a sentence on its claims, truth, transfer and text fidelity."""
    from ccr.show.pages import knowledge_in_words

    for name, found in evaluations.items():
        if found.claims is not None:
            console.print(f"{escape(name)}: {knowledge_in_words(found)}")


def add_whole_column(table: Table, heading: str, texts: Iterable[str], *, justify: JustifyMethod = "right") -> None:
    """A column that becomes narrower by breaking lines between words, never inside a number."""
    least = max(len(word) for text in (heading, *texts) for word in text.split() or [""])
    table.add_column(heading, justify=justify, min_width=least, overflow="fold")


def show_sets(sets: SetQuality, calibration: Calibration) -> None:
    """Print how prediction sets hold, and on how many images they were calibrated, in a few sentences."""
    low, high = sets.interval
    answered = "No image is answered by exactly one class: all are left to people."
    if sets.answered > 0:
        answered = (
            f"{sets.answered:.1%} of the images are answered by exactly one class, of these "
            f"{sets.accuracy_answered:.1%} rightly; the others are left to people."
        )
    temperature = calibration.temperature
    kept = " (left at 1: too few mistakes among the images held out to measure another)" if temperature == 1 else ""
    console.print(
        f"Sets of coverage {100 * sets.asked:g}% hold the true class of {sets.covered:.1%} of the images ({low:.1%} to "
        f"{high:.1%}), with {sets.mean_size:.2f} classes on average; they were calibrated on "
        f"{counted(f'{calibration.images:,}', 'other image')}; temperature {temperature:.2f}{kept}.\n{answered}",
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
    weights_of: str = "for this class",
) -> Table:
    """A sum, term by term: the bias, the `top` largest contributions, the others, and the `total` named `ending`; of an
    `informed` model also what is known of each claim. The legend says what the weights are of."""
    from ccr.explain.terms import claim_marks, sum_rows

    signs = claim_marks(console.encoding)
    table = Table(title=title, title_justify="left", caption_justify="left")
    captions = [f"contribution = code (how strongly the image shows the concept) x weight ({weights_of})"]
    table.add_column("concept", overflow="fold")
    table.add_column("")
    for heading in ("contribution", "code", "weight"):
        table.add_column(heading, justify="right")
    rows = sum_rows(bias, terms, top, informed=informed)
    marked = any(row.claim is not None for row in rows)
    if marked:
        table.add_column("claim", justify="center")
        captions.append(claim_legend(signs))
    table.caption = "\n".join(captions)
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


def show_estimate(cost: Estimate, url: str, *, as_json: bool) -> None:
    """Print what asking a language model would cost."""
    if as_json:
        print_json(cost._asdict())
        return
    console.print(
        f"{cost.requests} requests to {escape(url)} ({cost.cached} are answered already): about "
        f"{cost.prompt_tokens} tokens sent, at most {cost.answer_tokens} answered"
    )


#: The key that stops; the end of the input counts as this one.
STOP = "q"
#: Lines of a drawn photo, however narrow it is.
MOST_LINES = 100
_BLOCK, _RESET = "▀", "\x1b[0m"
_ESCAPE = "\x1b"
#: Ctrl-D, and what Linux makes of one that was pressed before the question.
_ENDS = ("\x04", "\x00")


def draw_photo(image: Image.Image, columns: int) -> str:
    """The image as lines of `columns` half blocks with 24-bit colours, each line reset at its end.

    A character shows two pixels: its upper half in the foreground's colour, its lower half in the background's.
    """
    lines = max(1, min(round(columns * image.height / image.width / 2), MOST_LINES))
    pixels = image.convert("RGB").resize((columns, 2 * lines)).load()
    assert pixels is not None
    drawn = []
    for line in range(lines):
        cells = []
        for column in range(columns):
            above, below = pixels[column, 2 * line], pixels[column, 2 * line + 1]
            cells.append("\x1b[38;2;{};{};{}m\x1b[48;2;{};{};{}m".format(*above, *below) + _BLOCK)  # type: ignore[misc]
        drawn.append("".join(cells) + _RESET)
    return "\n".join(drawn)


def columns_for(image: Image.Image, *, below: int = 10) -> int:
    """How many columns the image may have so that it fits the terminal, `below` lines left free; 0 where none can be
    drawn: no terminal, one without colours, or one whose encoding lacks the block."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        _BLOCK.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return 0
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR"):
        return 0
    size = shutil.get_terminal_size()
    high = max(4, size.lines - below)
    return max(8, min(size.columns, 80, int(2 * high * image.width / image.height)))


def login_name() -> str:
    """Login name of the current user; empty if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return ""


def read_key(prompt: str, keys: Mapping[str, str], out: IO[str] | None = None) -> str:
    """Print the prompt (to `out`, or else to stdout) and return the key of `keys` (key: meaning) that is given; the end
    of the input is `q`.

    On a terminal one key press is enough and other keys do nothing; elsewhere a line has the key or its meaning, and
    anything else is an error, because the lines after it would answer other questions.
    """
    out = out or sys.stdout
    out.write(prompt)
    out.flush()
    if sys.stdin.isatty():
        try:
            key = _pressed(keys)
        except ImportError:  # no termios: not on Windows
            return _line(keys)
        out.write(f"{keys.get(key, '')}\n")
        return key
    return _line(keys)


def _pressed(keys: Mapping[str, str]) -> str:
    import termios
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        # Ctrl-C still interrupts; what was typed before the question is kept, for people who judge fast.
        tty.setcbreak(handle, termios.TCSANOW)
        while True:
            key = os.read(handle, 1).decode("ascii", "replace").lower()
            if key in ("", *_ENDS):
                return STOP
            if key == _ESCAPE:
                _skip_sequence(handle)
            elif key in keys:
                return key
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _skip_sequence(handle: int) -> None:
    """Read the rest of what an arrow or a function key sends after the escape: it ends in a letter, which is no answer.
    Such as ESC [ B, ESC [ 1 ; 5 C or ESC O P; a bare escape has no rest."""

    def following() -> bytes:
        return os.read(handle, 1) if select.select([handle], [], [], 0.05)[0] else b""

    opened = following()
    byte = following() if opened in (b"[", b"O") else b""
    while opened == b"[" and byte and not b"@" <= byte <= b"~":
        byte = following()


def _line(keys: Mapping[str, str]) -> str:
    while line := sys.stdin.readline():
        given = line.strip().lower()
        for key, meaning in keys.items():
            if given in (key, meaning):
                return key
        if given:
            known = ", ".join(f"{key} ({meaning})" for key, meaning in keys.items())
            raise CCRError(f"an answer is one of {known}, got '{visible(given)}': give one of them")
    return STOP
