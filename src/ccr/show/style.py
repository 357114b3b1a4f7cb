"""Colours and text for figures and pages: colour-blind safe (Okabe and Ito), long names cut."""

from __future__ import annotations

from ccr.core.explain.picture import AGAINST, FOR, INK, NEUTRAL
from ccr.core.explain.sums import signed_name

__all__ = ["AGAINST", "COLOURS", "FOR", "INK", "NEUTRAL", "shortened", "signed_name"]

#: Lines of one figure.
COLOURS = (FOR, AGAINST, "#009E73", "#CC79A7", NEUTRAL)


def shortened(name: object, most: int = 40) -> str:
    """At most this many characters on one line; control characters become spaces."""
    text = " ".join(str(name).split())
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 1] + "…"
