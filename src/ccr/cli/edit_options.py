"""The edits of `ccr edit` as they are written: names may hold the signs that separate them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ccr.errors import CCRError
from ccr.texts import did_you_mean


class Weight(NamedTuple):
    """A weight to set."""

    label: str
    concept: str
    value: float


def read_number(option: str, text: str) -> tuple[str, float]:
    """NAME=NUMBER; the last = separates, for a number has none."""
    name, sign, value = text.rpartition("=")
    try:
        parsed = float(value)
    except ValueError:
        sign, parsed = "", 0.0
    if not sign or not name.strip():
        raise CCRError(f"{option} must end in = and a number, got {text!r}: such as 'price tag=0.5'")
    return name.strip(), parsed


def read_pair(
    option: str, text: str, sign: str, firsts: Collection[str], seconds: Collection[str] | None
) -> tuple[str, str]:
    """Two names with a sign between; the first is one of `firsts`, the second one of `seconds` (None: anything)."""
    fitting = [
        (first, second)
        for first, second in _splits(text, sign)
        if first in firsts and second and (seconds is None or second in seconds)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        readings = " or ".join(f"{first!r} {sign} {second!r}" for first, second in fitting)
        raise CCRError(f"{option} {text!r} can be read as {readings}: use Python, model.edit(), where names stay apart")
    raise CCRError(f"{option} {text!r} fits no names of the model: {_wrong(text, sign, firsts, seconds)}")


def read_weight(text: str, classes: Collection[str], concepts: Collection[str]) -> Weight:
    """CLASS:NAME=VALUE."""
    names, value = read_number("--weight CLASS:NAME=VALUE", text)
    return Weight(*read_pair("--weight", names, ":", classes, concepts), value)


def _splits(text: str, sign: str) -> Iterator[tuple[str, str]]:
    for position, letter in enumerate(text):
        if letter == sign:
            yield text[:position].strip(), text[position + 1 :].strip()


def _wrong(text: str, sign: str, firsts: Collection[str], seconds: Collection[str] | None) -> str:
    pairs = list(_splits(text, sign))
    if not pairs:
        return f"it needs a {sign} between two names"
    known = [(first, second) for first, second in pairs if first in firsts]
    if not known:
        return _unknown(pairs[0][0], firsts)
    second = known[0][1]
    if not second:
        return f"there is nothing after the {sign}"
    return _unknown(second, seconds or ())


def _unknown(name: str, known: Collection[str]) -> str:
    example = f"; there are {len(known)}, such as {next(iter(known))!r}" if known else ""
    return f"nothing called {name!r}{did_you_mean(name, known)}{example}"
