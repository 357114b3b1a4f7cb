"""Text from outside: shown so that a terminal does nothing but show it, and refused as a name if it could do more."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from difflib import get_close_matches
from numbers import Number

from ccr.errors import CCRError

# Control characters (C0, DEL, C1), other line separators, and bidirectional formatting characters.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Cells that a spreadsheet would compute, also behind apostrophes; some read the wide signs of Chinese and Japanese
# likewise.
_FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
#: Letters and signs that are drawn as nothing: Hangul fillers, Khmer inherent vowels, an empty Braille cell.
_BLANK = "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_LONE = re.compile("[\ud800-\udfff]")  # what stands for the bytes of a file's name that is not UTF-8


def visible(text: str, *, keep: str = "") -> str:
    r"""The text with control characters, but for `keep`, as escapes such as \u001b, which JSON reads as the same."""
    shown = _CONTROL.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def has_control(text: str) -> bool:
    """Would a terminal do something else with the text than show it?"""
    return _CONTROL.search(text) is not None


def to_cell(value: object) -> str:
    """A value as a cell of CSV that a spreadsheet shows and does not compute: nothing for None, numbers as they are,
    texts with an apostrophe before what would be a formula."""
    if value is None:
        return ""
    if isinstance(value, Number):
        return str(value)
    cell = visible(str(value))
    return f"'{cell}" if _FORMULA.match(cell) else cell


def from_cell(cell: str) -> str:
    """The text of a cell that `to_cell` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV whose cells are inert in a spreadsheet."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(to_cell, row) for row in rows)
    return stream.getvalue()


def listed(names: Sequence[str], most: int, rest: str = ", ...") -> str:
    """The first `most` names; where there are more, then `rest`, such as " and {} more"."""
    return ", ".join(names[:most]) + (rest.format(len(names) - most) if len(names) > most else "")


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Suggestion for an unknown name: the most similar known one, in brackets; empty if none is similar."""
    close = closest(name, known)
    return "" if close is None else f" (did you mean {close!r}?)"


def closest(name: object, known: Iterable[object]) -> str | None:
    """The known name that is most like this one; None if none is."""
    spelled = {str(one).casefold(): str(one) for one in known}
    close = get_close_matches(str(name).strip().casefold(), spelled, n=1)
    return spelled[close[0]] if close else None


def timestamp() -> str:
    """The time now, to the second, as ISO 8601 has it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def counted(number: object, what: str) -> str:
    """A number with its noun, in the plural if needed: "1 concept", "3 concepts"."""
    return f"{number} {what}{'' if str(number) == '1' else 's'}"


def check_name(name: str, what: str) -> None:
    """Refuse a name, of a concept or a class, that could do more than be shown."""
    if has_control(name) or _LONE.search(name):
        raise CCRError(f"{what} must be plain text, got control characters in '{visible(name)}': take them out")
    if name.strip() and not any(unicodedata.category(one)[0] in "LNPS" and one not in _BLANK for one in name):
        shown = name.encode("ascii", "backslashreplace").decode()
        raise CCRError(f"{what} must have a character that can be seen, got '{shown[:80]}': write a word")


def without_folders(place: str) -> str:
    """A path, or an encoder's spec with one, without the folders above the last two names, which are private in a page
    that is mailed; relative paths, URLs and names stay."""
    kind, colon, path = place.partition(":")
    if colon and (path.startswith("/") and not path.startswith("//")):
        return f"{kind}:{without_folders(path)}"
    return "/".join(place.rstrip("/").split("/")[-2:]) if place.startswith("/") and place.count("/") > 2 else place


def percent(probability: float, *, digits: int = 0) -> str:
    """A probability in percent, never rounded up to certainty: 98%, 99.5%, >99.9%."""
    if probability >= 0.9995:
        return ">99.9%"
    return f"{probability:.{max(digits, 1) if probability >= 0.985 else digits}%}"


def fidelity_text(value: float) -> str:
    """Two digits, or a dash where all images score alike."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def share_text(share: float) -> str:
    """A share of a count in percent: 100% only where it is all of them."""
    return "100%" if share >= 1.0 else percent(share)
