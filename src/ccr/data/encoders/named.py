"""Encoders of this machine that the user named: a store or model from elsewhere may not choose a folder to load."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ccr.data.assets import cache_folder
from ccr.errors import CCRError, MissingExtraError
from ccr.reading import read_regular

_FILE = "named-encoders.jsonl"  # in the user's cache: specs that were given on this machine


def is_local(spec: str) -> bool:
    """Does the spec name a folder or file that is here, rather than a name on a hub?"""
    kind, _, target = spec.strip().partition(":")
    place = target.partition("/")[2] if kind == "open_clip" else target
    return kind in ("hf", "open_clip") and bool(place) and Path(place).exists()


def remember(spec: str) -> None:
    """Note that the user named this encoder, if it is a local one. Where nothing can be noted, he is asked again.

    A line is appended in one write, so that commands that run at the same time keep each other's notes.
    """
    if is_local(spec) and spec not in _known():
        with suppress(OSError, MissingExtraError):
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _FILE).open("ab", buffering=0) as file:
                file.write(b"\n" + json.dumps(spec).encode() + b"\n")


def check_named(spec: str, where: str) -> None:
    """Refuse a local encoder that `where`, a store or a model, notes, and that the user never named himself."""
    if is_local(spec) and spec not in _known():
        raise CCRError(
            f"{where} says that its encoder is {spec}, which lies on this machine and was never named by you: if you "
            f"trust it, give --encoder {spec}"
        )


def _known() -> set[str]:
    try:
        lines = read_regular(cache_folder() / _FILE).splitlines()
    except (OSError, MissingExtraError):
        return set()
    known = set()
    for line in lines:
        if line.startswith(b'"'):
            with suppress(ValueError):
                known.add(json.loads(line))
    return known
