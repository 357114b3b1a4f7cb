"""Encoders of this machine that the user named: a store or model from elsewhere may not choose a folder to load."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ccr.data.assets import cache_folder
from ccr.errors import CCRError, MissingExtraError
from ccr.files import write_json
from ccr.reading import read_regular

_FILE = "named-encoders.json"  # in the user's cache: specs that were given on this machine


def is_local(spec: str) -> bool:
    """Does the spec name a folder or file that is here, rather than a name on a hub?"""
    kind, _, target = spec.strip().partition(":")
    place = target.partition("/")[2] if kind == "open_clip" else target
    return kind in ("hf", "open_clip") and bool(place) and Path(place).exists()


def remember(spec: str) -> None:
    """Note that the user named this encoder, if it is a local one. Where nothing can be noted, he is asked again."""
    if is_local(spec) and spec not in (known := _known()):
        with suppress(OSError, MissingExtraError):
            write_json(cache_folder() / _FILE, [*filter(is_local, known), spec])


def check_named(spec: str, where: str) -> None:
    """Refuse a local encoder that `where`, a store or a model, notes, and that the user never named himself."""
    if is_local(spec) and spec not in _known():
        raise CCRError(
            f"{where} says that its encoder is {spec}, which lies on this machine and was never named by you: if you "
            f"trust it, give --encoder {spec}"
        )


def _known() -> list[str]:
    try:
        known = json.loads(read_regular(cache_folder() / _FILE))
    except (OSError, ValueError, MissingExtraError):
        return []
    return [spec for spec in known if isinstance(spec, str)] if isinstance(known, list) else []
