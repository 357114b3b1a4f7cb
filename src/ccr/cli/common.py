"""Helpers shared by all commands: consoles, errors, JSON output, notes, progress bars, checks of output files."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from typer.core import TyperCommand

from ccr.errors import CCRError, CCRWarning, without_credentials
from ccr.io.files import check_writable, write_bytes
from ccr.io.remote import is_url
from ccr.utils import processes as interrupt
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import has_control, visible

if TYPE_CHECKING:
    from ccr.scale.cluster import RayPool

# Work around every command: --out is checked before the work, and Ctrl-C says what is kept.
#: Commands that write one file; the others' --out is a folder.
FILES = (
    "ask", "merge", "explain", "predict", "export", "claims", "judge", "report", "propose", "check", "choose", "learn",
)  # fmt: skip
#: Results that commands keep as they go.
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
            _check_out(out, [value for key, value in options.items() if key != "out"], is_file=name in FILES)
            keeps(name, out)
        Quiet.on = bool(options.get("as_json"))
        try:
            command(**options)
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            Quiet.on = False

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


def _check_out(out: Path, given: Iterable[Any], *, is_file: bool) -> None:
    """Refuse an --out that cannot be written, or that is read."""
    if not is_url(out):
        if is_file and out.is_dir():
            raise CCRError(f"--out must be a file, but {out} is a folder: name a file in it")
        if not is_file and out.exists() and not out.is_dir():
            raise CCRError(f"--out must be a folder, but {out} is a file: choose another name")
    check_writable(out)
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


# Options of commands that can run on a Ray cluster: --ray [ADDRESS] and --workers.
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Work on the Ray cluster at HOST:PORT; without an address, on the one that runs here, or else on all "
        "cores of this machine. Needs the extra `scale`.",
    ),
]

Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Processes that read and decode ahead of the encoder; default 1. With --ray: encoders; default: one "
        "per GPU, or else per core.",
    ),
]

_ADDRESS = re.compile(r"auto|local|(ray://)?[^/\s]+:\d+")


class RayCommand(TyperCommand):
    """A command whose --ray may stand without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_address(args))


def with_address(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `auto` after a --ray that no address follows."""
    full: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        full += ["--ray", "auto"] if word == "--ray" and _ADDRESS.fullmatch(following) is None else [word]
    return full


def check_extra() -> None:
    """An error at once, before anything is read, where Ray is not installed."""
    from importlib.util import find_spec

    from ccr.errors import MissingExtraError

    if find_spec("ray") is None:
        raise MissingExtraError('--ray needs the extra "scale": pip install -c constraints.txt "ccr-xai[scale]"')


@contextmanager
def pool_at(address: str | None) -> Iterator[RayPool | None]:
    """The pool of the cluster at an address; None without one."""
    if address is None:
        yield None
        return
    check_extra()
    from ccr.scale.cluster import RayPool, connected, task_errors

    with connected(address) as ray, task_errors(ray):
        yield RayPool(ray)


# Options and arguments of several commands.
ModelFolder = Annotated[Path, typer.Argument(help="Folder of a model.")]
ModelStore = Annotated[Path, typer.Argument(help="Store made by `ccr embed` with the model's encoder.")]
Split = Annotated[str | None, typer.Option(help="train, val or test. Default: test, else val, else everything.")]
ModelEncoder = Annotated[str | None, typer.Option(help="Where the model's encoder is now, if it moved.")]
StoreEncoder = Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

All = Annotated[bool, typer.Option("--all", help="Print every class, not only the first ten.")]


class _PlainConsole(Console):
    """A console on which texts from outside (names, paths, labels) are shown and do nothing else."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, keep="\n"), **options)


# No emoji: a concept may be called ":apple:".
console = _PlainConsole(emoji=False, highlight=False)
errors = _PlainConsole(stderr=True, emoji=False, highlight=False)


def fail(message: str, *, as_json: bool) -> int:
    """Print what went wrong, on stderr, or as JSON on stdout; the exit code to leave with."""
    message = without_credentials(message)  # an error of another package may reach here
    if as_json:
        print_json({"error": message})
    else:
        errors.print(f"[bold red]error:[/bold red] {escape(visible(message))}")
    return 1


def in_words(error: OSError) -> str:
    """An error of the system that no part of the library expected: which file, why, and what to do."""
    place = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{place}{reason}: check the path, its permissions and the free space"


def print_json(value: Mapping[str, Any]) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = not encoding.lower().startswith("utf")  # a stream that would replace letters gets escapes
    typer.echo(visible(json.dumps(value, ensure_ascii=escaped, allow_nan=False)))


def replace_unprintable() -> None:
    """Let a stream that is not in UTF-8 show a question mark for what it cannot, instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class Quiet:
    """With --json nothing is told but errors: neither notes nor how far work has come."""

    on = False


def note(message: str) -> None:
    """Print a line about what is going on, on stderr; with --json nothing."""
    if not Quiet.on:
        _print_note(message)


def _print_note(message: str) -> None:
    errors.print(escape(visible(message)), style="dim", soft_wrap=True)


class _Notes(logging.Handler):
    """The library's log as notes on stderr, so that people know what they wait for."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_note(record.getMessage())


def show_log() -> None:
    """Let the library's log be seen, once."""
    log = logging.getLogger("ccr")
    if not any(isinstance(handler, _Notes) for handler in log.handlers):
        log.addHandler(_Notes())
        log.setLevel(logging.INFO)


def show_requests(*, wanted: bool) -> None:
    """Let a server's own log be seen: its errors always, its requests if `wanted`."""
    for name, level in {"uvicorn.error": logging.ERROR, "uvicorn.access": logging.INFO}.items():
        log = logging.getLogger(name)
        log.setLevel(level)
        log.propagate = False
        if name == "uvicorn.error" or wanted:
            log.handlers = [_Notes()]


def show_warnings() -> None:
    """Let warnings of the library be notes, also those that come outside of `warnings_as_notes`."""
    usual = warnings.showwarning

    def show(message: Any, category: Any, *where: Any, **options: Any) -> None:
        if issubclass(category, CCRWarning):
            _print_note(f"note: {message}")
        else:
            usual(message, category, *where, **options)

    warnings.showwarning = show


#: Without a terminal, a line about work that goes on is printed at least so often, in seconds; sooner when so much more
#: of it is done, but not more often than every so many seconds.
EVERY, SHARE, SOONEST = 10.0, 0.05, 2.0


class _Lines:
    """Progress as lines, for a log file: what is done, of how much, for how long, and how long it may still take."""

    def __init__(self) -> None:
        self.what, self.done, self.total, self.share = "starting", 0, 0, 0.0
        self.begun = self.told = time.monotonic()
        self._one = threading.Lock()

    def tell(self, done: int, total: int, what: str) -> None:
        with self._one:
            now = time.monotonic()
            if what != self.what or done < self.done:  # another piece of work: its own time and share
                self.what, self.begun, self.share = what, now, 0.0
            self.done, self.total = done, total
            further = done / total - self.share if total else 0.0
            if now - self.told >= (SOONEST if further >= SHARE - 1e-9 else EVERY):
                self._print(now)

    def remind(self) -> None:
        """Say where the work stands if nothing was said for long: a step may take minutes."""
        with self._one:
            now = time.monotonic()
            if now - self.told >= EVERY:
                self._print(now)

    def _print(self, now: float) -> None:
        took, share = now - self.begun, self.done / self.total if self.total else 0.0
        self.told, self.share = now, share
        parts = [f"{self.done:,} of {self.total:,} ({share:.0%})"] if self.total else []
        parts += [f"{_time(took)} so far"] if took >= 1 else []
        parts += [f"about {_time(took / share - took)} left"] if 0 < share < 1 and took >= SOONEST else []
        note(": ".join([self.what, ", ".join(parts)]) if parts else self.what)


@contextmanager
def _reminded(lines: _Lines) -> Iterator[None]:
    """Have the lines say where the work stands also while it does not tell."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            lines.remind()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{rest} s" if minutes == 0 else f"{minutes} min {rest} s" if minutes < 10 else f"{minutes:,} min"


@contextmanager
def bar() -> Iterator[OnProgress]:
    """A progress bar on stderr, moved by what is yielded; of 0 steps in all it only shows that work goes on. Where
    stderr is no terminal, lines."""
    if Quiet.on:
        yield no_progress
        return
    if not errors.is_terminal:
        lines = _Lines()
        with _reminded(lines):
            yield lines.tell
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("{task.description}"), *columns, console=errors, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda done, total, what: progress.update(
            task, completed=done, total=total or None, description=escape(visible(what))
        )


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Warnings of the library as plain lines, without file names and line numbers; what several fits say, once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CCRWarning)
        yield
    told: set[str] = set()
    for warning in caught:
        if issubclass(warning.category, CCRWarning):
            what = str(warning.message).partition(":")[0]  # behind it are numbers, which differ a little
            if what not in told:
                note(f"note: {warning.message}")
            told.add(what)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def fitting() -> Iterator[OnProgress]:
    """Around fits: kernels that are not on disk yet are compiled by another process, because the compiler would leave
    half a gigabyte in this one; warnings become notes; and a bar is drawn."""
    from ccr import kernels

    kernels.warm_up(note, elsewhere=True)
    with warnings_as_notes(), bar() as tell:
        yield tell


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[str]:
    """Write each file of a command's results into its folder; their names."""
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return list(contents)
