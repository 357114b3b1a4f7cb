"""--ray [ADDRESS]: the same command on a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ccr.scale.pool import RayPool

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
    for number, word in enumerate(words):
        full.append(word)
        following = words[number + 1] if number + 1 < len(words) else ""
        if word == "--ray" and _ADDRESS.fullmatch(following) is None:
            full.append("auto")
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
    from ccr.scale.cluster import connected, in_words
    from ccr.scale.pool import RayPool

    with connected(address) as ray, in_words(ray):
        yield RayPool(ray)
