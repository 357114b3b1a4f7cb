"""Images of a report: read once, thumbnailed; one that cannot be read leaves a word in its place."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ccr.errors import CCRError
from ccr.show import page

#: Widths of thumbnails, in pixels.
CARD, SMALL = 230, 150


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

    def path(self, row: int) -> str:
        """What the image is called in its data set."""
        paths = getattr(self._rows, "paths", None)
        return f"row {row}" if paths is None or paths[row] is None else str(paths[row])

    def strip(self, items: Sequence[tuple[int, str]]) -> str:
        """Small images in a row, each with a caption that is HTML already."""
        figures = [
            f"<figure>{self.of(row, SMALL)}<figcaption>{caption}</figcaption></figure>" for row, caption in items
        ]
        return f'<div class="strip">{"".join(figures)}</div>' if figures else ""

    def _read(self, row: int, size: int) -> str:
        try:
            return page.thumbnail(self._rows.image(row), size)
        except (CCRError, OSError, AttributeError) as error:
            self._bad[row] = str(error)
            return f'<div class="no-image">no image: {escape(self.path(row))}</div>'
