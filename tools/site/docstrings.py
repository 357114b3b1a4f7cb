"""Parameters as this project writes them, `name : what it is.`, for the reference of the site: the words are a
description there, not a type, which the signature has."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(?:Parameters|Attributes|Returns)\n-{3,}\n", re.MULTILINE)
_ITEM = re.compile(r"^(\w[\w, ]*?) : (.+)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)


class OwnStyle(griffe.Extension):
    """Moves the words after the colon to where numpydoc has descriptions."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = numpydoc(obj.docstring.value)


def numpydoc(text: str) -> str:
    """The docstring with the descriptions of its parameters on lines of their own."""
    found = _SECTION.search(text)
    if found is None:
        return text
    return text[: found.end()] + _ITEM.sub(_moved, text[found.end() :] + "\n").rstrip("\n")


def _moved(match: re.Match[str]) -> str:
    names, words, more = match.groups()
    goes_on = re.match(r"\s+[^A-Z\s]", more)
    if not (words.endswith(".") or goes_on):
        return match[0]  # a type, with its description below it
    return f"{names}\n    {words}\n{more}"
