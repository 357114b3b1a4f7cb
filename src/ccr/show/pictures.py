"""Maps over patches, drawn on the picture: blue where it speaks for, orange where it speaks against."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import PureWindowsPath
from typing import Any

import numpy as np
from PIL import Image

from ccr.errors import CCRError
from ccr.explain import Contrast, Frame, PatchMap, Where
from ccr.explain.terms import AGAINST, FOR
from ccr.show import page
from ccr.utils.texts import without_folders

# Images of a report: read once, thumbnailed; one that cannot be read leaves a word in its place.
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
        """Reason why the first missing image could not be read."""
        return next(iter(self._bad.values()), "")

    def of(self, row: int, size: int = CARD) -> str:
        """The image of a row, or a box that says that it is not there."""
        if (row, size) not in self._made:
            self._made[row, size] = self._read(row, size)
        return self._made[row, size]

    def name(self, row: int) -> str:
        """Display name of an image: its file and parent folder, which is often its class."""
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
            place = str(getattr(self._rows, "description", {}).get("source", {}).get("path", ""))
            self._bad[row] = str(error).replace(place, without_folders(place)) if place else str(error)
            return f'<div class="no-image">no image: {escape(self.name(row))}</div>'


def shortened(name: object, most: int = 40) -> str:
    """At most this many characters on one line; control characters become spaces."""
    text = " ".join(str(name).split())
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 1] + "…"


#: How much of a pixel's colour the strongest patch takes.
STRONGEST = 0.8
#: How much of its own colour the picture below keeps, so that blue and orange are the map's.
OWN_COLOUR = 0.35
#: Characters of a name below a small picture.
LONGEST_CAPTION = 34


def shown_maps(where: Where, *, top: int, against: Contrast | None = None) -> list[tuple[str, PatchMap]]:
    """Heatmaps to draw, with headings: the class, its lead over another one, and the `top` largest contributions."""
    maps = [(f"{where.prediction}: all together", where.class_map())]
    if against is not None:
        contrast = where.contrast_map(against.other)
        maps.append((contrast.name, contrast))
    return maps + [(item.name, item) for item in where.contributions()[:top]]


def common_scale(maps: Sequence[PatchMap]) -> float:
    """Common colour scale of heatmaps: the 99% quantile of absolute values, so that one outlying patch does not make
    all others pale."""
    values = np.abs(np.concatenate([item.map.ravel() for item in maps])) if maps else np.zeros(1)
    return float(np.quantile(values, 0.99)) or float(values.max()) or 1.0


def scales_of(maps: Sequence[tuple[str, PatchMap]], *, against: Contrast | None) -> list[float]:
    """Colour scale of each of `shown_maps`: one for the class as a whole and its lead over another, and one for the
    single concepts, which would all be pale on the scale of their sum."""
    sums = 1 if against is None else 2
    return [common_scale([item for _, item in part]) for part in (maps[:sums], maps[sums:]) for _ in part]


def framed(image: Image.Image, frame: Frame, size: int) -> Image.Image:
    """The part of the picture that maps cover, its longer side this many pixels."""
    part = image.convert("RGB").crop(frame.pixels(*image.size))
    scale = size / max(part.size)
    return part.resize(
        (max(1, round(part.width * scale)), max(1, round(part.height * scale))), Image.Resampling.BICUBIC
    )


def overlay(picture: Image.Image, values: np.ndarray, scale: float) -> Image.Image:
    """A map (rows, columns) on the picture that it covers."""
    rough = Image.fromarray(values.astype(np.float32))
    smooth = np.asarray(rough.resize(picture.size, Image.Resampling.BILINEAR)) / scale
    grey = np.asarray(picture.convert("L"), np.float32)[:, :, None]
    below = OWN_COLOUR * np.asarray(picture, np.float32) + (1 - OWN_COLOUR) * (0.6 * grey + 0.4 * 255)
    strength = STRONGEST * np.clip(np.abs(smooth), 0, 1)[:, :, None]
    colour = np.where(smooth[:, :, None] >= 0, rgb(FOR), rgb(AGAINST))
    return Image.fromarray(np.uint8(np.rint((1 - strength) * below + strength * colour)))


def rgb(colour: str) -> np.ndarray:
    """Red, green and blue of "#rrggbb"."""
    return np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)], np.float32)


def parts(item: PatchMap) -> str:
    """A map's sum in words: what the patches add, and what comes from none."""
    return f"{item.total:+.2f} = {item.in_patches:+.2f} in the picture {item.elsewhere:+.2f} elsewhere"


def strip(where: Where, image: Image.Image, *, top: int, against: Contrast | None = None, size: int = 220) -> str:
    """Small pictures in a row with one colour scale and its legend, as HTML."""
    maps = shown_maps(where, top=top, against=against)
    scales, picture = scales_of(maps, against=against), framed(image, where.frame, size)
    figures = [
        f"<figure>{page.thumbnail(overlay(picture, item.map, scale), size)}"
        f"<figcaption><b>{escape(shortened(heading, LONGEST_CAPTION))}</b><br>{escape(parts(item))}"
        "</figcaption></figure>"
        for (heading, item), scale in zip(maps, scales, strict=True)
    ]
    return f'<div class="strip">{"".join(figures)}</div>{legend(where, scales)}'


def legend(where: Where, scales: Sequence[float]) -> str:
    """Colour legend of the heatmaps, as HTML."""
    bar = f"linear-gradient(90deg, {AGAINST}, #dddddd, {FOR})"
    rows, columns = where.shape
    return (
        f'<div class="muted"><span style="display:inline-block;width:9rem;height:.7rem;background:{bar}"></span> '
        f"{escape(scales_in_words(scales))}; {rows} x {columns} patches; {escape(WAYS_IN_WORDS[where.way])}.</div>"
    )


def scales_in_words(scales: Sequence[float]) -> str:
    """Both scales of `scales_of` in a sentence."""
    whole, single = scales[0], scales[-1]
    concepts = "" if single == whole else f", in the maps of single concepts {-single:+.3f} to {single:+.3f}"
    return f"from orange (against) to blue (for): {-whole:+.3f} to {whole:+.3f} of the logit per patch{concepts}"


WAYS_IN_WORDS = {
    "exact": "each contribution is what the patches of the picture add and what comes from elsewhere: the mean of all "
    "images, the encoder's own offsets, the bias",
    "values": "MaskCLIP's way, not a split of the score; elsewhere is what the patches leave open",
    "occlusion": "what is lost when parts are covered, not a split of the score; elsewhere is what that leaves open",
}
