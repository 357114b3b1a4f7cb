"""The commands of `ccr`, and `main`, which runs them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated

import typer

from ccr.cli import (
    claims,
    concepts,
    concepts_check,
    demo,
    edit,
    embed,
    evaluate,
    explain,
    fit,
    judge,
    knowledge,
    knowledge_photos,
    predict,
    report,
    review,
    share,
)
from ccr.cli.common import (
    RayCommand,
    Stopped,
    check_arguments,
    fail,
    in_words,
    ready,
    replace_unprintable,
    show_log,
    show_warnings,
)
from ccr.errors import CCRError
from ccr.utils import processes as interrupt

app = typer.Typer(
    name="ccr",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Image classifiers whose every prediction is a short, exact sum of named concepts.\n\n"
    "Start with `ccr demo`. Then, with a folder of photos, PHOTOS/CLASS/IMAGE.jpg: `ccr embed`, `ccr fit`, "
    "`ccr review`, `ccr report`; `ccr explain` for one photo.",
)


def _print_version(asked: bool) -> None:
    if asked:
        import ccr

        typer.echo(f"ccr {ccr.__version__}")
        raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None: ...


def _added() -> list[Callable[..., None]]:
    """The commands of other packages, such as the studio's and the laboratory's: each names a tuple of functions as an
    entry point of the group `ccr.commands`. Reverse order: the studio stands before the laboratory in `ccr --help`."""
    return [command for point in sorted(entry_points(group="ccr.commands"), reverse=True) for command in point.load()]


# Modules, not functions, are imported here: a function called like its module would hide it.
commands: tuple[Callable[..., None], ...] = (
    *(demo.demo, embed.embed, fit.fit, evaluate.evaluate, explain.explain, predict.predict, share.export),
    *(evaluate.audit, claims.claims, review.review, judge.judge, edit.edit, report.report, share.push, share.pull),
    *_added(),
)
for command in commands:
    app.command(cls=RayCommand)(ready(command))
#: Groups of commands: help, and their commands.
GROUPS: dict[str, tuple[str, tuple[Callable[..., None], ...]]] = {
    "concepts": (
        "From class names to a good list of concepts: propose, check, choose, or learn them from photos.",
        (concepts.propose, concepts_check.check, concepts.choose, concepts.learn),
    ),
    "knowledge": (
        "Which concept is true of which class or photo: make a first table, answer questions about photos, look at, "
        "merge and check tables.",
        (
            *(knowledge.ask, knowledge_photos.ask_photos),
            *(knowledge.show, knowledge.merge, knowledge.check),
        ),
    ),
}
for name, (words, parts) in GROUPS.items():
    group = typer.Typer(no_args_is_help=True, help=words)
    for part in parts:
        group.command()(ready(part))
    app.add_typer(group, name=name)


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 refused input, 2 misuse, 130 stopped."""
    as_json = "--json" in sys.argv
    replace_unprintable()
    if not as_json:
        show_log()
    show_warnings()
    try:
        check_arguments()
        app()
    except CCRError as error:
        sys.exit(fail(str(error), as_json=as_json))
    except OSError as error:
        sys.exit(fail(in_words(error), as_json=as_json))
    except (Stopped, KeyboardInterrupt):
        interrupt.report_stopped()
        sys.exit(interrupt.CODE)
