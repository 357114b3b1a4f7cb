"""`ccr explain`: why an image is predicted as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Json, ModelEncoder, ModelFolder, bar, console, print_json
from ccr.cli.common_data import model_encoder
from ccr.cli.common_photo import terms_table
from ccr.errors import CCRError
from ccr.io.files import write_bytes
from ccr.utils.texts import percent, share_text, visible

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from ccr.encoders import Encoder
    from ccr.explain import Contrast, Counterfactual, Explanation
    from ccr.model import ConceptModel
    from ccr.utils.processes import OnProgress

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
    box: Box | None
    signature: str | None

    def inside(self, top: int | None = None) -> list[Any]:
        """Active concepts whose code comes from inside the box, the `top` first; empty without a box."""
        where = self.explanation.where
        return [] if where is None or self.box is None else list(where.concepts_in(self.box, top=top))

    def to_dict(self) -> dict[str, Any]:
        where, against = self.explanation.where, self.contrast
        plain: dict[str, Any] = {"image": str(self.path), **self.explanation.to_dict()}
        if where is not None:
            plain["where"] = where.to_dict()
            if self.box is not None:
                plain["where"]["box"] = {"box": list(self.box), "concepts": [dict(vars(one)) for one in self.inside()]}
        if self.signature is not None:
            plain["signature"] = self.signature
        plain["counterfactual"] = None if self.counterfactual is None else self.counterfactual.to_dict()
        if self.baseline is not None:
            comparison = self.explanation.compare(self.baseline)
            plain["baseline"] = {**self.baseline.to_dict(), "comparison": comparison.to_dict()}
        if against is not None:
            terms = [dict(vars(term)) for term in against.contributions]
            plain["against"] = {"class": str(against.other), "difference": against.difference, "bias": against.bias}
            plain["against"]["contributions"] = terms
        return plain


def explain(
    model: ModelFolder,
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
    encoder: ModelEncoder = None,
    as_json: Json = False,
) -> None:
    """Explain predictions: bias plus one contribution (code x weight) for each active concept is the class's logit.

    Below each sum comes the smallest set of concepts whose removal would change the prediction. With --where, every
    contribution is split over the patches of the picture: drawn in .html and .png, as numbers in .json.

    Example: `ccr explain photos-model apple.jpg --against pear --where --out why.html`
    """
    from ccr.explain import WAYS

    if out is not None and out.suffix.lower() not in ENDINGS:
        raise CCRError(f"--out must end in {', '.join(ENDINGS)}, got {out.name!r}")
    part = None if box is None else _box(box)
    wanted = way if where or box is not None else None
    if wanted is None and way != "auto":
        raise typer.BadParameter(f"--way {way} says how --where is found: give --where, too")
    if way not in (known := ("auto", *WAYS)):
        raise CCRError(f"--way is one of {', '.join(known)}, got {way!r}")
    explained = _explained(model, images, against, baseline, encoder, wanted, part)
    if out is not None:
        write_bytes(out, _rendered(explained, out.suffix.lower(), top))
    if as_json:
        print_json({"model": str(model), "explanations": [item.to_dict() for item in explained]})
        return
    for item in explained:
        _show(item, top)
        if against is not None and item.contrast is None:
            console.print(f"{escape(against)} is what is predicted here: --against says why not another class")
    if explained[0].signature is not None:
        console.print(escape(explained[0].signature), style="bold")
    if out is not None:
        console.print(f"Written to {escape(str(out))}")


def _explained(
    folder: Path,
    images: list[Path],
    against: str | None,
    baseline: Path | None,
    spec: str | None,
    way: str | None,
    box: Box | None,
) -> list[Explained]:
    from ccr.data.datasets import load_image
    from ccr.explain.terms import position
    from ccr.io.provenance import signature_sentence
    from ccr.model import ConceptModel

    model = ConceptModel.load(folder)
    if against is not None:
        position(model.classes.tolist(), against)  # refuses a class that is none before anything is embedded
    other = None if baseline is None else _checked_baseline(ConceptModel.load(baseline), model, baseline)
    pictures = [load_image(path) for path in images]
    loaded, signature = model_encoder(model, spec), signature_sentence(model)
    with bar() as tell:
        rows = _embedded(loaded, pictures, tell)
    places = [None] * len(images) if way is None else _places(model, loaded, pictures, way)
    explained = []
    for path, picture, row, place in zip(images, pictures, rows, places, strict=True):
        found = place or model.explain(row)
        same = str(found.prediction) == against  # nothing to say against what is predicted
        contrast = None if against is None or same else found.contrast(against)
        beside = None if other is None else other.explain(row)
        explained.append(Explained(path, picture, found, contrast, found.counterfactual(), beside, box, signature))
    return explained


def _embedded(encoder: Encoder, pictures: list[Image.Image], tell: OnProgress) -> list[np.ndarray]:
    """The embedding (d,) of each picture, a few pictures at a time."""
    rows: list[np.ndarray] = []
    for start in range(0, len(pictures), AT_A_TIME):
        tell(start, len(pictures), "embedding photos")
        rows += list(encoder.embed_images(pictures[start : start + AT_A_TIME]))
    return rows


def _places(model: ConceptModel, encoder: Encoder, pictures: list[Image.Image], way: Any) -> list[Explanation]:
    """The explanations with where in the picture."""
    from ccr.photos.on_photos import explain_image

    places = []
    with bar() as tell:
        for number, picture in enumerate(pictures):
            tell(number, len(pictures), "where in the picture")
            inner = tell if len(pictures) == 1 else lambda done, total, what: None
            places.append(explain_image(model, encoder, picture, way=way, tell=inner))
    return places


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

        drawn = []
        for item in explained:
            draw = plots.explanation if item.explanation.where is None else plots.located
            name = visible(item.path.name)
            drawn.append(plots.png(draw(item.explanation, item.image, against=item.contrast, top=top, name=name)))
        return drawn[0] if len(drawn) == 1 else plots.stacked(drawn)
    from ccr.show import page

    signed = explained[0].signature
    note = [] if signed is None else [f"<p><strong>{page.name(visible(signed))}</strong></p>"]
    cards = [_card(item, top) for item in explained]
    return page.page("Explained predictions", ["<h1>Explained predictions</h1>", *note, *cards]).encode()


def _card(item: Explained, top: int) -> str:
    from ccr.show import page, pictures, report

    found = item.explanation
    more, below = [report.counterfactual(item.counterfactual)], []
    if found.where is not None:
        below.append(pictures.strip(found.where, item.image, top=top, against=item.contrast))
    if item.box is not None:
        rows = [[one.concept, f"{one.contribution:+.2f}", share_text(one.share)] for one in item.inside(top)]
        edges = ", ".join(f"{edge:g}" for edge in item.box)
        more.append(page.table(("concept", f"from the box {edges}", "of its positive patches"), rows, texts=(0,)))
    if item.baseline is not None:
        more.append(report.beside(item.baseline, found, top=top))
    return page.explanation_card(
        found, item.image, against=item.contrast, caption=item.path.name, more=more, below=below, top=top, big=True
    )


def _show(item: Explained, top: int) -> None:
    from ccr.explain.terms import signed_name

    found, contrast, change = item.explanation, item.contrast, item.counterfactual
    _show_sum(f"{escape(item.path.name)}: ", found, top)
    words = "No removal of active concepts would change the prediction." if found.active else ""
    if change is not None:
        removed = ", ".join(f'"{escape(signed_name(term))}"' for term in change.removed)
        words = f"Without {removed} it would be {escape(str(change.becomes))}, {percent(change.probability)}."
    if words:
        console.print(words)
    if found.where is not None:
        from ccr.show.pictures import WAYS_IN_WORDS, parts

        console.print(f"Where ({found.where.way}): {WAYS_IN_WORDS[found.where.way]}")
        for one in found.where.contributions()[:top]:
            console.print(f"  {escape(one.name)}: {parts(one)}")
        for one in item.inside(top):
            share = f"{one.contribution:+.2f}, {share_text(one.share)} of its positive patches"
            console.print(f"  in the box: {escape(one.concept)}, {share}")
    if contrast is not None:
        title = f"{escape(str(found.prediction))} rather than {escape(str(contrast.other))}"
        pair = f"of {escape(str(contrast.prediction))}, less that of {escape(str(contrast.other))}"
        sums = contrast.bias, contrast.contributions, top, "difference", contrast.difference
        console.print(terms_table(title, *sums, weights_of=pair))
    if item.baseline is not None:
        _show_sum("baseline: ", item.baseline, top)
        shared = found.compare(item.baseline).overlap
        console.print(f"{share_text(shared)} of the concepts of either are in both")


def _show_sum(heading: str, found: Explanation, top: int) -> None:
    from ccr.explain.terms import total_in_words

    title = f"{heading}[bold]{escape(str(found.prediction))}[/bold], {percent(found.probability, digits=1)}"
    terms, informed = found.contributions, found.informed
    console.print(terms_table(title, found.bias, terms, top, "logit", found.logit, informed=informed))
    if not terms:
        console.print(f"The image {total_in_words(found)}.")
