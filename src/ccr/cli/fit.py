"""`ccr fit`: a store and a list of concepts to a model, beside its own baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, evaluation_table, note, print_json, split_of, warnings_as_notes
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.concepts import Concepts
    from ccr.core.metrics import Evaluation
    from ccr.data.encoders import Encoder
    from ccr.data.store import EmbeddingStore
    from ccr.models.classifier import ConceptClassifier


def fit(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`.")],
    concepts: Annotated[Path, typer.Option(help="Text file, one concept a line; # begins a comment.")],
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    length: Annotated[float | None, typer.Option(help="Concepts an image, on average. Default 12.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Instead of a length: the paper's lambda.")] = None,
    radius: Annotated[float, typer.Option(help="How far a concept may move, 0 to 2; 0 is the baseline.")] = 0.1,
    dispersion: Annotated[
        str, typer.Option(help="symmetric, symmetric:STRENGTH, angular, angular:FACTOR or none.")
    ] = "symmetric:0.9",
    center: Annotated[bool, typer.Option(help="Measure images and concepts from their own means.")] = True,
    sign: Annotated[str, typer.Option(help="Codes of both signs, or positive: only what an image shows.")] = "both",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data; default: enough.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same model.")] = 0,
    template: Annotated[
        str | None, typer.Option(help='How a concept is put to the encoder, such as "a photo of {}".')
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    baseline: Annotated[bool, typer.Option(help="Also fit the baseline (radius 0) for comparison.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Fit a classifier on a store and print it beside its baseline.

    Concepts are embedded by the store's encoder, refined inside a ball of --radius on the split `train`, the epoch is
    chosen on `val`, and the table is measured on `test`.

    Example: `ccr fit photos-store --concepts concepts.txt --out photos-model --length 10`
    """
    from ccr.data.store import EmbeddingStore

    opened = EmbeddingStore.open(store)
    embedded = load_concepts(opened, concepts, spec=encoder, template=template, quiet=as_json)
    options = {
        "coder": chosen_coder(length, threshold, sign),
        "dispersion": chosen_dispersion(dispersion),
        "center": "data" if center else None,
        "max_iter": epochs,
        "random_state": seed,
        "device": device,
    }
    split, rows = split_of(opened, None)
    names = (
        {"CCR": radius}
        if radius == 0 or not baseline
        else {"baseline (radius 0)": 0.0, f"CCR (radius {radius:g})": radius}
    )
    found: dict[str, Evaluation] = {}
    with warnings_as_notes(quiet=as_json), bar(quiet=as_json) as advance:
        for name, size in names.items():
            model = fit_on(
                opened, embedded, {**options, "radius": size}, lambda done, total, name=name: advance(done, total, name)
            )
            found[name] = model.evaluate(rows)
    model.model_.with_metrics(split, found[name].to_dict()).save(out)
    if as_json:
        results = {name: evaluation.to_dict() for name, evaluation in found.items()}
        print_json({"model": str(out), "split": split, "epochs": len(model.history_), "results": results})
        return
    console.print(evaluation_table(found, f"Measured on {rows.shape[0]} images, split {escape(split)}"))
    if split == "all":
        note("the store has no test split, so these are training images: accuracy is flattered")
    console.print(f"The model is in {escape(str(out))}; try: ccr explain {escape(str(out))} IMAGE")


def load_concepts(
    store: EmbeddingStore, path: Path, *, spec: str | None, template: str | None, quiet: bool
) -> Concepts:
    """The concepts of a file, embedded by the store's own encoder."""
    from ccr.data.vocab import embed_concepts, read_concepts

    names = read_concepts(path)
    loaded = encoder_of(store, spec, template=template, quiet=quiet)
    if not quiet:
        with console.status(f"embedding {len(names)} concepts"):
            return embed_concepts(names, loaded)
    return embed_concepts(names, loaded)


def encoder_of(store: EmbeddingStore, spec: str | None, *, template: str | None = None, quiet: bool) -> Encoder:
    """The store's own encoder, checked to be that one; `spec` says where it is now."""
    from ccr.data.encoders import load_encoder

    wanted = spec or store.encoder
    if wanted is None:
        raise CCRError(
            f"{store.path} does not say which encoder made it: give --encoder, such as hf:openai/clip-vit-base-patch32"
        )
    loaded = load_encoder(wanted, template=template, log=lambda line: note(line, quiet=quiet))
    with warnings_as_notes(quiet=quiet):
        store.check_encoder(loaded.fingerprint)
    return loaded


def fit_on(store: EmbeddingStore, concepts: Concepts, options: dict[str, Any], advance: Any) -> ConceptClassifier:
    """Fit on the split `train`; `val`, if there is one, chooses the epoch. Without splits: on everything."""
    from ccr.models.classifier import ConceptClassifier

    splits = set(store.splits)
    train = store.select("train") if "train" in splits else store
    validation = None
    if "val" in splits:
        val = store.select("val")
        validation = (val, val.y)
    model = ConceptClassifier(concepts, **options)
    return model.fit(train, validation=validation, callback=lambda epoch, epochs: advance(epoch.epoch, epochs))


def chosen_coder(length: float | None, threshold: float | None, sign: Any = "both") -> Any:
    from ccr.core.coding import HardThreshold

    if length is not None and threshold is not None:
        raise typer.BadParameter("give --length or --threshold, not both: a length is turned into a threshold")
    if sign not in ("both", "positive"):
        raise typer.BadParameter(f"--sign is both or positive, got {sign!r}")
    if threshold is not None:
        return HardThreshold(threshold=threshold, sign=sign)
    return HardThreshold(length=12 if length is None else length, sign=sign)


def chosen_dispersion(text: str) -> Any:
    from ccr.study.experiments.settings import parse_dispersion

    try:
        return parse_dispersion(text)
    except CCRError as error:
        raise typer.BadParameter(f"--{error}") from None
