"""The pictures of docs/where.md: `python -m tools.where_figures STORE MODEL --out docs/figures/where [--photos 20]`.

Test photos, evenly over the store, four to a sheet; of each the photo, the class's map and those of the three largest
contributions, on the colour scales of `ccr explain --where`: one for the class, one for the single concepts of a photo.
"""

from __future__ import annotations

from argparse import ArgumentParser
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ccr import ConceptModel
from ccr.data.store import EmbeddingStore
from ccr.encoders import load_encoder
from ccr.io.files import write_bytes
from ccr.photos.on_photos import explain_image
from ccr.show.pictures import framed, overlay, scales_of, shown_maps

SIZE, WORDS, A_SHEET = 190, 38, 4


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/where"))
    parser.add_argument("--photos", type=int, default=20)
    given = parser.parse_args()
    test, model = EmbeddingStore.open(given.store).select("test"), ConceptModel.load(given.model)
    encoder = load_encoder(str(test.encoder))
    rows = np.linspace(7, len(test) - 8, given.photos).astype(int)
    lines = []
    for number, row in enumerate(rows):
        image, found = test.image(int(row)), None
        found = explain_image(model, encoder, image)
        assert found.where is not None
        maps = shown_maps(found.where, top=3)
        scales, photo = scales_of(maps, against=None), framed(image, found.where.frame, SIZE)
        right = "right" if str(found.prediction) == str(test.y[row]) else f"it is {test.y[row]}"
        cells = [(f"{number + 1}: {found.prediction}\n{right}", photo)]
        cells += [
            (f"{name}\n{item.in_patches:+.2f} in patches, {item.total:+.2f} in all", overlay(photo, item.map, scale))
            for (name, item), scale in zip(maps, scales, strict=True)
        ]
        lines.append(cells)
    for sheet in range(0, len(lines), A_SHEET):
        buffer = BytesIO()
        _drawn(lines[sheet : sheet + A_SHEET]).save(buffer, "JPEG", quality=82)
        write_bytes(given.out / f"photos-{sheet // A_SHEET + 1}.jpg", buffer.getvalue())


def _drawn(lines: list[list[tuple[str, Image.Image]]]) -> Image.Image:
    sheet = Image.new("RGB", (5 * (SIZE + 6), len(lines) * (SIZE + WORDS)), "white")
    pen = ImageDraw.Draw(sheet)
    for line, cells in enumerate(lines):
        for column, (heading, picture) in enumerate(cells):
            left, top = column * (SIZE + 6), line * (SIZE + WORDS)
            pen.text((left + 2, top + 6), heading, fill="black")
            sheet.paste(picture, (left, top + WORDS - 4))
    return sheet


if __name__ == "__main__":
    main()
