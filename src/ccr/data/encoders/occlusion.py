"""Where by covering parts of the picture and embedding it again: slow, no exact sum, possible with every encoder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PIL import Image

from ccr.core.explain import Frame, PatchTerms
from ccr.data.encoders.protocol import Encoder
from ccr.progress import Tell, no_progress

#: Cells of the map in a row, and in a row of the square that is covered.
CELLS, COVERED = 8, 2


def occluded_terms(encoder: Encoder, image: Image.Image, *, tell: Tell = no_progress) -> PatchTerms:
    """What the embedding loses when a square of the picture is covered with the picture's mean colour, shared out among
    the cells of the square and averaged over the squares that a cell is in; the rest is what that leaves over.

    A picture is embedded 50 times: whole, and with each of 7 x 7 overlapping squares covered.
    """
    frame = encoder.frame(image) if hasattr(encoder, "frame") else Frame()
    places = [(row, column) for row in range(CELLS - COVERED + 1) for column in range(CELLS - COVERED + 1)]
    rows = encoder.embed_images(_covered(image.convert("RGB"), frame, places, tell)).astype(np.float64)
    tell(len(places) + 1, len(places) + 1, "covering parts")
    embedding, lost = rows[0], rows[0] - rows[1:]
    terms, times = np.zeros((CELLS, CELLS, len(embedding))), np.zeros((CELLS, CELLS, 1))
    for (row, column), drop in zip(places, lost, strict=True):
        cells = slice(row, row + COVERED), slice(column, column + COVERED)
        terms[cells] += drop / COVERED**2
        times[cells] += 1
    terms /= times
    return PatchTerms(embedding, terms, {"not split": embedding - terms.sum(axis=(0, 1))}, frame, "occlusion")


def _covered(image: Image.Image, frame: Frame, places: list[tuple[int, int]], tell: Tell) -> Iterator[Image.Image]:
    """The image, then copies of it with a square of cells covered."""
    left, top, right, bottom = frame.pixels(*image.size)
    colour = mean_colour(image.crop((left, top, right, bottom)))
    yield image
    for number, (row, column) in enumerate(places):
        tell(number + 1, len(places) + 1, "covering parts")
        edges = [
            left + (right - left) * column // CELLS,
            top + (bottom - top) * row // CELLS,
            left + (right - left) * (column + COVERED) // CELLS,
            top + (bottom - top) * (row + COVERED) // CELLS,
        ]
        copy = image.copy()
        copy.paste(colour, (edges[0], edges[1], max(edges[2], edges[0] + 1), max(edges[3], edges[1] + 1)))
        yield copy


def mean_colour(image: Image.Image) -> tuple[int, int, int]:
    """What a picture is on average."""
    red, green, blue = np.asarray(image.convert("RGB")).reshape(-1, 3).mean(axis=0)
    return round(red), round(green), round(blue)
