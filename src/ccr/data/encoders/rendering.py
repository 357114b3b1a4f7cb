"""Words as a picture: CLIP's image tower has learned to read, so a picture of a text is an embedding of the text.

The font travels inside Pillow (Aileron, Latin letters), so the same words give the same picture everywhere.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

from PIL import Image, ImageDraw, ImageFont

_SIDE = 224  # pixels; what the image tower looks at
_BOX = 208  # pixels that lines may fill, across and down
_LARGEST, _SMALLEST = 40, 10  # size of letters: the largest at which the text fits
_LINE = 1.2  # from line to line, in sizes of letters
_ABSENT = "\uffff"  # no character at all: drawn as every glyph that the font lacks


def render(text: str) -> Image.Image | None:
    """The words in black on white, centred, in lines; None if the font lacks a character or the text is too long."""
    words = _without_accents(text).split()
    if not words or any(not _has_glyph(character) for character in "".join(words)):
        return None
    for size in range(_LARGEST, _SMALLEST - 1, -2):
        lines = _lines(words, size)
        if len(lines) * size * _LINE <= _BOX and max(map(_font(size).getlength, lines)) <= _BOX:
            return _draw(lines, size)
    return None


def rendering() -> dict[str, Any]:
    """What a picture depends on beside its text, in words that JSON can hold."""
    font = _font(_LARGEST).getname()
    return {"font": font, "side": _SIDE, "box": _BOX, "sizes": [_LARGEST, _SMALLEST], "line": _LINE}


def _without_accents(text: str) -> str:
    """The font has few accented letters, and CLIP reads "cafe" as well as "café"."""
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def _lines(words: list[str], size: int) -> list[str]:
    """As many words on each line as fit."""
    lines = words[:1]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if _font(size).getlength(longer) <= _BOX:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _draw(lines: list[str], size: int) -> Image.Image:
    picture = Image.new("RGB", (_SIDE, _SIDE), "white")
    middle = (_SIDE / 2, _SIDE / 2)
    pen = ImageDraw.Draw(picture)
    pen.multiline_text(middle, "\n".join(lines), fill="black", font=_font(size), anchor="mm", align="center")
    return picture


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


@cache
def _has_glyph(character: str) -> bool:
    """Pillow does not say which glyphs a font has, but draws one and the same box for all that it lacks."""
    drawn, absent = (_font(_LARGEST).getmask(one) for one in (character, _ABSENT))
    return drawn.size != absent.size or bytes(drawn) != bytes(absent)
