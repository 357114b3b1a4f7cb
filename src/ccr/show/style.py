"""Colours and text for figures and pages: colour-blind safe (Okabe and Ito), long names cut."""

from __future__ import annotations

from typing import Any

FOR, AGAINST, NEUTRAL, INK = "#0072B2", "#D55E00", "#999999", "#222222"
#: Lines of one figure.
COLOURS = (FOR, AGAINST, "#009E73", "#CC79A7", NEUTRAL)


def shortened(name: object, most: int = 40) -> str:
    """At most this many characters on one line; control characters become spaces."""
    text = " ".join(str(name).split())
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def signed_name(term: Any) -> str:
    """The name of a `concept` as its `code` counted: one with a negative code counted by being away from the image."""
    return term.concept if term.code >= 0 else f"not: {term.concept}"
