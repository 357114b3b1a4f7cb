"""`ccr explain`: why an image is predicted as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, print_json
from ccr.cli.common_data import model_encoder
from ccr.cli.common_photo import terms_table
from ccr.errors import CCRError
from ccr.io.files import write_bytes
from ccr.utils.texts import percent, visible

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from PIL import Image

    from ccr.encoders import Encoder
    from ccr.explain import Comparison, Contrast, Counterfactual, Explanation, RegionConcept, Where
    from ccr.model import ConceptModel
    from ccr.utils.processes import Tell

ENDINGS = (".html", ".png", ".json")
#: Photos that are embedded between two steps of the progress bar: no core waits, and people see that it goes on.
AT_A_TIME = 4
#: Left, top, right, bottom, as fractions of the picture.
Box = tuple[float, float, float, float]


class Explained(NamedTuple):
    """An image with its explanation, what would change it, and another model's explanation of it."""

    path: Path
    image: Image.Image
    explanation: Explanation
    contrast: Contrast | None
    counterfactual: Counterfactual | None
    baseline: Explanation | None
    box: Box | None = None
    signature: str | None = None

    @property
    def comparison(self) -> Comparison | None:
        return None if self.baseline is None else self.explanation.compare(self.baseline)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"image": str(self.path), **self.explanation.to_dict()}
        if self.explanation.where is not None:
            plain["where"] = self.explanation.where.to_dict()
            if self.box is not None:
                inside = self.explanation.where.concepts_in(self.box)
                plain["where"]["box"] = {"box": list(self.box), "concepts": [vars(item).copy() for item in inside]}
        if self.signature is not None:
            plain["signature"] = self.signature
        plain["counterfactual"] = None if self.counterfactual is None else self.counterfactual.to_dict()
        if self.baseline is not None and self.comparison is not None:
            plain["baseline"] = {**self.baseline.to_dict(), "comparison": self.comparison.to_dict()}
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
    baseline: Annotated[Path | None, typer.Option(help="Folder of another model whose sums are shown beside.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of concepts to show; .json and --json have all.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Write a page (.html), a picture (.png) or data (.json).")] = None,
    where: Annotated[bool, typer.Option("--where", help="Also show which parts of the picture count.")] = False,
    way: Annotated[
        str, typer.Option(help="With --where: exact, values (MaskCLIP), occlusion, or auto: exact where possible.")
    ] = "auto",
    box: Annotated[
        str | None,
        typer.Option(help="Also list the concepts that come from LEFT,TOP,RIGHT,BOTTOM, fractions of the picture."),
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Where the model's encoder is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Explain predictions: bias plus one contribution (code x weight) for each active concept is the class's logit.

    Below each sum comes the smallest set of concepts whose removal would change the prediction. With --where, every
    contribution is split over the patches of the picture: drawn in .html and .png, as numbers in .json.

    Example: `ccr explain photos-model apple.jpg --against pear --where --out why.html`
    """
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise CCRError(f"--out must end in {', '.join(ENDINGS)}, got {out.name!r}")
    part = None if box is None else _box(box)
    wanted = way if where or box is not None else None
    if wanted is None and way != "auto":
        raise typer.BadParameter(f"--way {way} says how --where is found: give --where, too")
    _check_way(way)
    explained = _explained(model, images, against, baseline, encoder, wanted, silent=as_json)
    explained = [item._replace(box=part) for item in explained]
    if out is not None:
        write_bytes(out, _rendered(explained, out.suffix.lower(), top))
    if as_json:
        print_json({"model": str(model), "explanations": [item.to_dict() for item in explained]})
        return
    for item in explained:
        _show(item, top)
    if explained[0].signature is not None:
        console.print(escape(explained[0].signature), highlight=False, style="bold")
    if out is not None:
        console.print(f"Written to {escape(str(out))}")


def _explained(
    folder: Path,
    images: list[Path],
    against: str | None,
    baseline: Path | None,
    spec: str | None,
    way: str | None,
    *,
    silent: bool,
) -> list[Explained]:
    from ccr.data.datasets import load_image
    from ccr.explain.terms import position
    from ccr.io.provenance import signature_in_words
    from ccr.model import ConceptModel

    model = ConceptModel.load(folder)
    if against is not None:
        position(model.classes.tolist(), against)  # refuses a class that is none before anything is embedded
    other = None if baseline is None else _checked_baseline(ConceptModel.load(baseline), model, baseline)
    pictures = [load_image(path) for path in images]
    loaded = model_encoder(model, spec, silent=silent)
    with bar(silent=silent) as tell:
        rows = _embedded(loaded, pictures, tell)
    places = [None] * len(images) if way is None else _places(model, loaded, pictures, way, silent=silent)
    explained = []
    for path, picture, row, place in zip(images, pictures, rows, places, strict=True):
        explanation = place or model.explain(row)
        contrast = explanation.contrast(against) if against is not None else None
        beside = None if other is None else other.explain(row)
        made = Explained(path, picture, explanation, contrast, explanation.counterfactual(), beside)
        explained.append(made._replace(signature=signature_in_words(model)))
    return explained


def _embedded(encoder: Encoder, pictures: list[Image.Image], tell: Tell) -> list[np.ndarray]:
    """The embedding (d,) of each picture, a few pictures at a time."""
    rows: list[np.ndarray] = []
    for start in range(0, len(pictures), AT_A_TIME):
        tell(start, len(pictures), "embedding photos")
        rows += list(encoder.embed_images(pictures[start : start + AT_A_TIME]))
    return rows


def _places(
    model: ConceptModel, encoder: Encoder, pictures: list[Image.Image], way: Any, *, silent: bool
) -> list[Explanation]:
    """The explanations with where in the picture."""
    from ccr.photos.on_photos import explain_image

    places = []
    with bar(silent=silent) as tell:
        for number, picture in enumerate(pictures):
            tell(number, len(pictures), "where in the picture")
            inner = tell if len(pictures) == 1 else lambda done, total, what: None
            places.append(explain_image(model, encoder, picture, way=way, tell=inner))
    return places


def _check_way(way: str) -> None:
    """Refuse it before photos are read and embedded."""
    from ccr.explain import WAYS

    if way not in (known := ("auto", *WAYS)):
        raise CCRError(f"--way is one of {', '.join(known)}, got {way!r}")


def _box(text: str) -> Box:
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ValueError("it is no part of a picture")
    except ValueError:
        raise CCRError(
            f"--box is four fractions of the picture, LEFT,TOP,RIGHT,BOTTOM, got {text!r}: 0,0,0.5,1 is its left half"
        ) from None
    return left, top, right, bottom


def _checked_baseline(baseline: ConceptModel, model: ConceptModel, path: Path) -> ConceptModel:
    theirs, ours = baseline.provenance.encoder_fingerprint, model.provenance.encoder_fingerprint
    if None not in (theirs, ours) and theirs != ours:
        raise CCRError(f"--baseline must read the model's encoder {ours}, {path} reads {theirs}: fit it on that store")
    missing = set(map(str, model.classes)) - set(map(str, baseline.classes))
    if missing:
        raise CCRError(f"--baseline must know the model's classes, {path} does not know {sorted(missing)[0]!r}")
    return baseline


def _rendered(explained: list[Explained], ending: str, top: int) -> bytes:
    if ending == ".json":
        return json.dumps([item.to_dict() for item in explained], indent=1, ensure_ascii=False).encode()
    if ending == ".png":
        from ccr.show import plots

        drawn = [plots.png(_drawn(item, top)) for item in explained]
        return drawn[0] if len(drawn) == 1 else plots.stacked(drawn)
    from ccr.show import page

    cards = [_card(item, top) for item in explained]
    signed = explained[0].signature
    note = [] if signed is None else [f"<p><strong>{page.name(visible(signed))}</strong></p>"]
    return page.page("Explained predictions", ["<h1>Explained predictions</h1>", *note, *cards]).encode()


def _drawn(item: Explained, top: int) -> Figure:
    from ccr.show import plots

    if item.explanation.where is not None:
        return plots.located(item.explanation, item.image, against=item.contrast, top=top)
    return plots.explanation(item.explanation, item.image, against=item.contrast, top=top)


def _card(item: Explained, top: int) -> str:
    from ccr.show import page
    from ccr.show.report import report as gallery

    more = [gallery.counterfactual(item.counterfactual)]
    if item.explanation.where is not None:
        from ccr.show import pictures as where_pictures

        more.append(where_pictures.strip(item.explanation.where, item.image, top=top, against=item.contrast))
        if item.box is not None:
            rows = [[i.concept, f"{i.contribution:+.2f}", f"{i.share:.0%}"] for i in _inside(item, top)]
            edges = ", ".join(f"{edge:g}" for edge in item.box)
            heading = ("concept", f"from the box {edges}", "of its positive patches")
            more.append(page.table(heading, rows, texts=(0,)))
    if item.baseline is not None:
        more.append(gallery.beside(item.baseline, item.explanation, top=top))
    return page.explanation_card(
        item.explanation, item.image, against=item.contrast, caption=item.path.name, more=more, top=top, big=True
    )


def _show(item: Explained, top: int) -> None:
    explanation, contrast, baseline = item.explanation, item.contrast, item.baseline
    _show_sum(f"{escape(item.path.name)}: ", explanation, top)
    console.print(_counterfactual(item.counterfactual), highlight=False)
    if explanation.where is not None:
        _show_places(explanation.where, top, _inside(item, top))
    if contrast is not None:
        title = f"{escape(str(explanation.prediction))} rather than {escape(str(contrast.other))}"
        console.print(terms_table(title, contrast.bias, contrast.contributions, top, "difference", contrast.difference))
    if baseline is not None and item.comparison is not None:
        _show_sum("baseline: ", baseline, top)
        console.print(f"{item.comparison.overlap:.0%} of the concepts of either are in both", highlight=False)


def _inside(item: Explained, top: int) -> Sequence[RegionConcept]:
    """Active concepts whose code comes from inside the box, the `top` first; empty without a box."""
    where, box = item.explanation.where, item.box
    return () if where is None or box is None else where.concepts_in(box, top=top)


def _show_places(where: Where, top: int, within: Sequence[RegionConcept]) -> None:
    """How much of each contribution the picture's patches carry, and what comes from a box."""
    from ccr.show.pictures import WAYS_IN_WORDS, parts

    console.print(f"Where ({where.way}): {WAYS_IN_WORDS[where.way]}", highlight=False)
    for item in where.contributions()[:top]:
        console.print(f"  {escape(item.name)}: {parts(item)}", highlight=False)
    for inside in within:
        share = f"{inside.share:.0%} of its positive patches"
        console.print(f"  in the box: {escape(inside.concept)}, {inside.contribution:+.2f}, {share}", highlight=False)


def _show_sum(heading: str, explanation: Explanation, top: int) -> None:
    title = f"{heading}[bold]{escape(str(explanation.prediction))}[/bold], {percent(explanation.probability, digits=1)}"
    terms = explanation.contributions
    table = terms_table(title, explanation.bias, terms, top, "logit", explanation.logit, informed=explanation.informed)
    console.print(table)


def _counterfactual(counterfactual: Counterfactual | None) -> str:
    from ccr.explain.terms import signed_name

    if counterfactual is None:
        return "No removal of active concepts would change the prediction."
    removed = ", ".join(f'"{escape(signed_name(term))}"' for term in counterfactual.removed)
    return (
        f"Without {removed} it would be {escape(str(counterfactual.becomes))}, {percent(counterfactual.probability)}."
    )
