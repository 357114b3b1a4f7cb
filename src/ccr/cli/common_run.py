"""What happens around every command: --out is checked before the work, and Ctrl-C says what is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

from ccr import interrupt
from ccr.cli.common import check_folder
from ccr.errors import CCRError
from ccr.files import check_writable
from ccr.places import is_url
from ccr.texts import has_control, visible

#: Commands that write one file; the others' --out is a folder.
FILES = (
    "ask",
    "merge",
    "explain",
    "predict",
    "export",
    "claims",
    "judge",
    "report",
    "propose",
    "check",
    "choose",
    "learn",
)
#: What commands keep as they go.
KEPT = {
    "demo": "photos embedded so far are kept in {out}",
    "embed": "images embedded so far are kept in {out}",
    "judge": "verdicts so far are kept in {out}",
    "predict": "predictions so far are kept in {out}.progress",
    "compare": "finished runs are kept in {out}",
    "sweep": "finished runs are kept in {out}",
    "figures": "finished fits are kept in {out}",
    "reproduce": "what is finished is kept in {out}",
}


class Stopped(Exception):
    """Ctrl-C, past Typer, which would leave without a word."""


def ready(command: Callable[..., None]) -> Callable[..., None]:
    """The command with what is around every one."""
    name = command.__name__

    @wraps(command)
    def run(**options: Any) -> None:
        out = options.get("out")
        if out is not None:
            _check_out(out, is_file=name in FILES)
            _check_no_input(out, [value for key, value in options.items() if key != "out"])
            keeps(name, out)
        try:
            command(**options)
        except KeyboardInterrupt:
            raise Stopped from None

    return run


def keeps(name: str, out: Path) -> None:
    """Have Ctrl-C say what a command keeps in its folder, if it is one that does."""
    if name in KEPT:
        interrupt.keep(f"{KEPT[name].format(out=visible(str(out)))}; the same command goes on from there")


def check_arguments() -> None:
    """Refuse control characters in what was typed, or put there by a pattern that matched files: Typer repeats it."""
    for argument in sys.argv[1:]:
        if has_control(argument):
            raise CCRError(f"an argument must be plain text, got '{visible(argument)}': rename the file")


def _check_no_input(out: Path, given: Iterable[Any]) -> None:
    """Refuse to write over a file that the command reads."""
    if is_url(out) or not out.is_file():
        return
    for value in given:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, (str, Path)) and not is_url(one) and _same_file(one, out):
                raise CCRError(f"--out must be another file than what is read, got {out}, which would be written over")


def _same_file(one: str | Path, other: Path) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def _check_out(out: Path, *, is_file: bool) -> None:
    if is_url(out):
        check_writable(out)
        return
    if is_file and out.is_dir():
        raise CCRError(f"--out must be a file, but {out} is a folder: name a file in it")
    if not is_file:
        check_folder(out)
    check_writable(out)
