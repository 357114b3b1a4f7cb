"""`ccr export`, `ccr push` and `ccr pull`: a model as an ONNX file, and with its card to a hub and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, ModelFolder, bar, console, note, print_json
from ccr.cli.common_data import noted_controls, split_of
from ccr.errors import CCRError
from ccr.utils.texts import percent

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier


Token = Annotated[
    str | None,
    typer.Option(envvar="HF_TOKEN", help="Access token. Default: that of `hf auth login`.", show_envvar=True),
]


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Option(help="The file to write, which ends in .onnx.")],
    with_encoder: Annotated[
        bool,
        typer.Option(
            "--with-encoder", help="Join the bundled image tower: the file then takes the pixels of one photo."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a model as an ONNX file, for any runtime that reads one.

    In: `embeddings` (batch, dimensions), or `pixels` (height, width, 3) with the encoder. Out: `label`,
    `probabilities`, `codes`, `contributions` (of each concept to the label) and `logits`; of a model with answers about
    photos also `shown`, the probability that the image shows each concept. The names of concepts and classes are in the
    file's metadata.

    Example: `ccr export photos-model --out photos.onnx`
    """
    from ccr.export.onnx_model import outputs_of, write_onnx
    from ccr.model import ConceptModel

    if out.suffix.lower() != ".onnx":
        raise CCRError(f"--out must end in .onnx, got {out.name!r}")
    loaded = ConceptModel.load(model)
    facts = write_onnx(loaded, out, with_encoder=with_encoder, log=note)
    size = out.stat().st_size
    if as_json:
        print_json({"model": str(model), "out": str(out), "bytes": size, "metadata": facts})
        return
    reads = "the pixels of one photo" if with_encoder else f"embeddings of {loaded.dimension} dimensions"
    console.print(
        f"{escape(str(out))}, {size / 1e6:.1f} MB: {reads} in; {', '.join(outputs_of(loaded))} out, over "
        f"{len(loaded.names)} concepts and {len(loaded.classes)} classes",
    )


def push(
    model: ModelFolder,
    repository: Annotated[str, typer.Argument(help="OWNER/NAME on the hub; made if there is none.")],
    store: Annotated[
        Path | None, typer.Option(help="Store whose test photos are explained in pictures on the card.")
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="With --store: also fit with random words and random vectors in the concepts' place, so that the card "
            "says what the words bring; two fits.",
        ),
    ] = False,
    pictures: Annotated[int, typer.Option(min=0, max=50, help="How many pictures, with --store.")] = 4,
    license_name: Annotated[
        str | None, typer.Option("--license", help="Licence of the model, as hubs write it, such as apache-2.0.")
    ] = None,
    private: Annotated[bool, typer.Option(help="Make a new repository visible to its owners alone.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch to push to. Default: main.")] = None,
    token: Token = None,
    out: Annotated[
        Path | None, typer.Option(help="Write what would be pushed into this folder, and push nothing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Share a model: its two files and a card made of what is known about it.

    The card says what the model tells apart and by which concepts, what was measured, when it does not answer, and how
    to load it; with --store it shows predictions of test photos as pictures, with --controls what random words would
    reach in the concepts' place. The hub is the one that HF_ENDPOINT names, or the usual one.

    Example: `ccr push photos-model me/photos --store photos-store --license apache-2.0`
    """
    from ccr.classifier import ConceptClassifier
    from ccr.data.store import EmbeddingStore
    from ccr.io.hub import check_repository

    check_repository(repository)
    if controls and store is None:
        raise CCRError("--controls are measured on images: give --store, the store that the model was fitted on")
    if out is not None and (private or revision is not None):
        option = "--private" if private else f"--revision {revision}"
        raise typer.BadParameter(f"{option} is about a hub, and with --out nothing is pushed: leave it out")
    loaded = ConceptClassifier.load(model)
    if controls and store is not None:
        loaded = noted_controls(loaded, EmbeddingStore.open(store), None)
    drawn = {} if store is None else _pictures(loaded, store, pictures)
    if out is not None:
        loaded.save_pretrained(out, repo_id=repository, license=license_name, pictures=drawn)
        done, words = {"folder": str(out)}, f"Written to {out}"
    else:
        note(f"pushing to {repository}")
        address = loaded.push_to_hub(
            repository,
            token=token,
            private=private or None,
            revision=revision,
            license=license_name,
            pictures=drawn,
        )
        done, words = {"url": address}, f"{model} is at {address}"
    if as_json:
        print_json({"model": str(model), "repository": repository, "pictures": list(drawn), **done})
    else:
        console.print(escape(words), soft_wrap=True)


def _pictures(model: ConceptClassifier, path: Path, count: int) -> dict[str, tuple[str, bytes]]:
    """Explanations of photos of the store, spread over it, as pictures for the card."""
    import numpy as np

    from ccr.data.store import EmbeddingStore
    from ccr.show import plots

    _, rows = split_of(EmbeddingStore.open(path), None)
    drawn: dict[str, tuple[str, bytes]] = {}
    with bar() as tell:
        for number, row in enumerate(np.linspace(0, len(rows) - 1, count).astype(int).tolist(), start=1):
            tell(number - 1, count, "drawing explanations")
            explained, truth = model.explain(rows.X[row]), rows.y[row]
            try:
                photo = rows.image(row)
            except CCRError as error:
                note(f"photo {row} cannot be shown: {error}")
                continue
            words = f"predicted {explained.prediction}, {percent(explained.probability)}; it is {truth}"
            drawn[f"explained-{number}.png"] = (words, plots.png(plots.explanation(explained, photo, truth=truth)))
    return drawn


def pull(
    repository: Annotated[str, typer.Argument(help="OWNER/NAME on the hub.")],
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit. Default: the newest.")] = None,
    token: Token = None,
    cached: Annotated[bool, typer.Option("--cached", help="Use what was fetched before, without a network.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch a model: its two files alone, read as strictly as any model's; nothing from a hub is ever executed.

    Example: `ccr pull me/photos --out photos-model`, then `ccr explain photos-model PHOTO`
    """
    from ccr.io.format import check_target
    from ccr.io.hub import fetch
    from ccr.model import ConceptModel

    check_target(out)
    note(f"fetching {repository}")
    model = ConceptModel.load(fetch(repository, revision=revision, token=token, local_files_only=cached))
    model.save(out)
    if as_json:
        found = {"classes": len(model.classes), "concepts": len(model.names), "encoder": model.provenance.encoder}
        print_json({"model": str(out), "repository": repository, **found})
        return
    console.print(
        f"{escape(str(out))}: {len(model.classes)} classes, {len(model.names)} concepts, encoder "
        f"{escape(str(model.provenance.encoder))}; try: ccr explain {escape(str(out))} IMAGE",
        soft_wrap=True,
    )
