"""`ccr explain`: why an image is predicted as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, model_encoder, print_json, write_whole
from ccr.errors import CCRError

if TYPE_CHECKING:
    from PIL import Image

    from ccr.core.explain import Contrast, Contribution, Explanation

ENDINGS = (".html", ".png", ".json")


class Explained(NamedTuple):
    """An image with its explanation."""

    path: Path
    image: Image.Image
    explanation: Explanation
    contrast: Contrast | None

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"image": str(self.path), **self.explanation.to_dict()}
        if self.contrast is not None:
            contributions = [vars(term).copy() for term in self.contrast.contributions]
            plain["against"] = {
                "class": str(self.contrast.other),
                "difference": self.contrast.difference,
                "bias": self.contrast.bias,
                "contributions": contributions,
            }
        return plain


def explain(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    images: Annotated[list[Path], typer.Argument(help="Image files.")],
    against: Annotated[str | None, typer.Option(help="Also say why not this class.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Concepts to show.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Write a page (.html), a picture (.png) or data (.json).")] = None,
    encoder: Annotated[str | None, typer.Option(help="Where the model's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Explain predictions: bias plus one contribution (code x weight) for each active concept is the class's logit.

    Example: `ccr explain photos-model apple.jpg --against pear --out why.html`
    """
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise CCRError(f"--out must end in {', '.join(ENDINGS)}, got {out.name!r}")
    found = _explained(model, images, against, encoder, quiet=as_json)
    if out is not None:
        write_whole(out, _rendered(found, out.suffix.lower(), top))
    if as_json:
        print_json({"model": str(model), "explanations": [item.to_dict() for item in found]})
        return
    for item in found:
        _show(item, top)
    if out is not None:
        console.print(f"Written to {escape(str(out))}")


def _explained(
    folder: Path, images: list[Path], against: str | None, spec: str | None, *, quiet: bool
) -> list[Explained]:
    from ccr.data.datasets import load_image
    from ccr.models.classifier import ConceptClassifier

    model = ConceptClassifier.load(folder)
    pictures = [load_image(path) for path in images]
    rows = model_encoder(model, spec, quiet=quiet).embed_images(pictures)
    found = []
    for path, picture, row in zip(images, pictures, rows, strict=True):
        explanation = model.explain(row)
        contrast = explanation.contrast(against) if against is not None else None
        found.append(Explained(path, picture, explanation, contrast))
    return found


def _rendered(found: list[Explained], ending: str, top: int) -> bytes:
    if ending == ".json":
        return json.dumps([item.to_dict() for item in found], indent=1, ensure_ascii=False).encode()
    if ending == ".png":
        from ccr.show import plots

        if len(found) > 1:
            raise CCRError(f"a picture shows one image, got {len(found)}: use .html, or one image at a time")
        return plots.png(plots.explanation(found[0].explanation, found[0].image, top=top))
    from ccr.show import page

    cards = [
        page.explanation_card(item.explanation, item.image, against=item.contrast, caption=item.path.name, top=top)
        for item in found
    ]
    return page.page(
        "Explained predictions", ["<h1>Explained predictions</h1>", '<div class="cards">', *cards, "</div>"]
    ).encode()


def _show(item: Explained, top: int) -> None:
    found = item.explanation
    title = f"{escape(item.path.name)}: [bold]{escape(str(found.prediction))}[/bold], {found.probability:.1%}"
    console.print(terms_table(title, found.bias, found.contributions, top, "logit", found.logit))
    if item.contrast is not None:
        title = f"{escape(str(found.prediction))} rather than {escape(str(item.contrast.other))}"
        contrast = item.contrast
        console.print(terms_table(title, contrast.bias, contrast.contributions, top, "difference", contrast.difference))


def terms_table(title: str, bias: float, terms: tuple[Contribution, ...], top: int, ending: str, total: float) -> Table:
    """Concepts by size of contribution, bias first, the sum last."""
    table = Table(title=title, title_justify="left")
    table.add_column("concept")
    for name in ("code", "weight", "contribution"):
        table.add_column(name, justify="right")
    table.add_column("")
    shown = terms[:top]
    largest = max([abs(bias), *(abs(term.contribution) for term in shown)]) or 1.0
    table.add_row("bias", "", "", f"{bias:+.2f}", _bar(bias / largest))
    for term in shown:
        cells = f"{term.code:.3f}", f"{term.weight:.2f}", f"{term.contribution:+.2f}"
        table.add_row(escape(term.concept), *cells, _bar(term.contribution / largest))
    rest = terms[top:]
    if rest:
        table.add_row(f"{len(rest)} others", "", "", f"{sum(term.contribution for term in rest):+.2f}", "")
    table.add_row(f"[bold]{ending}[/bold]", "", "", f"[bold]{total:+.2f}[/bold]", "")
    return table


def _bar(share: float, width: int = 12) -> str:
    blocks = "█" * max(1, round(abs(share) * width))
    return f"[blue]{blocks}[/blue]" if share >= 0 else f"[dark_orange3]{blocks}[/dark_orange3]"
