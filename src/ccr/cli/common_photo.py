"""Photos and single keys in a terminal: coloured half blocks, and one key press or one line for an answer."""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccr.errors import CCRError
from ccr.texts import visible

if TYPE_CHECKING:
    from PIL import Image

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


def read_key(prompt: str, keys: Mapping[str, str]) -> str:
    """Print the prompt and return the key of `keys` (key: meaning) that is given; the end of the input is `q`.

    On a terminal one key press is enough and other keys do nothing; elsewhere a line has the key or its meaning, and
    anything else is an error, because the lines after it would answer other questions.
    """
    if sys.stdin.isatty():
        try:
            return _pressed(prompt, keys)
        except ImportError:  # no termios: not on Windows
            pass
    _say(prompt)
    return _line(keys)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _pressed(prompt: str, keys: Mapping[str, str]) -> str:
    import termios
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        # Ctrl-C still interrupts; what was typed before the question is kept, for people who judge fast.
        tty.setcbreak(handle, termios.TCSANOW)
        _say(prompt)
        while True:
            key = os.read(handle, 1).decode("ascii", "replace").lower()
            if key in ("", *_ENDS):
                return STOP
            if key == _ESCAPE:
                _skip_sequence(handle)
            elif key in keys:
                _say(f"{keys[key]}\n")
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
