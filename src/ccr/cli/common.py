"""What every command shares: where it prints, progress bars, JSON, tables of evaluations, files written whole."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ccr.errors import CCRError, CCRWarning

if TYPE_CHECKING:
    from ccr.core.metrics import Evaluation
    from ccr.data.encoders import Encoder
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
#: Moves a bar: (done, total, what is being done).
Advance = Callable[[int, int, str], None]

console = Console()
errors = Console(stderr=True)


def fail(message: str, *, as_json: bool, code: int = 1) -> int:
    """Say what went wrong, on stderr, or as JSON on stdout; the exit code to leave with."""
    if as_json:
        print_json({"error": message})
    else:
        errors.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False)
    return code


def print_json(value: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def note(message: str, *, quiet: bool = False) -> None:
    """A line about what is going on, on stderr."""
    if not quiet:
        errors.print(escape(message), style="dim", highlight=False)


class _Notes(logging.Handler):
    """The library's log as notes on stderr: what is waited for is said."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_log(*, quiet: bool) -> None:
    """Let the library's log be seen, once."""
    log = logging.getLogger("ccr")
    if not quiet and not any(isinstance(handler, _Notes) for handler in log.handlers):
        log.addHandler(_Notes())
        log.setLevel(logging.INFO)


@contextmanager
def bar(*, quiet: bool) -> Iterator[Advance]:
    """A progress bar on stderr."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=quiet) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda done, total, what: progress.update(task, completed=done, total=total, description=escape(what))


@contextmanager
def warnings_as_notes(*, quiet: bool) -> Iterator[None]:
    """Warnings of the library as plain lines, without file names and line numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CCRWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, CCRWarning):
            note(f"note: {warning.message}", quiet=quiet)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all: aside, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(content)
    aside.replace(path)


def evaluation_table(rows: Mapping[str, Evaluation], title: str) -> Table:
    """One line a model: accuracy with its interval, length, how far concepts moved, how many are still themselves."""
    table = Table(title=title, title_justify="left")
    table.add_column("model", no_wrap=True)
    for name in ("accuracy", "95 % interval", "length", "moved", "kept"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, found in rows.items():
        table.add_row(
            escape(name),
            f"{found.accuracy:.1%}",
            f"{found.interval.low:.1%}-{found.interval.high:.1%}",
            f"{found.length:.1f}",
            f"{found.deviation.mean:.3f}",
            f"{found.retention:.0%}",
        )
    table.caption = "length: concepts an image; moved: mean deviation; kept: concepts still nearest to themselves"
    table.caption_justify = "left"
    return table


def model_encoder(model: ConceptClassifier, spec: str | None, *, quiet: bool) -> Encoder:
    """The encoder that a model reads, checked to be that one."""
    from ccr.data.encoders import load_encoder

    wanted = spec or model.encoder_
    if wanted is None:
        raise CCRError("the model does not say which encoder made its embeddings: give --encoder")
    encoder = load_encoder(wanted, log=lambda line: note(line, quiet=quiet))
    if model.encoder_fingerprint_ not in (None, encoder.fingerprint):
        raise CCRError(
            f"the model was fitted on embeddings of encoder {model.encoder_fingerprint_} ({model.encoder_}), but "
            f"{wanted} is {encoder.fingerprint}: give the same weights with --encoder"
        )
    return encoder


def split_of(
    store: EmbeddingStore, name: str | None, *, order: tuple[str, ...] = ("test", "val")
) -> tuple[str, EmbeddingStore]:
    """The part of a store to measure on: the named split, or the first of `order` that there is."""
    present = [split for split in dict.fromkeys(store.splits) if split is not None]
    for candidate in (name,) if name else order:
        if candidate in present:
            return candidate, store.select(candidate)
    if name is not None:
        raise CCRError(f"the store has no split {name!r}; it has {', '.join(present) or 'none'}")
    return "all", store
