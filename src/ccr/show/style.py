"""Matplotlib helpers shared by all figures: axis labels, titles, named rows, annotations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

from matplotlib.axes import Axes

from ccr.explain import Contrast
from ccr.explain.terms import AGAINST, FOR, INK, NEUTRAL

# Colours and text for figures and pages: colour-blind safe (Okabe and Ito), long names cut.
#: Lines of one figure.
COLOURS = (FOR, AGAINST, "#009E73", "#CC79A7", NEUTRAL)


def shortened(name: object, most: int = 40) -> str:
    """At most this many characters on one line; control characters become spaces."""
    text = " ".join(str(name).split())
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def label_axes(axes: Axes, x: str, y: str) -> None:
    """Name both axes, and leave a light grid without a frame."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names of horizontal bars or lines, the first at the top."""
    # parse_math off: a concept such as "$5 note" is a name, not a formula
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def room_for(names: Iterable[str]) -> float:
    """About how many inches the longest of these names takes."""
    return max(
        (sum(0.14 if east_asian_width(letter) in "WF" else 0.085 for letter in name) for name in names), default=0
    )


def two_classes(contrast: Contrast) -> str:
    """One class rather than the other, on two lines if their names are long."""
    names = shortened(contrast.prediction), f"rather than {shortened(contrast.other)}"
    return ("\n" if sum(map(len, names)) > 50 else " ").join(names)


def set_title(axes: Axes, text: str, size: int = 11) -> None:
    axes.set_title(text, loc="left", fontsize=size, parse_math=False)


def annotate_right(axes: Axes, x: float, row: float, text: str) -> None:
    """A small text to the right of a point."""
    axes.annotate(text, (x, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8, color=INK)


def annotate_below(axes: Axes, x: float, y: float, text: str) -> None:
    """A small text below a point, to its right."""
    options = {"textcoords": "offset points", "fontsize": 8, "parse_math": False}
    axes.annotate(text, (x, y), xytext=(7, -10), **options)  # type: ignore[arg-type]
