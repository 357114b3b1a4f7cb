"""Encoder specs: one line of text that names an encoder anywhere."""

from __future__ import annotations

from typing import NamedTuple

from ccr.data.assets import Log
from ccr.data.encoders.named import remember
from ccr.data.encoders.protocol import Encoder, checked_batch_size
from ccr.errors import CCRError

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
        from ccr.data.encoders.bundled import BundledEncoder

        return BundledEncoder(template=template, threads=threads, log=log)
    if kind == "hf":
        from ccr.data.encoders.hf import HFEncoder

        return HFEncoder(target, device=device, batch_size=batch_size, template=template)
    from ccr.data.encoders.openclip import OpenClipEncoder

    return OpenClipEncoder(target, device=device, batch_size=batch_size, template=template)
