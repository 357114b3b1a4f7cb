"""Draw all pictures that are not a command's own: `python -m tools.pictures ccr-demo --out docs/pictures`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from ccr import ConceptClassifier
from ccr.data.store import EmbeddingStore
from ccr.io.files import write_bytes
from ccr.show import plots
from tools.gallery import choice
from tools.gallery.__main__ import few_colours
from tools.pictures.photo_path import photo_path
from tools.pictures.refinement import cap, seen_before_and_after


def pictures(demo: Path) -> dict[str, Callable[[], Figure]]:
    """Each picture by its name, drawn when it is called for."""
    model = ConceptClassifier.load(demo / "model")
    test = EmbeddingStore.open(demo / "store").select("test")
    seen = choice.Predictions.of(model, test)
    row = next(row for row in choice.right(seen, test.y, 14) if test.y[row] == "Pink-Lady")
    named = [term.concept for term in model.explain(test[row]).contributions[:2]]
    view = model.view(test)
    explained = lambda: plots.explanation(model.explain(test[row]), test.image(row), truth=test.y[row])  # noqa: E731
    return {
        "explained": explained,
        "path": lambda: photo_path(model, test, row),
        "cap": cap,
        "seen": lambda: seen_before_and_after(model, test, named),
        "class": lambda: plots.class_view(view.of_class("Pink-Lady"), top=6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `ccr demo` left")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--only", help="names of pictures, joined by commas")
    arguments = parser.parse_args()
    for name, draw in pictures(arguments.demo).items():
        if arguments.only is None or name in arguments.only.split(","):
            content = few_colours(plots.png(draw(), dpi=80))
            write_bytes(arguments.out / f"{name}.png", content)
            print(f"{name}.png, {len(content) // 1024} kB")


if __name__ == "__main__":
    main()
