"""Images of a report: read once, thumbnailed; one that cannot be read leaves a word in its place."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import PureWindowsPath
from typing import Any

from ccr.errors import CCRError
from ccr.show import page

#: Widths of thumbnails, in pixels.
CARD, SMALL, TINY = 230, 150, 110


class Pictures:
    """Thumbnails of the rows of a store, as HTML; `missing` counts those that could not be read."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._made: dict[tuple[int, int], str] = {}
        self._bad: dict[int, str] = {}

    @property
    def missing(self) -> int:
        return len(self._bad)

    @property
    def reason(self) -> str:
        """Why the first missing image could not be read."""
        return next(iter(self._bad.values()), "")

    def of(self, row: int, size: int = CARD) -> str:
        """The image of a row, or a box that says that it is not there."""
        if (row, size) not in self._made:
            self._made[row, size] = self._read(row, size)
        return self._made[row, size]

    def name(self, row: int) -> str:
        """What the image is called: its file and the folder that it is in, which is often its class."""
        paths = getattr(self._rows, "paths", None)
        if paths is None or paths[row] is None:
            return f"row {row}"
        return "/".join(part for part in PureWindowsPath(str(paths[row])).parts[-2:] if not part.endswith("\\"))

    def strip(self, items: Sequence[tuple[int, str]], size: int = SMALL) -> str:
        """Small images in a row, or tiny ones three in a row, each with a caption that is HTML already."""
        kind = "strip tiny" if size == TINY else "strip"
        figures = [f"<figure>{self.of(row, size)}<figcaption>{caption}</figcaption></figure>" for row, caption in items]
        return f'<div class="{kind}">{"".join(figures)}</div>' if figures else ""

    def _read(self, row: int, size: int) -> str:
        try:
            return page.thumbnail(self._rows.image(row), size)
        except (CCRError, OSError, AttributeError) as error:
            self._bad[row] = str(error)
            return f'<div class="no-image">no image: {escape(self.name(row))}</div>'
