"""The questions of `ccr knowledge ask-photos`, answered by a person in the terminal."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from ccr.cli.common_photo import columns_for, draw_photo
from ccr.cli.knowledge_session import Ladder, Session
from ccr.texts import check_name, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.core.knowledge import Verdict

#: Lines below a photo.
LINES_BELOW = 6
KEYS: dict[str, Verdict] = {"y": "yes", "n": "no", "u": "unknown"}
#: An arrow or another special key comes as an escape and letters, which are no answers.
SPECIAL = re.compile("\x1b(\\[[0-9;?]*[ -/]*[@-~]|O.)?")
HELP = "y yes  n no  u unclear  b back  s skip this concept  q stop"


def login_name() -> str:
    """Who is logged in; empty if the system has no name for them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return ""


def ask_person(session: Session, by: str, out: Console) -> None:
    """Ask one question after the other until all are answered or the person stops."""
    check_name(by, "--by")
    with _reading() as read:
        _ask(session, by, read, out)


def _ask(session: Session, by: str, read: Callable[[], str], out: Console) -> None:
    skipped: set[str] = set()
    before: list[tuple[Ladder, int]] = []
    again: tuple[Ladder, int] | None = None
    while (now := again or _open_question(session, skipped)) is not None:
        again = None
        ladder, row = now
        picture = session.picture(row)
        if picture is None:
            continue
        _show_question(session, ladder, row, picture, out)
        key = _key(read, out)
        if key == "q":
            return
        if key == "s":
            skipped.add(ladder.concept)
        elif key == "b":
            again = before.pop() if before else now
        else:
            session.answer(row, {ladder.concept: KEYS[key]}, "person", by)
            before.append(now)


def _open_question(session: Session, skipped: set[str]) -> tuple[Ladder, int] | None:
    for ladder in session.ladders:
        if ladder.concept not in skipped and (rows := session.next(ladder)):
            return ladder, rows[0]
    return None


def _show_question(session: Session, ladder: Ladder, row: int, picture: Image.Image, out: Console) -> None:
    columns = columns_for(picture, below=LINES_BELOW)
    if columns:
        out.file.write(draw_photo(picture, columns) + "\n")
    place, label = str(session.photos.description.get("source", {}).get("path", "")), session.label(row)
    path = Path(place, session.paths[row])
    shown = str(path) if path.is_file() else session.paths[row]
    number = session.ladders.index(ladder) + 1
    out.print(
        f"{escape(visible(shown))}{f' ({escape(label)})' if label else ''}; concept {number} of "
        f"{len(session.ladders)}, answer {session.given(ladder) + 1} of at most {session.answers}",
        style="dim",
        highlight=False,
    )
    out.print(
        f"Does this photo show [bold]{escape(visible(ladder.concept))}[/bold]?\n[dim]{HELP}[/dim]", highlight=False
    )


@contextmanager
def _reading() -> Iterator[Callable[[], str]]:
    """Reads one key of a terminal at a time, without Enter; or lines, of which the first letter counts. Empty at the
    end.

    The terminal stays in this mode between questions: keys that are typed while a photo is drawn are not lost, as they
    are where each key switches the mode.
    """
    if not sys.stdin.isatty():
        yield sys.stdin.readline
        return
    try:
        import termios
        import tty
    except ImportError:  # not on Windows
        yield typer.getchar
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    waiting: list[str] = []

    def read() -> str:
        while not waiting:
            typed = os.read(terminal, 64).decode(errors="replace")
            if not typed:
                return ""
            waiting.extend(SPECIAL.sub("", typed))
        return waiting.pop(0)

    try:
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _key(read: Callable[[], str], out: Console) -> str:
    """The next key that means something."""
    while True:
        try:
            said = read()
        except (EOFError, OSError):  # the terminal was closed
            return "q"
        if not said or said == "\x04":
            return "q"
        key = said.strip()[:1].lower()
        if key in (*KEYS, "b", "s", "q"):
            return key
        out.print(HELP, style="dim", highlight=False)
