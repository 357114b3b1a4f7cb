"""Which encoder embeds a photo for a model: the one that it was fitted on, and no other."""

from __future__ import annotations

from typing import Any

from ccr.data.assets import Log
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.encoders.named import check_named
from ccr.errors import CCRError


def encoder_of_model(model: Any, given: Encoder | str | None, *, log: Log | None = None) -> Encoder:
    """The encoder given, by itself or by its spec, or else the one that the model names; checked to be the model's."""
    origin = model.provenance
    if given is None:
        if origin.encoder is None:
            raise CCRError(
                'the model does not say which encoder made its embeddings: give encoder="bundled" or another'
            )
        check_named(origin.encoder, "the model")
    loaded = load_encoder(given or origin.encoder, log=log) if given is None or isinstance(given, str) else given
    if origin.encoder_fingerprint not in (None, loaded.fingerprint):
        raise CCRError(
            f"the model was fitted on embeddings of encoder {origin.encoder_fingerprint} ({origin.encoder}), but "
            f"{loaded.name} is {loaded.fingerprint}: give the encoder with the same weights"
        )
    return loaded
