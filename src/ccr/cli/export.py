"""`ccr export`: a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, ModelFolder, console, note, print_json
from ccr.errors import CCRError


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
    `probabilities`, `codes`, `contributions` (of each concept to the label) and `logits`. The names of concepts and
    classes are in the file's metadata.

    Example: `ccr export photos-model --out photos.onnx`
    """
    from ccr.export.onnx_model import write_onnx
    from ccr.model import ConceptModel

    if out.suffix.lower() != ".onnx":
        raise CCRError(f"--out must end in .onnx, got {out.name!r}")
    loaded = ConceptModel.load(model)
    log = lambda line: note(line, silent=as_json)  # noqa: E731
    facts = write_onnx(loaded, out, with_encoder=with_encoder, log=log)
    size = out.stat().st_size
    if as_json:
        print_json({"model": str(model), "out": str(out), "bytes": size, "metadata": facts})
        return
    reads = "the pixels of one photo" if with_encoder else f"embeddings of {loaded.dimension} dimensions"
    console.print(
        f"{escape(str(out))}, {size / 1e6:.1f} MB: {reads} in; label, probabilities, codes, contributions and logits "
        f"out, over {len(loaded.names)} concepts and {len(loaded.classes)} classes",
        highlight=False,
    )
