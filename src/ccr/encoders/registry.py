"""Encoder specs: one line of text that names an encoder anywhere."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ccr.encoders.assets import Log, cache_folder
from ccr.encoders.protocol import Encoder, checked_batch_size
from ccr.errors import CCRError, MissingExtraError
from ccr.io.files import read_regular

# Encoders of this machine that the user named: a store or model from elsewhere may not choose a folder to load.
_FILE = "named-encoders.jsonl"  # in the user's cache: specs that were given on this machine


def is_local(spec: str) -> bool:
    """Does the spec name a folder or file that is here, rather than a name on a hub?"""
    kind, _, target = spec.strip().partition(":")
    place = target.partition("/")[2] if kind == "open_clip" else target
    return kind in ("hf", "open_clip") and bool(place) and Path(place).exists()


def remember(spec: str) -> None:
    """Note that the user named this encoder, if it is a local one. Where nothing can be noted, he is asked again.

    A line is appended in one write, so that commands that run at the same time keep each other's notes.
    """
    if is_local(spec) and spec not in _known():
        with suppress(OSError, MissingExtraError):
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _FILE).open("ab", buffering=0) as file:
                file.write(b"\n" + json.dumps(spec).encode() + b"\n")


def check_named(spec: str, where: str) -> None:
    """Refuse a local encoder that `where`, a store or a model, notes, and that the user never named himself."""
    if is_local(spec) and spec not in _known():
        raise CCRError(
            f"{where} says that its encoder is {spec}, which lies on this machine and was never named by you: if you "
            f"trust it, give --encoder {spec}"
        )


def _known() -> set[str]:
    try:
        lines = read_regular(cache_folder() / _FILE).splitlines()
    except (OSError, MissingExtraError):
        return set()
    known = set()
    for line in lines:
        if line.startswith(b'"'):
            with suppress(ValueError):
                known.add(json.loads(line))
    return known


DEFAULT_ENCODER = "hf:openai/clip-vit-base-patch16"
_FORMS = "hf:NAME_OR_FOLDER, open_clip:MODEL/TAG_OR_CHECKPOINT, bundled"


class EncoderSpec(NamedTuple):
    """`kind` is hf, open_clip or bundled; `target` is what stands after the colon ("" for bundled)."""

    kind: str
    target: str


def parse_spec(spec: str) -> EncoderSpec:
    """The parts of an encoder spec such as `hf:openai/clip-vit-base-patch16`."""
    kind, colon, target = spec.strip().partition(":")
    if kind == "bundled" and not colon:
        return EncoderSpec("bundled", "")
    if kind in ("hf", "open_clip") and target.strip():
        return EncoderSpec(kind, target.strip())
    raise CCRError(f"an encoder is one of {_FORMS}; got {spec!r}: try {DEFAULT_ENCODER!r} or 'bundled'")


def load_encoder(
    spec: str = DEFAULT_ENCODER,
    *,
    device: str = "auto",
    batch_size: int = 32,
    template: str | None = None,
    threads: int | None = None,
    log: Log | None = None,
) -> Encoder:
    """The encoder that `spec` names. Stores and models that note a local folder may name it from then on.

    Parameters
    ----------
    spec : str
        hf:NAME_OR_FOLDER, open_clip:MODEL/TAG_OR_CHECKPOINT or bundled.
    device : str
        For hf and open_clip: "cpu", "cuda", ... or "auto": a GPU if there is one. The bundled one runs on the CPU.
    batch_size : int
        For hf and open_clip: images or texts that are embedded at a time, from 1.
    template : str, optional
        What texts are put into, with {} once where the text goes. None: the encoder's own way.
    threads : int, optional
        For bundled: images that are run side by side, from 1. None: one per core.
    log : callable, optional
        Called with a message when something is downloaded.
    """
    kind, target = parse_spec(spec)
    checked_batch_size(batch_size)
    if kind == "bundled" and device not in ("auto", "cpu"):
        raise CCRError(
            f"the bundled encoder runs on the CPU, got device {device!r}: leave it out, or take an hf: encoder"
        )
    remember(spec)
    if kind == "bundled":
        from ccr.encoders.bundled import BundledEncoder

        return BundledEncoder(template=template, threads=threads, log=log)
    if kind == "hf":
        from ccr.encoders.hf import HFEncoder

        return HFEncoder(target, device=device, batch_size=batch_size, template=template)
    from ccr.encoders.openclip import OpenClipEncoder

    return OpenClipEncoder(target, device=device, batch_size=batch_size, template=template)
