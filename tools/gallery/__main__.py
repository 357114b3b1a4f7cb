"""Draw the gallery: `python -m tools.gallery ccr-demo untold --out docs`."""

from __future__ import annotations

import argparse
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from ccr import ConceptClassifier
from ccr.data.store import EmbeddingStore
from ccr.io.files import write_bytes
from ccr.show import plots
from tools.gallery import choice

HEADER = """# Gallery

Explanations of the demo's test photos: right, wrong, right for a doubtful reason, and before and after a correction.
Nobody picked them; the rules are in `tools/gallery/choice.py`. Blue bars speak for the class, orange ones against it;
bias and contributions add up to the class's logit, and a check mark says that people confirmed the claim. Two models
explain the same photos: that of `ccr demo`, which was told what is true of which fruit, and one that was told
nothing. Pictures and words of this page are made by

<!-- not run in the tests: tests/docs/test_gallery.py runs it without writing into docs/ -->
```sh
ccr demo
ccr fit ccr-demo/store --concepts ccr-demo/concepts.txt --length 11 --out untold
python -m tools.gallery ccr-demo untold --out docs
```
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `ccr demo` left")
    parser.add_argument("untold", type=Path, help="a model of the demo's photos and concepts without knowledge")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for gallery.md and gallery/*.png")
    parser.add_argument("--each", type=int, default=3, help="photos of each kind")
    arguments = parser.parse_args()
    print(make_gallery(arguments.demo, arguments.untold, arguments.out, each=arguments.each))


def make_gallery(demo: Path, untold: Path, out: Path, *, each: int = 3) -> str:
    """Write the page and its pictures; what was made, in words."""
    store = EmbeddingStore.open(demo / "store")
    test, train = store.select("test"), store.select(rows=store.splits != "test")
    told, plain = ConceptClassifier.load(demo / "model"), ConceptClassifier.load(untold)
    away = choice.surroundings(demo / "concepts.txt")
    album = _Album(out, test)
    seen, before = choice.Predictions.of(told, test), choice.Predictions.of(plain, test)
    parts = [
        HEADER,
        *_single(album, told, seen, each),
        *_doubtful(album, plain, told, choice.surprising(before, test.y, away, each)),
        *_corrected(album, plain, choice.correct(plain, away, train, test), before),
    ]
    write_bytes(out / "gallery.md", "\n".join(parts).encode())
    return f"{len(album.drawn)} pictures, {sum(album.drawn.values()) // 1024} kB, and {out / 'gallery.md'}"


class _Album:
    """Draws explanations as `ccr explain --out why.png` does, in few colours so that the files are small."""

    def __init__(self, out: Path, photos: EmbeddingStore) -> None:
        self.out, self.photos = out, photos
        self.drawn: dict[str, int] = {}

    def draw(self, name: str, model: ConceptClassifier, row: int) -> str:
        figure = plots.explanation(
            model.explain(self.photos[row]), self.photos.image(row), truth=self.photos.y[row], top=6
        )
        content = few_colours(plots.png(figure, dpi=75))
        write_bytes(self.out / "gallery" / f"{name}.png", content)
        self.drawn[name] = len(content)
        words = f"{self.photos.y[row]}, explained"
        return f"![{words}](gallery/{name}.png)\n"


def few_colours(png: bytes, colours: int = 200) -> bytes:
    """The picture with a palette: a third of the bytes."""
    buffer = BytesIO()
    Image.open(BytesIO(png)).convert("RGB").quantize(colours).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _single(album: _Album, model: ConceptClassifier, seen: choice.Predictions, each: int) -> list[str]:
    truth = album.photos.y
    sections = {
        "Right": ("The most confident correct predictions of the model that was told, one per class.", choice.right),
        "Wrong": (
            "Its most confident wrong ones, one per class. The sum says what misled the model, and so what to change: "
            "a concept to remove, one to add, or photos to add. What is true of a class may be false of the photo.",
            choice.wrong,
        ),
    }
    lines = []
    for title, (words, choose) in sections.items():
        rows = choose(seen, truth, each)
        lines += [f"## {title}\n", f"{words}\n"]
        lines += [album.draw(f"{title.lower()}-{number}", model, row) for number, row in enumerate(rows, start=1)]
    return lines


def _doubtful(album: _Album, plain: ConceptClassifier, told: ConceptClassifier, rows: list[int]) -> list[str]:
    lines = [
        "## Right for a doubtful reason\n",
        "The model that was told nothing is right about the class, but what contributes most is not about the fruit: "
        "it is how and where photos of that kind were taken. A probe on embeddings would hide this; here it is the "
        "first word. Below each, the same photo by the model that was told.\n",
    ]
    for number, row in enumerate(rows, start=1):
        lines += ["Told nothing:\n", album.draw(f"reason-{number}", plain, row)]
        lines += ["Told:\n", album.draw(f"reason-{number}-told", told, row)]
    return lines


def _corrected(
    album: _Album,
    model: ConceptClassifier,
    corrected: choice.Correction,
    before: choice.Predictions,
) -> list[str]:
    truth, effect = album.photos.y, corrected.effect
    after = choice.Predictions.of(corrected.model, album.photos)
    mended = np.flatnonzero((before.predicted != truth) & (after.predicted == truth))
    broken = np.flatnonzero((before.predicted == truth) & (after.predicted != truth))
    around = np.isin(before.first, corrected.suppressed)
    names = ", ".join(f'"{name}"' for name in corrected.suppressed)
    lines = [
        "## Before and after a correction\n",
        "Without knowledge, a model can be corrected by hand. All "
        f"{len(corrected.suppressed)} concepts of surroundings that the one told nothing has are taken away ({names}), "
        "and the head is fitted again on the training photos; no photo is embedded again. Accuracy on the "
        f"{len(truth)} test photos: {effect.before:.1%} before, {effect.after:.1%} after. {len(mended)} photos are "
        f"right that were wrong, {len(broken)} are wrong that were right. The difference is what the shop was worth to "
        "the first model; photos from another shop would say which of the two to keep. One photo of each kind, the "
        "surest in which the surroundings spoke first:\n",
    ]
    for word, rows in (("mended", mended), ("broken", broken)):
        first = choice.surest(rows[around[rows]], before.sure, truth, 1) or choice.surest(rows, before.sure, truth, 1)
        for row in first:
            lines += [f"### {word.capitalize()}: {truth[row]}\n", "Before:\n", album.draw(f"{word}-before", model, row)]
            lines += ["After:\n", album.draw(f"{word}-after", corrected.model, row)]
    return lines


if __name__ == "__main__":
    main()
